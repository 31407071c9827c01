/**
 * A controller: what a host's admin queue talks to (Base 1.4 sections 3 and 5, Fabrics 1.1 section
 * 3). It knows properties, features and events; `admin.ts` answers commands with it.
 */
import type { CancelTimer, Clock } from '../device/clock.js';
import {
  DISCOVERY_NQN,
  DO_NOT_RETRY,
  NVME_VERSION,
  NvmeProperty,
  NvmeStatus,
} from './constants.js';
import type { CommandOf } from './command.js';
import type { Answer, NvmeRequest, TargetQueue } from './target-queue.js';

/** Events that may be pending (AERL and one). */
export const ASYNC_EVENTS_MAX = 4;
/** Of a timeout that a host asks for, a few more until it is over. */
const KEEP_ALIVE_GRACE = 2;
const CC_ENABLE = 1;
const CC_SHUTDOWN = 0xc000;
/** Entries of 2^6 and 2^4 bytes. */
const CC_ENTRY_SIZES = 0x0046_0000;
const CC_ENTRY_MASK = 0x00ff_0000;
const CSTS_READY = 1;
const CSTS_FATAL = 2;
const CSTS_SHUTDOWN_COMPLETE = 8;
/** CAP: commands sets (NVM), half a second units until ready, contiguous queues. */
const CAP_NVM = 1n << 37n;
const CAP_CONTIGUOUS = 1n << 16n;
const CAP_TIMEOUT = 15n << 24n;

export interface HostIdentity {
  readonly hostNqn: string;
  readonly hostId: Uint8Array;
}

export interface ControllerOptions extends HostIdentity {
  readonly cntlid: number;
  readonly subNqn: string;
  readonly katoMillis: number;
  /** Entries of a queue at most. */
  readonly entriesMax: number;
  readonly ioQueuesMax: number;
  readonly clock: Clock;
}

/** Type, information and log page of an asynchronous event (Base 1.4 section 5.2). */
export interface AsyncEvent {
  readonly type: number;
  readonly info: number;
  readonly log: number;
}

export class Controller implements HostIdentity {
  readonly cntlid: number;
  readonly subNqn: string;
  readonly hostNqn: string;
  readonly hostId: Uint8Array;
  readonly entriesMax: number;
  readonly ioQueuesMax: number;
  /** By number; 0 is the admin queue. */
  readonly queues = new Map<number, TargetQueue>();
  /** Called when it is to end, with why. */
  onFatal: (reason: string) => void = () => {};
  asyncEventConfig = 0;
  ioQueuesGranted = 0;
  katoMillis: number;
  readonly #clock: Clock;
  #cc = 0;
  #csts = 0;
  readonly #eventRequests: NvmeRequest[] = [];
  readonly #events: AsyncEvent[] = [];
  /** Reported, and not read from its log page since. */
  readonly #masked = new Set<number>();
  #heardMicros: number;
  #cancelTimer: CancelTimer = () => {};

  constructor(options: ControllerOptions) {
    const { cntlid, subNqn, hostNqn, hostId, katoMillis, entriesMax, ioQueuesMax, clock } = options;
    this.cntlid = cntlid;
    this.subNqn = subNqn;
    this.hostNqn = hostNqn;
    this.hostId = hostId;
    this.entriesMax = entriesMax;
    this.ioQueuesMax = ioQueuesMax;
    this.katoMillis = katoMillis;
    this.#clock = clock;
    this.#heardMicros = clock.now();
    this.watch();
  }

  get isDiscovery(): boolean {
    return this.subNqn === DISCOVERY_NQN;
  }

