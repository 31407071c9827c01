/** One memory on the page: where pointer and keys paint. */
import { SIDE } from '../memory-layout.js';
import type { Line } from './protocol.js';

const STEP = 4;
const FAST = 4;

export class PaneInput {
  readonly canvas: HTMLCanvasElement;
  readonly #pane: HTMLElement;
  readonly #cursor: HTMLElement;
  readonly #paint: (line: Line) => void;
  readonly #speak: (sentence: string) => void;
  /** Where the pointer was, while it is down. */
  #last: readonly [number, number] | undefined;
  #x = SIDE / 2;
  #y = SIDE / 2;

  constructor(pane: HTMLElement, paint: (line: Line) => void, speak: (sentence: string) => void) {
    this.#pane = pane;
    this.canvas = pane.querySelector('canvas')!;
    this.#cursor = pane.querySelector<HTMLElement>('.cursor')!;
    this.#paint = paint;
    this.#speak = speak;
    pane.addEventListener('pointerdown', (event) => this.#down(event));
    pane.addEventListener('pointermove', (event) => this.#move(event));
    for (const kind of ['pointerup', 'pointercancel'] as const) {
      pane.addEventListener(kind, () => (this.#last = undefined));
    }
    pane.addEventListener('keydown', (event) => this.#key(event));
    this.#showCursor();
  }

  #down(event: PointerEvent): void {
    this.#pane.setPointerCapture(event.pointerId);
    const [x, y] = (this.#last = this.#point(event));
    this.#paint([x, y, x, y]);
  }

  #move(event: PointerEvent): void {
    if (!this.#last) return;
    let last = this.#last;
    for (const each of [...event.getCoalescedEvents(), event]) {
      const point = this.#point(each);
      if (point[0] === last[0] && point[1] === last[1]) continue;
      this.#paint([...last, ...point]);
      last = point;
    }
    this.#last = last;
  }

  #point({ clientX, clientY }: PointerEvent): readonly [number, number] {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    return [((clientX - left) / width) * SIDE, ((clientY - top) / height) * SIDE];
  }

  #key(event: KeyboardEvent): void {
    const step = event.shiftKey ? STEP * FAST : STEP;
    const [dx, dy] = DIRECTIONS[event.key] ?? [0, 0];
    if (event.key === ' ') {
      this.#paint([this.#x, this.#y, this.#x, this.#y]);
      this.#speak(`painted at column ${this.#x}, row ${this.#y}`);
    } else if (dx !== 0 || dy !== 0) {
      this.#x = clamp(this.#x + dx * step);
      this.#y = clamp(this.#y + dy * step);
      this.#showCursor();
      this.#speak(`column ${this.#x}, row ${this.#y}`);
    } else return;
    event.preventDefault();
  }

  #showCursor(): void {
    this.#cursor.style.left = `${(this.#x / SIDE) * 100}%`;
    this.#cursor.style.top = `${(this.#y / SIDE) * 100}%`;
  }
}

const DIRECTIONS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

function clamp(value: number): number {
  return Math.max(0, Math.min(SIDE - 1, value));
}
