/** One figure over time, drawn as lines; its numbers are beside it as text. */
import { make } from './element.js';

/** Four a second. */
const KEPT = 120;

export interface PlotOptions {
  readonly title: string;
  /** Text of each line; without it the caller of `add` passes the text. */
  readonly text?: (values: readonly number[]) => string;
}

export class Plot {
  readonly element: HTMLElement;
  readonly #options: PlotOptions;
  readonly #canvas: HTMLCanvasElement;
  readonly #value: HTMLElement;
  #history: (readonly number[])[] = [];

  constructor(options: PlotOptions) {
    this.#options = options;
    this.#canvas = make('canvas', { role: 'img', ariaLabel: options.title });
    this.#value = make('b', {});
    const caption = make('figcaption', {}, make('span', {}, options.title), this.#value);
    this.element = make('figure', { className: 'plot' }, caption, this.#canvas);
  }

  add(values: readonly number[], said?: string): void {
    this.#history = [...this.#history.slice(1 - KEPT), values];
    const text = said ?? this.#options.text?.(values) ?? '';
    this.#value.textContent = text;
    this.#canvas.setAttribute('aria-label', `${this.#options.title}: ${text}`);
    this.#draw();
  }

  #draw(): void {
    const canvas = this.#canvas;
    const scale = devicePixelRatio;
    const width = Math.round(canvas.clientWidth * scale);
    const height = Math.round(canvas.clientHeight * scale);
    if (width === 0) return;
    if (canvas.width !== width || canvas.height !== height)
      Object.assign(canvas, { width, height });
    const context = canvas.getContext('2d')!;
    const style = getComputedStyle(canvas);
    const most = Math.max(1e-9, ...this.#history.flat().filter(Number.isFinite)) * 1.1;
    context.clearRect(0, 0, width, height);
    const lines = this.#history[0]?.length ?? 0;
    for (let line = 0; line < lines; line++) {
      context.beginPath();
      this.#history.forEach((values, index) => {
        const value = values[line]!;
        const x = width - ((this.#history.length - 1 - index) / (KEPT - 1)) * width;
        if (Number.isFinite(value)) context.lineTo(x, height - 1 - (value / most) * (height - 3));
      });
      context.strokeStyle = style.getPropertyValue(line === 0 ? '--accent' : '--bad');
      context.lineWidth = 1.75 * scale;
      context.lineJoin = 'round';
      context.stroke();
    }
  }
}
