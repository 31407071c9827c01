/**
 * An attacker on the path between authenticated queue pairs: it has seen every packet, replays old
 * ones and changes others, with right ICRCs and addresses. No packet of the attacker has an effect.
 */
import type { Endpoint } from '../../host/index.js';
import { zlibIcrc, type Flow } from '../support/codec.js';
import type { SimulationOptions } from './options.js';
import type { Random } from './random.js';

/** Packets of one path that it remembers. */
const MEMORY = 128;
/** Bytes of the BTH that choose partition, congestion and queue pair: changed, it is another's. */
const [PKEY, BEHIND_QPN] = [2, 8];
const RC_LAST = 0x20;
const ICRC = 4;
const ROCE_PORT = 4791;

export class Attacker {
  readonly #options: SimulationOptions;
  readonly #random: Random;
  readonly #flow: Flow;
  readonly #seen: Uint8Array[] = [];
  #count = 0;

  constructor(options: SimulationOptions, random: Random, from: Endpoint, to: Endpoint) {
    this.#options = options;
    this.#random = random;
    const isIpv4 = options.pseudoHeader === 'ipv4';
    const hasPorts = options.pseudoHeader !== 'none';
    this.#flow = {
      ipVersion: isIpv4 ? 4 : 6,
      source: from.gid.bytes.subarray(isIpv4 ? 12 : 0),
      destination: to.gid.bytes.subarray(isIpv4 ? 12 : 0),
      sourcePort: hasPorts ? from.port : ROCE_PORT,
      destinationPort: hasPorts ? to.port : ROCE_PORT,
      ipId: 0,
    };
  }

  /** A packet was sent; undefined: it injects nothing now. */
  inject(bytes: Uint8Array): Uint8Array | undefined {
    const { attacks, authenticated } = this.#options;
    // Unreliable traffic has no keys here.
    if (attacks === 0 || authenticated === 'none' || bytes[0]! >= RC_LAST) return undefined;
    this.#seen[this.#count++ % MEMORY] = Uint8Array.from(bytes);
    if (!this.#random.chance(attacks)) return undefined;
    const packet = Uint8Array.from(this.#random.pick(this.#seen));
    return this.#random.chance(0.5) ? packet : this.#forge(packet);
  }

  /** Changes bytes, or drops the tag, or lengthens the packet; the ICRC is right again. */
  #forge(packet: Uint8Array): Uint8Array {
    const kind = this.#random.below(8);
    let forged = packet;
    if (kind === 0) forged = Uint8Array.from(packet.subarray(0, Math.max(packet.length - 24, 20)));
    else if (kind === 1) forged = Uint8Array.from([...packet, 0, 0, 0, 0]);
    else {
      for (let changes = this.#random.between(1, 3); changes > 0; changes--) {
        const at = this.#random.below(packet.length - ICRC);
        if (at < PKEY || at >= BEHIND_QPN) forged[at]! ^= 1 << this.#random.below(8);
      }
    }
    const view = new DataView(forged.buffer);
    view.setUint32(forged.length - ICRC, zlibIcrc(this.#flow, forged), true);
    return forged;
  }
}
