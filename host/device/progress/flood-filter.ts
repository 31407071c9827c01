/**
 * Detects a flood of datagrams that the engine drops, and lets the kernel drop them. The filter has
 * the addresses of all connected queue pairs. A queue pair that is connected later removes it
 * (`ControlBlock.notePeer`), and the next look attaches one that has the new address. Each
 * FILTERED_MICROS the filter is removed to see whether the flood goes on. Counters of drops stand
 * still meanwhile.
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
import type { ControlBlock } from '../../engine/control-block.js';
import type { EngineMemory } from '../../engine/memory.js';
import { structAt } from '../../engine/struct.js';
import { Gid } from '../../link/endpoint.js';
import { FILTERED_PEERS_MAX } from '../../link/udp/source-filter.js';

/** Dropped packets a second that are a flood: they cost 5 % of a processor. */
const FLOOD_PER_SECOND = 20_000;
const LOOK_MICROS = 10_000;
const FILTERED_MICROS = 5_000_000;
/** Of the time, at most, for the search for peers: there may be 32,768 queue pairs. */
const SEARCH_SHARE = 0.02;
const GID_BYTES = 16;

export class FloodFilter {
  readonly #memory: EngineMemory;
  readonly #context: number;
  readonly #control: ControlBlock;
  readonly #setPeers: (peers: readonly Gid[] | undefined) => void;
  #lookedMicros = 0;
  #dropped: number;
  /** When the flood was noticed; 0: no flood. */
  #sinceMicros = 0;
  /** When peers are searched again at the earliest. */
  #searchMicros = 0;

  /** `context`: address of the engine's context; `setPeers`: `setSourceFilter` of its link. */
  constructor(
    memory: EngineMemory,
    context: number,
    control: ControlBlock,
    setPeers: (peers: readonly Gid[] | undefined) => void,
  ) {
    this.#memory = memory;
    this.#context = context;
    this.#control = control;
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
    if (this.#sinceMicros === 0) {
      if (!isFlood) return;
      this.#sinceMicros = now;
    }
    if (now - this.#sinceMicros >= FILTERED_MICROS) {
      this.#control.setFiltered(false, () => this.#setPeers(undefined));
      this.#sinceMicros = 0;
    } else if (!this.#control.isFiltered && now >= this.#searchMicros) {
      this.#attach(now);
    }
  }

  #attach(now: number): void {
    const { peers } = this.#control;
    const began = performance.now();
    const found = this.#findPeers();
    const tookMicros = (performance.now() - began) * 1000;
    this.#searchMicros = now + tookMicros / SEARCH_SHARE;
    if (!found) return;
    try {
      this.#control.setFiltered(true, () => this.#setPeers(found), peers);
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
  #findPeers(): readonly Gid[] | undefined {
    const { words, bytes } = this.#memory;
    const { queuePairs, queuePairsMax } = structAt(this.#memory, ContextLayout, this.#context);
    const [qpn, type, state] = (['qpn', 'type', 'state'] as const).map(
      (field) => QueuePairLayout.fields[field][0] >>> 2,
    ) as [number, number, number];
    const remote = (QUEUE_PAIR_PATH + PathLayout.fields.remoteGid0[0]) >>> 2;
    const peers = new Map<string, Gid>();
    for (let index = 0; index < queuePairsMax; index++) {
      const at = (queuePairs + index * QUEUE_PAIR_SIZE) >>> 2;
      if (words[at + qpn] === 0 || words[at + qpn] === GENERAL_SERVICES_QPN) continue;
      if (words[at + state]! < QpState.RTR) continue;
      if (words[at + type] === QpType.UD) return undefined;
      const gid = at + remote;
      const key = `${words[gid]},${words[gid + 1]},${words[gid + 2]},${words[gid + 3]}`;
      if (peers.has(key)) continue;
      if (peers.size === FILTERED_PEERS_MAX) return undefined;
      peers.set(key, new Gid(bytes.slice(4 * gid, 4 * gid + GID_BYTES)));
    }
    return [...peers.values()];
  }
}
