/** The bytes of a memory layout as SVG: each area in rows, and the packed stream below. */

/** An area, and for each of its bytes the offsets in the stream where it comes. */
export interface DrawnArea {
  readonly name: string;
  readonly places: readonly (readonly number[])[];
}

const CELL = 14;
const GAP = 2;
const LEFT = 70;
const LINE = 24;
const EMPTY = '#e8e8e8';

/** From the stream's first byte to its last one, through the colours. */
function colour(offset: number, total: number): string {
  return `hsl(${Math.round((300 * offset) / Math.max(1, total))} 70% 60%)`;
}

function escapeText(text: string): string {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
}

class Drawing {
  readonly #width: number;
  readonly #parts: string[] = [];
  #y = 8;

  constructor(width: number) {
    this.#width = width;
  }

  text(text: string): void {
    this.#y += LINE - 8;
    this.#parts.push(`<text x="4" y="${this.#y}">${escapeText(text)}</text>`);
    this.#y += 8;
  }

  /** Cells in rows, each row with the number of its first byte. */
  cells(cells: readonly { readonly fill: string; readonly title: string }[]): void {
    for (let first = 0; first < cells.length; first += this.#width) {
      const y = this.#y;
      this.#parts.push(`<text x="4" y="${y + CELL - 3}" class="number">${first}</text>`);
      cells.slice(first, first + this.#width).forEach(({ fill, title }, index) => {
        const x = LEFT + index * CELL;
        const size = `width="${CELL - GAP}" height="${CELL - GAP}"`;
        this.#parts.push(
          `<rect x="${x}" y="${y}" ${size} fill="${fill}"><title>${escapeText(title)}</title></rect>`,
        );
      });
      this.#y += CELL;
    }
  }

  toString(): string {
    const style = '<style>text{font:12px sans-serif}.number{fill:#888;font-size:10px}</style>';
    const size = `width="${LEFT + this.#width * CELL + 8}" height="${this.#y + 8}"`;
    const head = `<svg xmlns="http://www.w3.org/2000/svg" ${size}>`;
    return `${head}\n${style}\n${this.#parts.join('\n')}\n</svg>\n`;
  }
}

/** `stream`: of each of its bytes, the area's index and the place there. */
export function drawLayout(
  sentence: string,
  areas: readonly DrawnArea[],
  stream: readonly (readonly [area: number, place: number])[],
  width: number,
): string {
  const drawing = new Drawing(width);
  drawing.text(sentence);
  for (const { name, places } of areas) {
    drawing.text(`${name}, ${places.length} bytes`);
    drawing.cells(
      places.map((offsets, at) => ({
        fill: offsets.length === 0 ? EMPTY : colour(offsets[0]!, stream.length),
        title: `byte ${at} of ${name}${offsets.length ? `: ${offsets.join(', ')} in the row` : ''}`,
      })),
    );
  }
  drawing.text(`the row, ${stream.length} bytes`);
  drawing.cells(
    stream.map(([area, place], at) => ({
      fill: colour(at, stream.length),
      title: `${at} in the row: byte ${place} of ${areas[area]!.name}`,
    })),
  );
  return `${drawing}`;
}
