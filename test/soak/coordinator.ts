/**
 * Starts the members of a soak, injects their faults, and keeps the books: which records were
 * acknowledged, to which member, and whether they are there. The first member is stopped, never
 * killed: its memory is watched from the beginning to the end.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { DATA_OFFSET } from '../../host/pmem/header.js';
import { Random } from '../simulation/random.js';
import { afterOwnSeconds } from '../support/own-time.js';
import type { SmallDisk } from './disk.js';
import { RECORD_RING_BYTES, judgeLedger } from './record-ring.js';
import {
  ledgerPath,
  type MemoryUse,
  type Order,
  type PeerPlace,
  type Report,
  type Start,
} from './messages.js';

export const MEMBERS = 4;
/** A member that is silent for this long, and is not stopped, hangs. */
const SILENCE_SECONDS_MAX = 180;
const PAUSE_MILLIS = 1500;
const STOP_MILLIS_MAX = 2500;
const BAD_MILLIS = 3000;
const BEGIN_MILLIS = 20;
/** Longer than reliable datagrams wait for the heartbeats of the dead. */
const QUIET_PAUSES = 20;
const SETTLED_PAUSES = 7;
const END_SECONDS_MAX = 180;

export interface Sample extends MemoryUse {
  readonly seconds: number;
  readonly member: number;
  readonly incarnation: number;
  /** The end of a quiet time, of which there is one early on and one at the end. */
  readonly settled: 'first' | 'last' | undefined;
}

export interface Soaked {
  readonly violations: readonly string[];
  /** Faults injected into members, and their counts. */
  readonly faults: Readonly<Record<string, number>>;
  /** Counters of the members, over all incarnations. */
  readonly counts: Readonly<Record<string, number>>;
  readonly samples: readonly Sample[];
  /** Records in ledgers that were acknowledged; each audit looked at all of a member. */
  readonly acknowledged: number;
  readonly audits: number;
}

interface Member {
  readonly index: number;
  child: ChildProcess;
  incarnation: number;
  place: PeerPlace | undefined;
  /** Calls off the complaint that it says nothing. */
  heard: () => void;
  isStopped: boolean;
  isMeant: boolean;
  counts: Readonly<Record<string, number>>;
  pending: readonly string[];
}

type FaultName = 'kill' | 'stop' | 'loss' | 'full disk';

export class Coordinator {
  readonly #directory: string;
  readonly #seed: number;
  readonly #random: Random;
  readonly #disk: SmallDisk;
  readonly #members: Member[] = [];
  #started = performance.now();
  readonly #violations: string[] = [];
  readonly #faults: Record<string, number> = {};
  readonly #counts = new Map<string, number>();
  readonly #samples: Sample[] = [];
  /** By owner and writer: records acknowledged. */
  readonly #ledgers: number[][];
  #audits = 0;
  #isEnding = false;
  #settled: 'first' | 'last' | undefined;

  constructor(directory: string, seed: number, disk: SmallDisk) {
    this.#directory = directory;
    this.#seed = seed;
    this.#random = new Random(seed).split('faults');
    this.#disk = disk;
    this.#ledgers = Array.from({ length: MEMBERS }, () => new Array<number>(MEMBERS).fill(0));
  }

  get acknowledged(): number {
    return this.#ledgers.flat().reduce((sum, count) => sum + count, 0);
  }

  get faults(): Readonly<Record<string, number>> {
    return this.#faults;
  }

  get violations(): readonly string[] {
    return this.#violations;
  }

