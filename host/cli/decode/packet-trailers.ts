/**
 * Finds the trailers of authenticated packets in a capture. REQs and REPs with a
 * tag identify the authenticated queue pairs: a packet has no mark of its own.
 */
import { Opcode } from '#build/abi.js';
import { claimOf } from '../../cm/auth-session.js';
import { MAD_BYTES, parseMad } from '../../cm/mad.js';

const BTH_BYTES = 12;
const DETH_BYTES = 8;
const ICRC_BYTES = 4;
/** Counter and tag. */
const TRAILER_BYTES = 24;
const NUMBER_BITS = 48n;
/** Limit of queue pairs in memory: a hostile capture can name more. */
const QUEUE_PAIRS_MAX = 65536;

/** Counter of an authenticated packet, and the packet without its trailer. */
export interface Opened {
  /** BTH to ICRC; with encryption, all behind the BTH is ciphertext. */
  readonly packet: Uint8Array;
  /** Generation of the key, and number of the packet in its direction. */
  readonly generation: number;
  readonly number: number;
  readonly encrypted: boolean;
}

/** The message of the connection manager in a datagram to queue pair 1, and what is behind it. */
export function datagramOf(packet: Uint8Array): Uint8Array {
  return packet.subarray(BTH_BYTES + DETH_BYTES, Math.max(packet.length - ICRC_BYTES, 0));
}

export class PacketTrailers {
  /** By address and number of the queue pair that a packet is for: is it encrypted? */
  readonly #queuePairs = new Map<string, boolean>();
  /** By address and communication id of the active side. */
  readonly #asked = new Map<string, boolean>();

  /** The next packet, BTH to ICRC. Undefined if no REQ or REP of the capture authenticates it. */
  open(packet: Uint8Array, source: string, destination: string): Opened | undefined {
    if (packet[0] === Opcode.UD_SEND_ONLY) {
      this.#learn(datagramOf(packet), source, destination);
      return undefined;
    }
    const target = (packet[5]! << 16) | (packet[6]! << 8) | packet[7]!;
    const encrypted = this.#queuePairs.get(`${destination} ${target}`);
    const end = packet.length - ICRC_BYTES - TRAILER_BYTES;
    if (encrypted === undefined || end < BTH_BYTES) return undefined;
    const view = new DataView(packet.buffer, packet.byteOffset, packet.length);
    const counter = view.getBigUint64(end, true);
    const bare = new Uint8Array(end + ICRC_BYTES);
    bare.set(packet.subarray(0, end));
    bare.set(packet.subarray(packet.length - ICRC_BYTES), end);
    return {
      packet: bare,
      generation: Number(counter >> NUMBER_BITS),
      number: Number(BigInt.asUintN(Number(NUMBER_BITS), counter)),
      encrypted,
    };
  }

  #learn(datagram: Uint8Array, source: string, destination: string): void {
    if (datagram.length <= MAD_BYTES) return;
    const message = parseMad(datagram.subarray(0, MAD_BYTES));
    if (typeof message === 'string') return;
    if (message.name === 'REQ') {
      const encrypted = claimOf(datagram)?.encrypts ?? false;
      remember(this.#asked, `${source} ${message.localCommId}`, encrypted);
      remember(this.#queuePairs, `${source} ${message.localQpn}`, encrypted);
    }
    if (message.name === 'REP') {
      const encrypted = this.#asked.get(`${destination} ${message.remoteCommId}`);
      if (encrypted === undefined) return;
      remember(this.#queuePairs, `${source} ${message.localQpn}`, encrypted);
    }
  }
}

function remember(table: Map<string, boolean>, key: string, encrypted: boolean): void {
  if (table.size < QUEUE_PAIRS_MAX) table.set(key, encrypted);
}
