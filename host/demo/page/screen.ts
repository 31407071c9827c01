/**
 * Draws two memories, as often as the browser shows something: a byte is a point. Looks at all of
 * them for every frame; what is as it was drawn is not drawn again.
 */
import { PICTURE_BYTES, SIDE } from '../memory-layout.js';

/** One memory on the screen. */
class Picture {
  readonly #context: OffscreenCanvasRenderingContext2D;
  readonly #image = new ImageData(SIDE, SIDE);
  readonly #points = new Uint32Array(this.#image.data.buffer);
  /** The bytes and the colours that were drawn. */
  readonly #drawn = new Uint32Array(PICTURE_BYTES / 4);
  #palette: Uint32Array | undefined;

  constructor(canvas: OffscreenCanvas) {
    canvas.width = SIDE;
    canvas.height = SIDE;
    this.#context = canvas.getContext('2d', { alpha: false })!;
  }

  /** `memory`: at a multiple of 4. Was there something to be drawn? */
  draw(memory: Uint8Array, palette: Uint32Array): boolean {
    const words = new Uint32Array(memory.buffer, memory.byteOffset, this.#drawn.length);
    const drawn = this.#drawn;
    if (palette === this.#palette && isSame(words, drawn)) return false;
    drawn.set(words);
    this.#palette = palette;
    const points = this.#points;
    for (let at = 0; at < PICTURE_BYTES; at++) points[at] = palette[memory[at]!]!;
    this.#context.putImageData(this.#image, 0, 0);
    return true;
  }
}

function isSame(words: Uint32Array, others: Uint32Array): boolean {
  for (let at = 0; at < words.length; at++) if (words[at] !== others[at]) return false;
  return true;
}

const NOTHING = new Uint8Array(PICTURE_BYTES);

export class Screen {
  /** Picture to draw; undefined: none. */
  ours: Uint8Array | undefined;
  theirs: Uint8Array | undefined;
  /** Milliseconds to draw both pictures, smoothed over the frames in which something was drawn. */
  drawMillis = 0;
  /** How often the browser showed something, and in how many of them something was drawn. */
  frames = 0;
  /** When the last of them began, as `performance.now()`. */
  frameMillis = 0;
  changes = 0;
  #palette: Uint32Array;
  readonly #ours: Picture;
  readonly #theirs: Picture;

  constructor(ours: OffscreenCanvas, theirs: OffscreenCanvas, palette: Uint32Array) {
    this.#palette = palette;
    this.#ours = new Picture(ours);
    this.#theirs = new Picture(theirs);
    this.#next();
  }

  setPalette(palette: Uint32Array): void {
    this.#palette = palette;
  }

  #next(): void {
    requestAnimationFrame(() => {
      const start = performance.now();
      const isOursNew = this.#ours.draw(this.ours ?? NOTHING, this.#palette);
      const isTheirsNew = this.#theirs.draw(this.theirs ?? NOTHING, this.#palette);
      if (isOursNew || isTheirsNew) {
        this.drawMillis += (performance.now() - start - this.drawMillis) / 8;
        this.changes++;
      }
      this.frames++;
      this.frameMillis = start;
      this.#next();
    });
  }
}
