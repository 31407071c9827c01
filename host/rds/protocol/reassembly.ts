/** The fragments of one message, as they come over one connection: one message after the other. */
import type { ReceivedPacket } from './transport.js';
import { HEADER_BYTES } from '../wire/constants.js';
import type { RdsHeader } from '../wire/header.js';

export class Reassembly {
  #header: RdsHeader | undefined;
  #packets: ReceivedPacket[] = [];
  #missing = 0;
  #start = HEADER_BYTES;

  /**
   * Takes a fragment of `fragmentBytes`, or of what is left, behind `start` bytes of its header.
   * 'more': the message has others; 'wrong': it does not belong here, and is still the caller's.
   */
  add(
    header: RdsHeader,
    packet: ReceivedPacket,
    start: number,
    fragmentBytes: number,
  ): 'whole' | 'more' | 'wrong' {
    const length = packet.bytes.length - start;
    const first = this.#header;
    if (first) {
      const isSame =
        first.sequence === header.sequence &&
        first.length === header.length &&
        first.sourcePort === header.sourcePort &&
        first.destinationPort === header.destinationPort &&
        this.#start === start;
      if (!isSame) return 'wrong';
    }
    const missing = first ? this.#missing : header.length;
    // Small ones would take all receives that there are.
    if (length !== Math.min(missing, fragmentBytes)) return 'wrong';
    this.#header ??= header;
    this.#start = start;
    if (first) this.#packets.push(packet);
    else this.#packets = [packet];
    this.#missing = missing - length;
    return this.#missing === 0 ? 'whole' : 'more';
  }

  /**
   * The message that is whole: its first header and its fragments, which are the caller's now; each
   * has `start` bytes in front.
   */
  take(): { header: RdsHeader; packets: ReceivedPacket[]; start: number } {
    const header = this.#header!;
    const packets = this.#packets;
    this.#header = undefined;
    return { header, packets, start: this.#start };
  }

  /** Gives back what there is of a message. */
  clear(): void {
    if (!this.#header) return;
    this.#header = undefined;
    for (const packet of this.#packets) packet.release();
  }
}
