/** A round brush on bytes, and which parts of which rows it touched. */
import { SIDE } from './memory-layout.js';

const BRUSH_RADIUS = 7;
const PETAL_DISTANCE = 10;
export const FLOWER_RADIUS = PETAL_DISTANCE + BRUSH_RADIUS;

/** Colours, and the levels of brightness of each. */
export const COLOURS = 7;
export const LEVELS = 36;
/** In place of a colour: the brush erases. */
export const ERASER = -1;

/** The byte of a colour (0 to 6) at a brightness of 0 to 1. */
export function byteOf(colour: number, brightness: number): number {
  return 1 + colour * LEVELS + Math.round(brightness * (LEVELS - 1));
}

/** Paint on paint: a colour gets no darker, and its soft edge leaves other colours alone. */
function blend(below: number, above: number): number {
  if (below === 0) return above;
  const isSameColour = Math.floor((below - 1) / LEVELS) === Math.floor((above - 1) / LEVELS);
  if (isSameColour) return Math.max(below, above);
  return (above - 1) % LEVELS >= LEVELS / 2 ? above : below;
}

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
 * Paints a line from one point to the other. `colour`: 0 to 6, or ERASER. `below` is called for
 * each part of a row before it is painted.
 */
export function paintLine(
  picture: Uint8Array,
  touched: TouchedRows,
  [fromX, fromY, toX, toY]: readonly [number, number, number, number],
  colour: number,
  below: Below = () => {},
): void {
  const steps = Math.max(1, Math.ceil(Math.hypot(toX - fromX, toY - fromY) / 2));
  for (let step = 0; step <= steps; step++) {
    const part = step / steps;
    const x = fromX + (toX - fromX) * part;
    const y = fromY + (toY - fromY) * part;
    stamp(picture, touched, Math.round(x), Math.round(y), colour, below);
  }
}

function stamp(
  picture: Uint8Array,
  touched: TouchedRows,
  x: number,
  y: number,
  colour: number,
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
      const byte = colour === ERASER ? 0 : blend(picture[at]!, byteOf(colour, 1 - distance * 0.7));
      picture[at] = byte;
    }
    touched.add(row, from, to);
  }
}

/** A small flower: what a new tab brings. */
export function paintFlower(
  picture: Uint8Array,
  touched: TouchedRows,
  x: number,
  y: number,
  colour: number,
): void {
  const PETALS = 5;
  for (let petal = 0; petal < PETALS; petal++) {
    const angle = (2 * Math.PI * petal) / PETALS - Math.PI / 2;
    const toX = x + PETAL_DISTANCE * Math.cos(angle);
    const toY = y + PETAL_DISTANCE * Math.sin(angle);
    paintLine(picture, touched, [toX, toY, toX, toY], colour);
  }
  paintLine(picture, touched, [x, y, x, y], (colour + 3) % COLOURS);
}
