/** Slow ports of a node: one bit each, least significant first (Linux, net/rds/cong.c). */
import { CONGESTION_MAP_BYTES } from './constants.js';

export class CongestionMap {
  readonly bytes = new Uint8Array(CONGESTION_MAP_BYTES);

  has(port: number): boolean {
    return ((this.bytes[port >> 3]! >> (port & 7)) & 1) === 1;
  }

  /** Returns whether the bit has changed. */
  set(port: number, isSlow: boolean): boolean {
    if (this.has(port) === isSlow) return false;
    this.bytes[port >> 3]! ^= 1 << (port & 7);
    return true;
  }

  clear(): void {
    this.bytes.fill(0);
  }

  /** Calls back for each slow port, in order. */
  forEach(use: (port: number) => void): void {
    this.bytes.forEach((byte, index) => {
      for (let bit = 0; byte >> bit; bit++) if ((byte >> bit) & 1) use(index * 8 + bit);
    });
  }
}
