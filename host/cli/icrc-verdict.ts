/**
 * Judges the ICRC of captured packets with the engine's own code: a small context that never sees a
 * link. A capture shows the IP header, so nothing has to be assumed about it.
 */
import { ArenaMemory } from '../engine/arena.js';
import { PACKET_SIZE_LIMIT } from '../link/link.js';
import type { CapturedPacket } from '../link/pcap.js';

/**
 * - `exact`: right, with IP identification 0.
 * - `by IP id`: right, computed over the identification that the packet has.
 * - `FLUSH doubled`: Linux rxe's form for FLUSH, which covers the packet twice.
 * - `wrong`: something changed on the way, or the sender computes something else.
 * - `unchecked`: no packet has such a length.
 */
export type IcrcVerdict = 'exact' | 'by IP id' | 'FLUSH doubled' | 'wrong' | 'unchecked';

const MEMORY_BYTES = 2 * 2 ** 20;
const ICRC_BYTES = 4;
/** BTH and ICRC. */
const PACKET_BYTES_MIN = 16;
const ADDRESS_BYTES = 16;

export class IcrcJudge {
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

  judge(packet: CapturedPacket): IcrcVerdict {
    const { payload, source, destination, ipVersion, ipId } = packet;
    const { length } = payload;
    if (length < PACKET_BYTES_MIN || length > PACKET_SIZE_LIMIT || length % 4 !== 0) {
      return 'unchecked';
    }
    const { exports, memory } = this.#arena;
    const from = this.#scratch;
    const to = from + ADDRESS_BYTES;
    const at = to + ADDRESS_BYTES;
    const start = ipVersion === 4 ? 12 : 0;
    memory.bytes.set(source.gid.bytes.subarray(start), from);
    memory.bytes.set(destination.gid.bytes.subarray(start), to);
    memory.bytes.set(payload, at);
    const onWire = memory.view.getUint32(at + length - ICRC_BYTES, true);
    const context = this.#context;
    const { port: fromPort } = source;
    const { port: toPort } = destination;
    const computed = exports.icrc(context, ipVersion, from, to, fromPort, toPort, at, length) >>> 0;
    if (computed === onWire) return 'exact';
    // The difference that the identification of the packet makes, and no other, is a right ICRC.
    const explained = (value: number, coveredLength: number): boolean =>
      ipVersion === 4 &&
      ipId !== 0 &&
      exports.ipIdOf(context, (value ^ onWire) >>> 0, coveredLength) === ipId;
    if (explained(computed, length)) return 'by IP id';
    const doubled =
      exports.icrcDoubled(context, ipVersion, from, to, fromPort, toPort, at, length) >>> 0;
    const isDoubled = doubled === onWire || explained(doubled, 2 * length - ICRC_BYTES);
    return isDoubled ? 'FLUSH doubled' : 'wrong';
  }
}
