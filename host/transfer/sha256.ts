/** SHA-256 of bytes that come piece by piece. */
import { createHash } from 'node:crypto';

export class Sha256 {
  readonly #hash = createHash('sha256');

  update(bytes: Uint8Array): void {
    this.#hash.update(bytes);
  }

  /** 32 bytes. To be called once, and last. */
  digest(): Uint8Array {
    return this.#hash.digest();
  }
}
