/** A round brush on bytes, and which parts of which rows it touched. */
import { SIDE } from './memory-layout.js';

const BRUSH_RADIUS = 7;

/** Touched parts of rows, each in one piece: what is to be written there. */
export class TouchedRows {
  readonly #from = new Int16Array(SIDE).fill(SIDE);
  readonly #to = new Int16Array(SIDE).fill(-1);
  #count = 0;

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  add(row: number, from: number, to: number): void {
    if (this.#to[row]! < 0) this.#count++;
    this.#from[row] = Math.min(this.#from[row]!, from);
    this.#to[row] = Math.max(this.#to[row]!, to);
  }

  all(): void {
    for (let row = 0; row < SIDE; row++) this.add(row, 0, SIDE - 1);
  }

  /** Takes up to `most` rows away; of each its first byte in the picture and how many. */
  take(most: number): { readonly at: number; readonly length: number }[] {
    const taken: { at: number; length: number }[] = [];
    for (let row = 0; row < SIDE && taken.length < most && this.#count > 0; row++) {
      const from = this.#from[row]!;
      const to = this.#to[row]!;
      if (to < 0) continue;
      taken.push({ at: row * SIDE + from, length: to - from + 1 });
      this.#from[row] = SIDE;
      this.#to[row] = -1;
      this.#count--;
    }
    return taken;
  }
}

/** Where bytes come from before they are painted on. */
type Below = (from: number, to: number) => void;

/**
 * Paints a line from one point to the other. `heat`: 1 to 255 at the middle, and never less than
 * what is there; 0 wipes. `below` is called for each part of a row before it is painted.
 */
export function paintLine(
  picture: Uint8Array,
  touched: TouchedRows,
  [fromX, fromY, toX, toY]: readonly [number, number, number, number],
  heat: number,
  below: Below = () => {},
): void {
  const steps = Math.max(1, Math.ceil(Math.hypot(toX - fromX, toY - fromY) / 2));
  for (let step = 0; step <= steps; step++) {
    const part = step / steps;
    const x = fromX + (toX - fromX) * part;
    const y = fromY + (toY - fromY) * part;
    stamp(picture, touched, Math.round(x), Math.round(y), heat, below);
  }
}

function stamp(
  picture: Uint8Array,
  touched: TouchedRows,
  x: number,
  y: number,
  heat: number,
  below: Below,
): void {
  const first = Math.max(0, y - BRUSH_RADIUS);
  const last = Math.min(SIDE - 1, y + BRUSH_RADIUS);
  for (let row = first; row <= last; row++) {
    const half = Math.floor(Math.sqrt(BRUSH_RADIUS ** 2 - (row - y) ** 2));
    const from = Math.max(0, x - half);
    const to = Math.min(SIDE - 1, x + half);
    if (from > to) continue;
    below(row * SIDE + from, row * SIDE + to + 1);
    for (let column = from; column <= to; column++) {
      const at = row * SIDE + column;
      const distance = ((row - y) ** 2 + (column - x) ** 2) / BRUSH_RADIUS ** 2;
      const value = Math.round(heat * (1 - distance * 0.7));
      picture[at] = heat === 0 ? 0 : Math.max(picture[at]!, value);
    }
    touched.add(row, from, to);
  }
}

/** A small flower: what a peer paints when it comes. */
export function paintFlower(
  picture: Uint8Array,
  touched: TouchedRows,
  x: number,
  y: number,
  heat: number,
): void {
  const PETALS = 5;
  for (let petal = 0; petal < PETALS; petal++) {
    const angle = (2 * Math.PI * petal) / PETALS - Math.PI / 2;
    const toX = x + 10 * Math.cos(angle);
    const toY = y + 10 * Math.sin(angle);
    paintLine(picture, touched, [toX, toY, toX, toY], heat);
  }
  paintLine(picture, touched, [x, y, x, y], Math.floor(heat / 3));
}
