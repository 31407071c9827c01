/** Draws two memories, as often as the browser shows something: a byte is a point. */
import { PICTURE_BYTES, SIDE } from '../memory-layout.js';

export class Screen {
  /** What is drawn; nothing while it is undefined. */
  ours: Uint8Array | undefined;
  theirs: Uint8Array | undefined;
  /** What drawing both takes, smoothed. */
  drawMillis = 0;
  #palette: Uint32Array;
  #frames = 0;
  readonly #contexts: readonly OffscreenCanvasRenderingContext2D[];
  readonly #image = new ImageData(SIDE, SIDE);
  readonly #points = new Uint32Array(this.#image.data.buffer);

  constructor(ours: OffscreenCanvas, theirs: OffscreenCanvas, palette: Uint32Array) {
    this.#palette = palette;
    this.#contexts = [ours, theirs].map((canvas) => {
      canvas.width = SIDE;
      canvas.height = SIDE;
      return canvas.getContext('2d', { alpha: false })!;
    });
    this.#next();
  }

  setPalette(palette: Uint32Array): void {
    this.#palette = palette;
  }

  /** Frames since it was called last. */
  takeFrames(): number {
    const frames = this.#frames;
    this.#frames = 0;
    return frames;
  }

  #next(): void {
    requestAnimationFrame(() => {
      const start = performance.now();
      this.#draw(this.#contexts[0]!, this.ours);
      this.#draw(this.#contexts[1]!, this.theirs);
      this.drawMillis += (performance.now() - start - this.drawMillis) / 8;
      this.#frames++;
      this.#next();
    });
  }

  #draw(context: OffscreenCanvasRenderingContext2D, memory: Uint8Array | undefined): void {
    const palette = this.#palette;
    const points = this.#points;
    if (memory) for (let at = 0; at < PICTURE_BYTES; at++) points[at] = palette[memory[at]!]!;
    else points.fill(palette[0]!);
    context.putImageData(this.#image, 0, 0);
  }
}
