/**
 * Messages from one context to another on a machine, while the source gives up, either side dies
 * and a survivor reclaims its slot. The invariants: a message is executed at most once and in
 * order; the source completes what the target executed, and sends all else by packets.
 */
import { LOCAL_MESSAGE_SIZE, LOCAL_VALUE_SIZE, LocalMessageState } from '#build/abi.js';
import type { Protocol } from './build.js';
import { CHANNEL_PRIVATE_BYTES } from './channel-sources.js';
import type { Explored } from './explore.js';
import { ARENA, Machine, SUSPENDED, WordClass, type Call } from './machine.js';
import { Violation } from './violation.js';
import { Status } from './world.js';

export interface ChannelOperation {
  readonly kind:
    'postAll' | 'postOne' | 'postReceive' | 'serve' | 'expire' | 'abandon' | 'closeSlot';
  /** Repeats until no message waits for an answer. */
  readonly until?: boolean;
  /** closeSlot: the thread that is dead. */
  readonly victim?: number;
}

export interface ChannelScenario {
  readonly name: string;
  /** Messages that the source posts, and receive requests of the target. */
  readonly requests: number;
  readonly receives: number;
  /** The source (slot 0), the target (slot 1), and the survivor that reclaims a slot. */
  readonly threads: readonly {
    readonly name: string;
    readonly program: readonly ChannelOperation[];
  }[];
}

const PC = 0;
const STATUS = 1;
const SITE = 2;
const ADDRESS = 3;
/** `abandon` has ended: messages that were executed then, plus 1. */
const ABANDONED = 4;
const THREAD_WORDS = 5;
const SOURCE = 0;
const TARGET = 1;
const ENTRIES = 2;
const CONTEXTS = 2;
const HEADER_BYTES = 128;
const BITS_BYTES = 64;
const QPNS = [5, 0x10006] as const;
const CONFIG = {
  regionsMax: 1,
  protectionDomainsMax: 1,
  contextsMax: CONTEXTS,
  localMessagesMax: ENTRIES,
  stackBytes: 768,
};

export class ChannelWorld implements Explored {
  readonly scenario: ChannelScenario;
  readonly machine: Machine;
  readonly threads: number;
  readonly judgesDeaths = true;
  waited = false;
  readonly #ghosts: Int32Array;
  readonly #private: number;
  readonly #channel: number;

  constructor(protocol: Protocol, scenario: ChannelScenario) {
    this.scenario = scenario;
    this.threads = scenario.threads.length;
    const words = (this.threads * THREAD_WORDS + 1) & ~1;
    const ghosts = words + (CONTEXTS * CHANNEL_PRIVATE_BYTES) / 4;
    this.machine = new Machine(protocol, CONFIG, this.threads, ghosts, false);
    this.#ghosts = this.machine.ghosts;
    this.#private = this.machine.ghostsAddress + words * 4;
    const { machine } = this;
    const channels = machine.arena('localChannels');
    const stride = HEADER_BYTES + ENTRIES * (LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE);
    const inbox = BITS_BYTES + CONTEXTS * stride;
    const word = { size: 4, fields: { word: [0, 'u32'] } } as const;
    machine.nameTable(channels, (CONTEXTS * inbox) / 4, word, 'channel', WordClass.ATOMIC);
    this.#channel = channels + inbox + BITS_BYTES;
    const { requests, receives } = scenario;
    for (const slot of [SOURCE, TARGET]) {
      const counts = slot === SOURCE ? [requests, 0] : [0, receives];
      const numbers = [QPNS[slot]!, QPNS[1 - slot]!];
      const fits = machine.call(
        'makeChannelEnd',
        ARENA,
        slot,
        this.#own(slot),
        ...numbers,
        ...counts,
      );
      if (fits !== 1) throw new Error('channel-sources: structs overlap');
    }
    for (let thread = 0; thread < this.threads; thread++) this.#settle(thread);
  }

  status(thread: number): number {
    return this.#ghosts[thread * THREAD_WORDS + STATUS]!;
  }

  runs(thread: number): boolean {
    if (this.status(thread) > Status.SUSPENDED) return false;
    const { victim } = this.operation(thread)!;
    return victim === undefined || this.status(victim) === Status.KILLED;
  }

  kills(): number {
    let count = 0;
    for (let thread = 0; thread < this.threads; thread++) {
      if (this.status(thread) === Status.KILLED) count++;
    }
    return count;
  }

  /** Only a thread whose slot a survivor reclaims. */
  mortal(thread: number): boolean {
    return this.scenario.threads.some(({ program }) =>
      program.some(({ victim }) => victim === thread),
    );
  }

