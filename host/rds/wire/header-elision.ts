/**
 * Header elision: the last header of a connection in one direction, which both ends know because
 * nothing is lost or reordered there. A message leaves out what its receiver can derive.
 */
import { HeaderFlag } from './constants.js';
import { noExtensions, type RdsHeader } from './header.js';

/** Fields that a message without a header omits: all but the ports, or those as well. */
export type Bare = 'but ports' | 'all';

/**
 * Immediate data of a message with a header; without one it is the ports. Port 0 sends nothing
 * bare.
 */
export const HAS_HEADER = 0;
/** Said by each message without a header: it is acknowledged, by itself if need be. */
const FLAGS = HeaderFlag.ACK_REQUIRED;

export class HeaderElision {
  #sequence = NaN;
  #ack = NaN;
  #ports = 0;

  /** A new connection knows no header. */
  begin(): void {
    this.#sequence = NaN;
    this.#ack = NaN;
    this.#ports = 0;
  }

  /** Records a header that was sent or received. */
  hear(header: RdsHeader): void {
    this.#ack = header.ack;
    if (header.sequence === 0) return;
    this.#sequence = header.sequence;
    this.#ports = portsOf(header);
  }

  /** Which form a single-SEND message can take; undefined: it needs a header. */
  bareness(header: RdsHeader): Bare | undefined {
    const isKnown =
      header.sequence === this.#sequence + 1 &&
      header.ack === this.#ack &&
      (header.flags & ~FLAGS) === 0 &&
      header.extensions === noExtensions() &&
      header.sourcePort !== 0;
    if (!isKnown) return undefined;
    return portsOf(header) === this.#ports ? 'all' : 'but ports';
  }

  /**
   * Reconstructs the header of a message that came without one; `ports`: its immediate data.
   * Undefined if it cannot be derived.
   */
  next(length: number, ports = this.#ports): RdsHeader | undefined {
    if (!Number.isSafeInteger(this.#sequence + 1) || ports === 0) return undefined;
    return {
      sequence: this.#sequence + 1,
      ack: this.#ack,
      length,
      sourcePort: ports >>> 16,
      destinationPort: ports & 0xffff,
      flags: FLAGS,
      credit: 0,
      extensions: noExtensions(),
    };
  }
}

/** Both ports of a message, as four bytes of immediate data. */
export function portsOf({ sourcePort, destinationPort }: RdsHeader): number {
  return ((sourcePort << 16) | destinationPort) >>> 0;
}