  get isEnabled(): boolean {
    return (this.#cc & CC_ENABLE) !== 0 && (this.#csts & CSTS_READY) !== 0;
  }

  /** The host is alive: any command says so (traffic based keep alive). */
  heard(): void {
    this.#heardMicros = this.#clock.now();
  }

  /** Starts to count the keep alive timeout anew. */
  watch(): void {
    this.#cancelTimer();
    if (this.katoMillis === 0) return;
    const due = this.#heardMicros + this.katoMillis * 1000 * KEEP_ALIVE_GRACE;
    this.#cancelTimer = this.#clock.at(due, () => {
      const silence = this.#clock.now() - this.#heardMicros;
      if (silence < this.katoMillis * 1000 * KEEP_ALIVE_GRACE) this.watch();
      else this.onFatal(`the host was silent for ${Math.round(silence / 1000)} ms`);
    });
  }

  propertyGet({ attrib, ofst }: CommandOf<'PROPERTY_GET'>): Answer {
    const isWide = (attrib & 7) === 1;
    switch (ofst) {
      case NvmeProperty.CAP:
        return isWide ? { result: this.#capabilities } : invalidField();
      case NvmeProperty.VS:
        return isWide ? invalidField() : { result: BigInt(NVME_VERSION) };
      case NvmeProperty.CC:
        return isWide ? invalidField() : { result: BigInt(this.#cc) };
      case NvmeProperty.CSTS:
        return isWide ? invalidField() : { result: BigInt(this.#csts) };
      default:
        return invalidField();
    }
  }

  /** `disable`: its I/O queues have to go. */
  propertySet(command: CommandOf<'PROPERTY_SET'>): Answer & { readonly disables?: boolean } {
    const { attrib, ofst, value } = command;
    if (ofst !== NvmeProperty.CC || (attrib & 7) !== 0) return invalidField();
    const before = this.#cc;
    this.#cc = Number(value & 0xffff_ffffn);
    const isEnabled = (this.#cc & CC_ENABLE) !== 0;
    const wasEnabled = (before & CC_ENABLE) !== 0;
    if (isEnabled && !wasEnabled) {
      const sizes = this.#cc & CC_ENTRY_MASK;
      const canServe = this.isDiscovery || sizes === CC_ENTRY_SIZES;
      this.#csts = canServe ? CSTS_READY : CSTS_FATAL;
    }
    const disables = wasEnabled && !isEnabled;
    if (disables) this.#csts = 0;
    if ((this.#cc & CC_SHUTDOWN) !== 0) this.#csts |= CSTS_SHUTDOWN_COMPLETE;
    return { disables };
  }

  /** ASYNC_EVENT_REQUEST: is answered when something happens. */
  awaitEvent(request: NvmeRequest): Answer | undefined {
    if (this.#eventRequests.length >= ASYNC_EVENTS_MAX) {
      return { status: NvmeStatus.ASYNC_EVENT_LIMIT | DO_NOT_RETRY };
    }
    this.#eventRequests.push(request);
    this.#tell();
    return undefined;
  }

  /** ABORT of one that waits for an event. */
  abortEventRequest(request: NvmeRequest): boolean {
    const index = this.#eventRequests.indexOf(request);
    if (index < 0) return false;
    this.#eventRequests.splice(index, 1);
    return true;
  }

  /** Reports an event. The same kind is reported again after the host has read the log page. */
  raise(event: AsyncEvent): void {
    const kind = event.type * 256 + event.log;
    if (this.#masked.has(kind) || this.#events.length >= ASYNC_EVENTS_MAX) return;
    this.#masked.add(kind);
    this.#events.push(event);
    this.#tell();
  }

  /** The host has read that page, and did not ask to retain the event. */
  logWasRead(log: number): void {
    for (const kind of this.#masked) if ((kind & 255) === log) this.#masked.delete(kind);
  }

  /** All its queues end. */
  close(reason: string): void {
    this.#cancelTimer();
    this.#eventRequests.splice(0);
    for (const queue of [...this.queues.values()].reverse()) queue.close(reason);
  }

  get #capabilities(): bigint {
    return BigInt(this.entriesMax - 1) | CAP_CONTIGUOUS | CAP_TIMEOUT | CAP_NVM;
  }

  #tell(): void {
    while (this.#events.length > 0 && this.#eventRequests.length > 0) {
      const { type, info, log } = this.#events.shift()!;
      const request = this.#eventRequests.shift()!;
      request.queue.answer(request, { result: BigInt(type | (info << 8) | (log << 16)) });
    }
  }
}

export function invalidField(): Answer {
  return { status: NvmeStatus.INVALID_FIELD | DO_NOT_RETRY };
}
