/** A link that shows its packets, and drops those that it is set to drop. */
import { Opcode, OpcodeName } from '#build/abi.js';
import { CopiedBatch, copyPacket, type CopiedPacket } from '../link/faults/copied-batch.js';
import type { Endpoint } from '../link/endpoint.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../link/link.js';

export interface TappedPacket {
  readonly millis: number;
  readonly isSent: boolean;
  /** Description of the packet in a word or two. */
  readonly kind: string;
  readonly psn: number;
  readonly isKilled: boolean;
  /** BTH to ICRC. */
  readonly bytes: Uint8Array;
}

/** How many of a kind are killed from now on. */
export type Kill = 'next' | 'all' | 'none';

const KEPT = 512;
const BTH_BYTES = 12;
/** Of an AETH's syndrome the top three bits say what it is (IBA 9.7.5.2.1). */
const SYNDROME_SHIFT = 5;
const RNR_NAK = 1;
const NAK = 3;

export class WireTap implements Link {
  readonly #link: Link;
  readonly #packets: TappedPacket[] = [];
  readonly #kills = new Map<string, Kill>();
  #count = 0;
  killed = 0;

  constructor(link: Link) {
    this.#link = link;
  }

  get info(): LinkInfo {
    return { ...this.#link.info, name: `tap(${this.#link.info.name})` };
  }

  /** Packets so far. */
  get count(): number {
    return this.#count;
  }

  /** How many of a kind are killed at present. */
  get kills(): ReadonlyMap<string, Kill> {
    return this.#kills;
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    await this.#link.open({
      packet: (bytes, source, group) => {
        if (!this.#see(bytes, false)) receiver.packet(bytes, source, group);
      },
      flush: () => receiver.flush(),
      failed: (reason) => receiver.failed(reason),
      peerGone: (peer: Endpoint, reason: string) => receiver.peerGone?.(peer, reason),
    });
    return this.info;
  }

  send(batch: PacketBatch): void {
    let isWhole = true;
    const kept: CopiedPacket[] = [];
    for (let index = 0; index < batch.count; index++) {
      if (!this.#see(batch.bytesOf(index), true)) {
        if (!isWhole) kept.push(copyPacket(batch, index));
        continue;
      }
      // Those before it leave without it.
      if (isWhole)
        for (let before = 0; before < index; before++) kept.push(copyPacket(batch, before));
      isWhole = false;
    }
    if (isWhole) {
      this.#link.send(batch);
      return;
    }
    batch.release();
    if (kept.length > 0) this.#link.send(new CopiedBatch(kept));
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  /** From now on the next packet of that kind, every one, or none is lost, sent or received. */
  kill(kind: string, kill: Kill): void {
    if (kill === 'none') this.#kills.delete(kind);
    else this.#kills.set(kind, kill);
  }

  /** The newest packets, oldest first. */
  latest(most: number): readonly TappedPacket[] {
    return this.#packets.slice(-most);
  }

  /** True: it is to be lost. */
  #see(bytes: Uint8Array, isSent: boolean): boolean {
    const kind = kindOf(bytes);
    const kill = this.#kills.get(kind);
    if (kill === 'next') this.#kills.delete(kind);
    const isKilled = kill !== undefined;
    if (isKilled) this.killed++;
    this.#count++;
    this.#packets.push({
      millis: performance.now(),
      isSent,
      kind,
      psn: bytes.length < BTH_BYTES ? 0 : (bytes[9]! << 16) | (bytes[10]! << 8) | bytes[11]!,
      isKilled,
      bytes: Uint8Array.from(bytes),
    });
    if (this.#packets.length > 2 * KEPT) this.#packets.splice(0, KEPT);
    return isKilled;
  }
}

/** The opcode's name without the service; of an acknowledgement, whether it is one. */
function kindOf(bytes: Uint8Array): string {
  if (bytes.length <= BTH_BYTES) return 'malformed';
  const opcode = bytes[0]!;
  if (opcode === Opcode.RC_ACKNOWLEDGE) {
    const syndrome = bytes[BTH_BYTES]! >> SYNDROME_SHIFT;
    return syndrome === NAK ? 'NAK' : syndrome === RNR_NAK ? 'RNR NAK' : 'ACK';
  }
  const name = OpcodeName[opcode];
  return name === undefined
    ? `opcode ${opcode}`
    : name.replace(/^RC_(RDMA_)?/, '').replaceAll('_', ' ');
}
