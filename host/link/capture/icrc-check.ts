/**
 * Checks the ICRC of captured packets with the engine's own code, in a small context without a
 * link. A capture contains the IP header. A socket hides the IP identification, so it is derived
 * from the ICRC.
 */
import { Opcode } from '#build/abi.js';
import { ArenaMemory } from '../../engine/arena.js';
import { PACKET_SIZE_LIMIT } from '../link.js';
import type { Datagram } from './ip-headers.js';

/**
 * - `exact`: correct, with IP identification 0.
 * - `by IP id`: correct, computed over the identification in the packet.
 * - `FLUSH doubled`: Linux rxe's form for FLUSH, which covers the packet twice.
 * - `omitted`: 0, as between Verbena peers of one host (`skipIcrc`); nothing was checked.
 * - `wrong`: the packet was corrupted, or the sender computes a different ICRC.
 * - `unchecked`: the length is invalid for a packet.
 */
export type IcrcVerdict =
  'exact' | 'by IP id' | 'FLUSH doubled' | 'omitted' | 'wrong' | 'unchecked';

/** Verdicts as a line of text has them. */
export const VERDICT_WORDS: Readonly<Record<IcrcVerdict, string>> = {
  exact: 'ICRC ok',
  'by IP id': 'ICRC ok (by IP id)',
  'FLUSH doubled': "ICRC ok (rxe's FLUSH form)",
  omitted: 'ICRC omitted (0)',
  wrong: 'ICRC WRONG',
  unchecked: 'ICRC not checked',
};

/** Input of an ICRC, without the identification. */
type Covered = Omit<Datagram, 'ipId'>;

const MEMORY_BYTES = 2 * 2 ** 20;
const ICRC_BYTES = 4;
/** Bytes of BTH and ICRC: the shortest packet. */
const PACKET_BYTES_MIN = 16;
const ADDRESS_BYTES = 16;

export class IcrcCheck {
  readonly #arena: ArenaMemory;
  readonly #context: number;
  /** Source address, destination address, packet. */
  readonly #scratch: number;

  constructor() {
    this.#arena = ArenaMemory.create({
      memoryBytes: MEMORY_BYTES,
      shared: false,
      regionsMax: 1,
      protectionDomainsMax: 1,
      contextsMax: 1,
    });
    const fill = (config: Parameters<Parameters<ArenaMemory['createContext']>[1]>[0]): void => {
      config.queuePairsMax = 1;
      config.completionQueuesMax = 1;
      config.rdAtomicMax = 1;
      config.sendBuffers = 1;
      config.receivePackets = 1;
      config.receiveBytes = PACKET_SIZE_LIMIT;
      config.eventsMax = 1;
      config.packetSizeMax = PACKET_SIZE_LIMIT;
    };
    this.#context = this.#arena.createContext(0, fill, 0);
    this.#scratch = this.#arena.heap.alloc(2 * ADDRESS_BYTES + PACKET_SIZE_LIMIT);
  }

  judge(packet: Datagram): IcrcVerdict {
    if (!isChecked(packet)) return 'unchecked';
    const difference = this.#differenceOf(packet, false);
    if (difference === 0) return 'exact';
    const { ipId } = packet;
    // Correct only if the difference is the one that the packet's identification causes.
    if (ipId !== 0 && this.#solve(packet, difference, false) === ipId) return 'by IP id';
    const doubled = this.#differenceOf(packet, true);
    const isDoubled = doubled === 0 || (ipId !== 0 && this.#solve(packet, doubled, true) === ipId);
    if (isDoubled) return 'FLUSH doubled';
    return packet.payload.subarray(-ICRC_BYTES).some((byte) => byte !== 0) ? 'wrong' : 'omitted';
  }

  /**
   * The IPv4 identification that the ICRC was computed over; 0 also if no identification explains
   * the ICRC, or the packet is IPv6.
   */
  identificationOf(packet: Covered): number {
    if (packet.ipVersion !== 4 || !isChecked(packet)) return 0;
    for (const isDoubled of [false, true]) {
      // Only Linux rxe uses the doubled form, for FLUSH.
      if (isDoubled && packet.payload[0] !== Opcode.RC_FLUSH) break;
      const difference = this.#differenceOf(packet, isDoubled);
      if (difference === 0) return 0;
      const id = this.#solve(packet, difference, isDoubled);
      if (id > 0) return id;
    }
    return 0;
  }

  /** XOR of the packet's ICRC and the one computed for identification 0, standard or rxe form. */
  #differenceOf({ payload, source, destination, ipVersion }: Covered, isDoubled: boolean): number {
    const { exports, memory } = this.#arena;
    const { length } = payload;
    const from = this.#scratch;
    const to = from + ADDRESS_BYTES;
    const at = to + ADDRESS_BYTES;
    const start = ipVersion === 4 ? 12 : 0;
    memory.bytes.set(source.gid.bytes.subarray(start), from);
    memory.bytes.set(destination.gid.bytes.subarray(start), to);
    memory.bytes.set(payload, at);
    const stated = memory.view.getUint32(at + length - ICRC_BYTES, true);
    const compute = isDoubled ? exports.icrcDoubled : exports.icrc;
    const ports = [source.port, destination.port] as const;
    return (compute(this.#context, ipVersion, from, to, ...ports, at, length) ^ stated) >>> 0;
  }

  /** The identification that causes this difference; -1: no identification does. */
  #solve(
    { payload: { length }, ipVersion }: Covered,
    difference: number,
    isDoubled: boolean,
  ): number {
    if (ipVersion !== 4) return -1;
    const covered = isDoubled ? 2 * length - ICRC_BYTES : length;
    return this.#arena.exports.ipIdOf(this.#context, difference, covered);
  }
}

function isChecked({ payload: { length } }: Covered): boolean {
  return length >= PACKET_BYTES_MIN && length <= PACKET_SIZE_LIMIT && length % 4 === 0;
}
