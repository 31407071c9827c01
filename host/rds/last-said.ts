/**
 * What the headers of a connection said last, in one direction. Both ends know it, since nothing
 * is lost or comes out of order there; so a message whose header would say nothing new goes without.
 */
import { HEADER_BYTES, HeaderFlag } from './constants.js';
import { noExtensions, type RdsHeader } from './header.js';

/** Said by each of them: they are acknowledged, by themselves if need be. */
const FLAGS = HeaderFlag.ACK_REQUIRED;

export class LastSaid {
  #sequence = NaN;
  #ack = NaN;

  /** A connection begins: nothing was said. */
  begin(): void {
    this.#sequence = NaN;
    this.#ack = NaN;
  }

  /** A header goes, or came. */
  hear({ sequence, ack }: RdsHeader): void {
    if (sequence !== 0) this.#sequence = sequence;
    this.#ack = ack;
  }

  /** Would the other end make the same header, of a message that goes in one piece? */
  implies({ sequence, ack, flags, extensions }: RdsHeader): boolean {
    return (
      sequence === this.#sequence + 1 &&
      ack === this.#ack &&
      (flags & ~FLAGS) === 0 &&
      extensions === noExtensions()
    );
  }

  /** The header of a message that came without one; undefined: it must have one. */
  next(ports: number, bytes: Uint8Array): RdsHeader | undefined {
    if (!(this.#sequence + 1 <= Number.MAX_SAFE_INTEGER)) return undefined;
    return {
      sequence: this.#sequence + 1,
      ack: this.#ack,
      length: bytes.length - HEADER_BYTES,
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
