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

/** Such packets a second are a flood: they cost 5 % of a processor. */
const FLOOD_PER_SECOND = 20_000;
/**
 * From this number of dropped packets a second on it is looked whether others found a full socket.
 * On a busy machine the engine takes in a part of a flood only.
 */
export const FLOOD_NOTICED_PER_SECOND = 2_000;
export const FLOOD_LOOK_MICROS = 10_000;
const FILTERED_MICROS = 5_000_000;
/** Of the time, at most, for the search for peers: there may be 32,768 queue pairs. */
const SEARCH_SHARE = 0.02;
const GID_BYTES = 16;

/** A link whose kernel filters. */
export interface FilteredLink {
  /** Datagrams that found a full receive buffer, or were filtered: a counter of 32 bits. */
  readonly overflows: number;
  /** As of UdpBatchLink. */
  setSourceFilter(peers: readonly Gid[] | undefined): void;
}

export class FloodFilter {
  readonly #memory: EngineMemory;
  readonly #context: number;
  readonly #control: ControlBlock;
  readonly #link: FilteredLink;
  #lookedMicros = 0;
  #dropped: number;
  #received: number;
  /** As of the last look, if packets were dropped then; else undefined. */
  #overflows: number | undefined;
  /** When the flood was noticed; 0: no flood. */
  #sinceMicros = 0;
  /** When peers are searched again at the earliest. */
  #searchMicros = 0;

  /** `context`: address of the engine's context. */
  constructor(memory: EngineMemory, context: number, control: ControlBlock, link: FilteredLink) {
    this.#memory = memory;
    this.#context = context;
    this.#control = control;
    this.#link = link;
    this.#dropped = this.#countDropped();
    this.#received = this.#countReceived();
  }

  /** To be called at the latest after this time, in microseconds. */
  get sleepMicros(): number {
    return this.#sinceMicros === 0 ? Infinity : FLOOD_LOOK_MICROS;
  }

  look(now: number): void {
    const micros = now - this.#lookedMicros;
    if (micros < FLOOD_LOOK_MICROS) return;
    this.#lookedMicros = now;
    const isFlood = this.#perSecond(micros) >= FLOOD_PER_SECOND;
    if (this.#sinceMicros === 0) {
      if (!isFlood) return;
      this.#sinceMicros = now;
    }
    if (now - this.#sinceMicros >= FILTERED_MICROS) {
      this.#control.setFiltered(false, () => this.#link.setSourceFilter(undefined));
      this.#sinceMicros = 0;
    } else if (!this.#control.isFiltered && now >= this.#searchMicros) {
      this.#attach(now);
    }
  }

  /** Packets since the last look that are dropped, or would be if the engine took them in. */
  #perSecond(micros: number): number {
    const seconds = micros / 1e6;
    const [dropped, received] = [this.#countDropped(), this.#countReceived()];
    const [drops, taken] = [dropped - this.#dropped, received - this.#received];
    [this.#dropped, this.#received] = [dropped, received];
    const before = this.#overflows;
    const isNoticed = drops >= FLOOD_NOTICED_PER_SECOND * seconds;
    const overflows = isNoticed ? this.#link.overflows : undefined;
    this.#overflows = overflows;
    if (overflows === undefined || before === undefined) return drops / seconds;
    const lost = (overflows - before) >>> 0;
    return (drops * (1 + lost / Math.max(taken, 1))) / seconds;
  }

  #attach(now: number): void {
    const { peers } = this.#control;
    const began = performance.now();
    const found = this.#findPeers();
    const tookMicros = (performance.now() - began) * 1000;
    this.#searchMicros = now + tookMicros / SEARCH_SHARE;
    if (!found) return;
    try {
      this.#control.setFiltered(true, () => this.#link.setSourceFilter(found), peers);
    } catch {
      // A kernel or a sandbox refuses filters: the engine goes on dropping, and no look follows.
      this.#sinceMicros = 0;
      this.#lookedMicros = Infinity;
    }
  }

  get #counters() {
    const { counters } = structAt(this.#memory, ContextLayout, this.#context);
    return structAt(this.#memory, CountersLayout, counters);
  }

  #countReceived(): number {
    return Number(this.#counters.rcvdPkts);
  }

  /** Packets that have no queue pair, or not one of their source; those of no form as well. */
  #countDropped(): number {
    const { dropMalformed, dropUnknownOpcode, dropQueuePair, dropService, dropSource } =
      this.#counters;
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
