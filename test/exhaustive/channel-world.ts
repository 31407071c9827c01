/**
 * Messages from one context to another on a machine, while the source gives up, either side dies
 * and a survivor reclaims its slot. The invariants: a message is executed at most once and in
 * order; the source completes what the target executed, and sends all else by packets.
 */
import { LOCAL_MESSAGE_SIZE, LOCAL_VALUE_SIZE, LocalMessageState } from '#build/abi.js';
import type { Protocol } from './build.js';
import { CHANNEL_PRIVATE_BYTES } from './channel-sources.js';
import { ARENA, WordClass } from './machine.js';
import { ProgramWorld, type ProgramOperation, type ProgramScenario } from './program-world.js';
import { Violation } from './violation.js';
import { Status } from './world.js';

export interface ChannelOperation extends ProgramOperation {
  readonly kind:
    'postAll' | 'postOne' | 'postReceive' | 'serve' | 'expire' | 'abandon' | 'closeSlot';
  /** Repeats until no message waits for an answer. */
  readonly until?: boolean;
}

/** The source (slot 0), the target (slot 1), and the survivor that reclaims a slot. */
export interface ChannelScenario extends ProgramScenario<ChannelOperation> {
  /** Messages that the source posts, and receive requests of the target. */
  readonly requests: number;
  readonly receives: number;
}

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
/** One ghost word: `abandon` has ended; messages that were executed then, plus 1. */
const SHAPE = { config: CONFIG, ownWords: 1, privateBytes: CONTEXTS * CHANNEL_PRIVATE_BYTES };

export class ChannelWorld extends ProgramWorld<ChannelOperation> {
  readonly #requests: number;
  readonly #channel: number;

  constructor(protocol: Protocol, scenario: ChannelScenario) {
    super(protocol, scenario, SHAPE);
    const { machine } = this;
    const channels = machine.arena('localChannels');
    const stride = HEADER_BYTES + ENTRIES * (LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE);
    const inbox = BITS_BYTES + CONTEXTS * stride;
    const word = { size: 4, fields: { word: [0, 'u32'] } } as const;
    machine.nameTable(channels, (CONTEXTS * inbox) / 4, word, 'channel', WordClass.ATOMIC);
    this.#channel = channels + inbox + BITS_BYTES;
    const { requests, receives } = scenario;
    this.#requests = requests;
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
  }

  protected argsOf({ victim }: ChannelOperation, thread: number): readonly number[] {
    return victim === undefined ? [ARENA, this.#own(thread)] : [ARENA, 0, victim];
  }

  protected returned(operation: ChannelOperation, thread: number, result: number): boolean {
    if (operation.kind === 'abandon') this.setGhost(thread, this.#countDone() + 1);
    return operation.until !== true || result === 0;
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
    const abandoned = this.ghost(SOURCE);
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
    if (left + completed !== this.#requests) throw new Violation(`lost: ${tell}`);
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
    return this.privateAddress + thread * CHANNEL_PRIVATE_BYTES;
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