  operation(thread: number): ChannelOperation | undefined {
    return this.scenario.threads[thread]!.program[this.#ghosts[thread * THREAD_WORDS + PC]!];
  }

  label(thread: number): string {
    const operation = this.operation(thread);
    if (!operation) return 'at its end';
    if (this.status(thread) === Status.READY) return `${operation.kind}: begins`;
    const base = thread * THREAD_WORDS;
    const site = this.machine.sites[this.#ghosts[base + SITE]!]!;
    const word = (this.#ghosts[base + ADDRESS]! - ARENA) >> 2;
    return `${operation.kind}: ${site.function} ${site.kind} ${this.machine.names[word]} ${word}`;
  }

  kill(thread: number): number {
    const base = thread * THREAD_WORDS;
    this.#ghosts.fill(0, base, base + THREAD_WORDS);
    this.#ghosts[base + STATUS] = Status.KILLED;
    this.machine.clearStack(thread);
    return 0;
  }

  remains(): string[] {
    return [];
  }

  step(thread: number): void {
    const base = thread * THREAD_WORDS;
    const operation = this.operation(thread)!;
    const isReady = this.status(thread) === Status.READY;
    const name: Call = operation.kind;
    const args =
      operation.victim === undefined ? [ARENA, this.#own(thread)] : [ARENA, 0, operation.victim];
    const result = isReady
      ? this.machine.start(thread, name, args)
      : this.machine.resume(thread, name, args);
    this.waited = false;
    if (result === SUSPENDED) {
      this.#ghosts[base + STATUS] = Status.SUSPENDED;
      this.#ghosts[base + SITE] = this.machine.pendingSite;
      this.#ghosts[base + ADDRESS] = this.machine.pendingAddress;
      return;
    }
    this.#ghosts.fill(0, base + STATUS, base + ABANDONED);
    if (operation.kind === 'abandon') this.#ghosts[base + ABANDONED] = this.#countDone() + 1;
    this.waited = operation.until === true && result !== 0;
    if (!this.waited) this.#ghosts[base + PC]!++;
    this.#settle(thread);
  }

  /** Digits of the messages, in the order in which they were completed. */
  checkEnd(): void {
    const { machine } = this;
    const sent = machine.call('sentBy', this.#own(SOURCE));
    const received = machine.call('receivedBy', this.#own(TARGET));
    const [isSourceDead, isTargetDead] = [SOURCE, TARGET].map(
      (thread) => this.status(thread) === Status.KILLED,
    );
    const states = Array.from({ length: ENTRIES }, (_, index) => this.#state(index));
    const tell = `sent ${sent}, received ${received}, states ${states.join(' ')}`;
    const inOrder = [0, 1, 12];
    if (!inOrder.includes(sent) || !inOrder.includes(received)) throw new Violation(tell);
    const done = this.#countDone();
    const executed = received === 0 ? 0 : `${received}`.length;
    const abandoned = this.#ghosts[SOURCE * THREAD_WORDS + ABANDONED]!;
    if (abandoned > 0 && executed > abandoned - 1) throw new Violation(`too late: ${tell}`);
    // A target may die between DONE and the completion.
    if (!isTargetDead && done !== executed) throw new Violation(`not all of DONE: ${tell}`);
    if (isSourceDead || isTargetDead) {
      const isOpen = states.some((state) => state === LocalMessageState.POSTED);
      if (isOpen) throw new Violation(`a dead context has a message: ${tell}`);
    }
    if (isSourceDead) return;
    const completed = sent === 0 ? 0 : `${sent}`.length;
    if (completed > done) throw new Violation(`completed, not executed: ${tell}`);
    if (machine.call('hasFailed', this.#own(SOURCE)) === 1) return;
    const left = machine.call('leftBy', this.#own(SOURCE));
    if (completed !== done) throw new Violation(`executed, not completed: ${tell}`);
    if (left + completed !== this.scenario.requests) throw new Violation(`lost: ${tell}`);
  }

  #countDone(): number {
    let count = 0;
    for (let index = 0; index < ENTRIES; index++) {
      if (this.#state(index) === LocalMessageState.DONE) count++;
    }
    return count;
  }

  #state(index: number): number {
    const entry = HEADER_BYTES + index * (LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE);
    return this.machine.words[(this.#channel + entry) >> 2]!;
  }

  #own(thread: number): number {
    return this.#private + thread * CHANNEL_PRIVATE_BYTES;
  }

  #settle(thread: number): void {
    if (!this.operation(thread)) this.#ghosts[thread * THREAD_WORDS + STATUS] = Status.DONE;
  }
}

const POSTING: readonly ChannelOperation[] = [
  { kind: 'postAll' },
  { kind: 'serve' },
  { kind: 'expire', until: true },
];
const TAKING: readonly ChannelOperation[] = [{ kind: 'serve' }, { kind: 'serve' }];
const reclaiming = (victim: number): readonly ChannelOperation[] => [{ kind: 'closeSlot', victim }];

/** A survivor whose program has not begun has nothing to do if nothing dies: it does not run. */
const threadsOf = (
  source: readonly ChannelOperation[],
  target: readonly ChannelOperation[],
  victim?: number,
): ChannelScenario['threads'] => [
  { name: 'Source', program: source },
  { name: 'Target', program: target },
  ...(victim === undefined ? [] : [{ name: 'Reaper', program: reclaiming(victim) }]),
];

export const CHANNEL_SCENARIOS: readonly ChannelScenario[] = [
  {
    name: 'one message, a timeout',
    requests: 1,
    receives: 1,
    threads: threadsOf(POSTING, TAKING),
  },
  {
    name: 'two messages, one receive request',
    requests: 2,
    receives: 1,
    threads: threadsOf(POSTING, TAKING),
  },
  {
    name: 'two messages, a timeout',
    requests: 2,
    receives: 2,
    threads: threadsOf(POSTING, TAKING),
  },
  {
    name: 'a receive request behind a refusal',
    requests: 2,
    receives: 0,
    threads: threadsOf(
      [{ kind: 'postOne' }, { kind: 'postOne' }, ...POSTING.slice(1)],
      [{ kind: 'serve' }, { kind: 'postReceive' }, { kind: 'serve' }],
    ),
  },
  {
    name: 'a source that ends',
    requests: 2,
    receives: 2,
    threads: threadsOf([{ kind: 'postAll' }, { kind: 'abandon' }], TAKING),
  },
  {
    name: 'a source that dies',
    requests: 2,
    receives: 2,
    threads: threadsOf(POSTING, TAKING, SOURCE),
  },
  {
    name: 'a target that dies',
    requests: 2,
    receives: 2,
    threads: threadsOf(POSTING, TAKING, TARGET),
  },
];
