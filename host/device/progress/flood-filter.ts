/**
 * Detects a flood of datagrams that the engine drops, and lets the kernel drop them. The filter has
 * the addresses of all connected queue pairs; a queue pair that is connected later may lose packets
 * for LOOK_MICROS, until it is looked for again. Every FILTERED_MICROS the filter is removed to see
 * whether the flood goes on. Counters of dropped packets stand still meanwhile.
 */
import {
  ContextLayout,
  CountersLayout,
  GENERAL_SERVICES_QPN,
  PathLayout,
  QUEUE_PAIR_PATH,
  QUEUE_PAIR_SIZE,
  QpState,
  QpType,
  QueuePairLayout,
} from '#build/abi.js';
import type { EngineMemory } from '../../engine/memory.js';
import { structAt } from '../../engine/struct.js';
import { Gid } from '../../link/endpoint.js';
import { FILTERED_PEERS_MAX } from '../../link/udp/source-filter.js';

/** Dropped packets a second that are a flood: they cost 5 % of a processor. */
const FLOOD_PER_SECOND = 20_000;
const LOOK_MICROS = 10_000;
const FILTERED_MICROS = 5_000_000;
const GID_BYTES = 16;

export class FloodFilter {
  readonly #memory: EngineMemory;
  readonly #context: number;
  readonly #setPeers: (peers: readonly Gid[] | undefined) => void;
  #lookedMicros = 0;
  #dropped: number;
  /** When the kernel began to drop; 0: it drops nothing. */
  #sinceMicros = 0;
  /** Of the filter, to see whether others are connected. */
  #key = '';

  /** `context`: address of the engine's context; `setPeers`: `setSourceFilter` of its link. */
  constructor(
    memory: EngineMemory,
    context: number,
    setPeers: (peers: readonly Gid[] | undefined) => void,
  ) {
    this.#memory = memory;
    this.#context = context;
    this.#setPeers = setPeers;
    this.#dropped = this.#countDropped();
  }

  /** To be called at the latest after this time, in microseconds. */
  get sleepMicros(): number {
    return this.#sinceMicros === 0 ? Infinity : LOOK_MICROS;
  }

  look(now: number): void {
    const micros = now - this.#lookedMicros;
    if (micros < LOOK_MICROS) return;
    this.#lookedMicros = now;
    const dropped = this.#countDropped();
    const isFlood = dropped - this.#dropped >= (FLOOD_PER_SECOND * micros) / 1e6;
    this.#dropped = dropped;
    if (this.#sinceMicros === 0 && !isFlood) return;
    const isOver = this.#sinceMicros !== 0 && now - this.#sinceMicros >= FILTERED_MICROS;
    const peers = isOver ? undefined : this.#findPeers();
    if (!peers) {
      if (this.#sinceMicros !== 0) this.#setPeers(undefined);
      this.#sinceMicros = 0;
      this.#key = '';
      return;
    }
    if (this.#sinceMicros === 0) this.#sinceMicros = now;
    const key = [...peers.keys()].join();
    if (key === this.#key) return;
    this.#key = key;
    try {
      this.#setPeers([...peers.values()]);
    } catch {
      // A kernel or a sandbox refuses filters: the engine goes on dropping, and no look follows.
      this.#sinceMicros = 0;
      this.#lookedMicros = Infinity;
    }
  }

  /** Packets that have no queue pair, or not one of their source; those of no form as well. */
  #countDropped(): number {
    const { counters: at } = structAt(this.#memory, ContextLayout, this.#context);
    const counters = structAt(this.#memory, CountersLayout, at);
    const { dropMalformed, dropUnknownOpcode, dropQueuePair, dropService, dropSource } = counters;
    return Number(dropMalformed + dropUnknownOpcode + dropQueuePair + dropService + dropSource);
  }

  /** Addresses of connected queue pairs; undefined: they are too many, or any source may send. */
  #findPeers(): Map<string, Gid> | undefined {
    const memory = this.#memory;
    const { queuePairs, queuePairsMax } = structAt(memory, ContextLayout, this.#context);
    const peers = new Map<string, Gid>();
    for (let index = 0; index < queuePairsMax; index++) {
      const at = queuePairs + index * QUEUE_PAIR_SIZE;
      const word = (field: 'qpn' | 'type' | 'state') =>
        memory.words[(at + QueuePairLayout.fields[field][0]) >> 2]!;
      const qpn = word('qpn');
      if (qpn === 0 || qpn === GENERAL_SERVICES_QPN || word('state') < QpState.RTR) continue;
      if (word('type') === QpType.UD) return undefined;
      const remote = at + QUEUE_PAIR_PATH + PathLayout.fields.remoteGid0[0];
      const gid = new Gid(memory.bytes.slice(remote, remote + GID_BYTES));
      peers.set(gid.toString(), gid);
      if (peers.size > FILTERED_PEERS_MAX) return undefined;
    }
    return peers;
  }
}