  /** Calls `onFault` between faults. */
  async run(minutes: number, onFault: (seconds: number) => void): Promise<Soaked> {
    for (let index = 0; index < MEMBERS; index++) this.#members.push(this.#start(index, 0));
    // There are no faults before all members have begun.
    while (this.#members.some(({ place }) => !place) && this.#violations.length === 0) {
      await sleep(BEGIN_MILLIS);
    }
    this.#started = performance.now();
    const end = minutes * 60;
    let isQuietNext = true;
    while (this.#isGoingOn && this.#seconds < end) {
      await sleep(this.#random.between(PAUSE_MILLIS / 2, PAUSE_MILLIS));
      onFault(this.#seconds);
      if (isQuietNext && this.#seconds > end / 4) {
        isQuietNext = false;
        await this.#beQuiet('first', onFault);
      } else await this.#fault();
    }
    await this.#beQuiet('last', onFault);
    await this.#end();
    return {
      violations: this.#violations,
      faults: this.#faults,
      counts: Object.fromEntries([...this.#counts].sort()),
      samples: this.#samples,
      acknowledged: this.acknowledged,
      audits: this.#audits,
    };
  }

  get #isGoingOn(): boolean {
    return !this.#isEnding && this.#violations.length === 0;
  }

  /** No faults: messages arrive, deaths are noticed, memory is compared. */
  async #beQuiet(which: 'first' | 'last', onFault: (seconds: number) => void): Promise<void> {
    // Counted in pauses: a machine that stands still for a while is not quiet.
    for (let pause = 0; this.#isGoingOn && pause < QUIET_PAUSES; pause++) {
      if (pause >= QUIET_PAUSES - SETTLED_PAUSES) this.#settled = which;
      await sleep(PAUSE_MILLIS);
      onFault(this.#seconds);
    }
    this.#settled = undefined;
  }

  /** Before its time is over. */
  stop(): void {
    this.#isEnding = true;
  }

  get #seconds(): number {
    return (performance.now() - this.#started) / 1000;
  }

  #start(index: number, incarnation: number): Member {
    const start: Start = {
      ...{ member: index, incarnation, members: MEMBERS, directory: this.#directory },
      // Two whose engine has a thread, two that lose packets.
      ...{ isLossy: index >= MEMBERS / 2, seed: this.#seed },
    };
    const file = fileURLToPath(new URL('./member.js', import.meta.url));
    const child = fork(file, [JSON.stringify(start)], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    const member: Member = {
      ...{ index, child, incarnation, place: undefined, heard: () => {} },
      ...{ isStopped: false, isMeant: false, counts: {}, pending: [] },
    };
    this.#listen(member);
    let said = '';
    child.stderr!.setEncoding('utf8').on('data', (text: string) => (said += text));
    child.on('message', (message: Report) => this.#hear(member, message));
    child.on('exit', (code, signal) => {
      member.heard();
      for (const [what, count] of Object.entries(member.counts)) {
        this.#counts.set(what, (this.#counts.get(what) ?? 0) + count);
      }
      if (member.isMeant || (code === 0 && this.#isEnding)) return;
      this.#complain(`member ${index}.${incarnation} ended with ${code ?? signal}: ${said.trim()}`);
    });
    return member;
  }

  #complain(sentence: string): void {
    this.#violations.push(`${this.#seconds.toFixed(1)} s: ${sentence}`);
  }

  #tell({ child }: Member, order: Order): void {
    if (child.connected) child.send(order, () => {});
  }

  #hear(member: Member, message: Report): void {
    this.#listen(member);
    switch (message.kind) {
      case 'up': {
        const { kind: _, ...place } = message;
        member.place = place;
        const others = this.#members.filter((other) => other !== member);
        for (const other of others) this.#tell(other, { kind: 'peers', peers: [place] });
        const peers = others.flatMap((other) => other.place ?? []);
        this.#tell(member, { kind: 'peers', peers });
        break;
      }
      case 'ring': {
        const counts = this.#ledgers[message.owner]!;
        const before = counts[member.index]!;
        if (message.count <= before) {
          this.#complain(`member ${member.index} appended ${message.count} after ${before}`);
        }
        counts[member.index] = message.count;
        break;
      }
      case 'found': {
        const before = this.#ledgers[message.owner]![member.index]!;
        if (message.count >= before) break;
        const what = `${before} were acknowledged, ${message.count} are there`;
        this.#complain(`ring of ${member.index} at ${message.owner}: ${what}`);
        break;
      }
      case 'beat': {
        const { index, incarnation } = member;
        member.counts = message.counts;
        member.pending = message.pending;
        const seconds = this.#seconds;
        // A member that ends frees its memory: these samples do not count.
        if (this.#isEnding) break;
        const settled = this.#settled;
        this.#samples.push({ seconds, member: index, incarnation, settled, ...message.memory });
        break;
      }
      case 'violation':
        this.#complain(message.sentence);
        break;
      case 'disk':
        this.#count(`disk: ${message.code}`);
        if (message.code !== 'room' && message.code !== 'ENOSPC') {
          this.#complain(`an extra file was refused with ${message.code}`);
        }
    }
  }

  #count(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }

  async #fault(): Promise<void> {
    const names: FaultName[] = ['kill', 'kill', 'stop', 'stop', 'loss'];
    if (this.#disk.missing === undefined) names.push('full disk');
    const name = names[this.#random.below(names.length)]!;
    this.#faults[name] = (this.#faults[name] ?? 0) + 1;
    // The first one lives on.
    const mortal = this.#members[1 + this.#random.below(MEMBERS - 1)]!;
    const member = this.#members[this.#random.below(MEMBERS)]!;
    switch (name) {
      case 'kill':
        await this.#kill(mortal);
        break;
      case 'stop':
        member.isStopped = true;
        member.heard();
        member.child.kill('SIGSTOP');
        await sleep(this.#random.between(100, STOP_MILLIS_MAX));
        member.child.kill('SIGCONT');
        member.isStopped = false;
        this.#listen(member);
        break;
      case 'loss': {
        const loss = [0.02, 0.1, 1][this.#random.below(3)]!;
        for (const member of this.#members) this.#tell(member, { kind: 'loss', loss });
        await sleep(BAD_MILLIS);
        for (const member of this.#members) this.#tell(member, { kind: 'loss', loss: 0 });
        break;
      }
      case 'full disk':
        this.#disk.fill();
        await sleep(BAD_MILLIS);
        this.#disk.empty();
    }
  }

  async #kill(member: Member): Promise<void> {
    // A member that has not begun has nothing to lose.
    const { child } = member;
    if (!member.place || child.exitCode !== null || child.signalCode !== null) return;
    member.isMeant = true;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
    this.#audit(member.index);
    this.#members[member.index] = this.#start(member.index, member.incarnation + 1);
  }

  /** Checks the records in a dead member's file. */
  #audit(owner: number): void {
    const path = ledgerPath(this.#directory, owner);
    // It ended before it had begun, which is reported already.
    if (!existsSync(path)) return;
    const bytes = readFileSync(path).subarray(DATA_OFFSET);
    this.#audits++;
    for (let writer = 0; writer < MEMBERS; writer++) {
      if (writer === owner) continue;
      const ring = bytes.subarray(writer * RECORD_RING_BYTES, (writer + 1) * RECORD_RING_BYTES);
      const { complaint } = judgeLedger(ring, writer, this.#ledgers[owner]![writer]!);
      if (complaint) this.#complain(`ring of ${writer} at ${owner}: ${complaint}`);
    }
  }

  /** From now on it is expected to say something. */
  #listen(member: Member): void {
    const { child } = member;
    member.heard();
    if (member.isStopped || child.exitCode !== null || child.signalCode !== null) return;
    member.heard = afterOwnSeconds(SILENCE_SECONDS_MAX, () => {
      const { index, incarnation } = member;
      const what = `has said nothing for ${SILENCE_SECONDS_MAX} s`;
      this.#complain(`member ${index}.${incarnation} ${what}`);
    });
  }

  async #end(): Promise<void> {
    this.#isEnding = true;
    const ends = this.#members.map(async (member) => {
      const { child, index } = member;
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      this.#tell(member, { kind: 'stop' });
      const callOff = afterOwnSeconds(END_SECONDS_MAX, () => {
        const why = member.pending.join(', ') || 'nothing that it knows of';
        this.#complain(`member ${index} does not end: it waits for ${why}`);
        member.isMeant = true;
        child.kill('SIGKILL');
      });
      await ended;
      callOff();
    });
    await Promise.all(ends);
    for (let owner = 0; owner < MEMBERS; owner++) this.#audit(owner);
  }
}
