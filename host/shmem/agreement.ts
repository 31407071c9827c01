/**
 * The agreement of the PEs of a team on those that survive: all get the same team, at whatever
 * instant others die. Each PE writes a record of its own and reads those of the others, so it works
 * by loads as by RDMA.
 *
 * The coordinator is the first PE that lives. When all that live have arrived, it adopts a
 * proposal; the others adopt it from the coordinator's record; when all that live have adopted it,
 * the coordinator decides. A later coordinator takes the newest proposal that a living PE has
 * adopted: if an earlier one decided before it died, that is the decided one.
 *
 * Failures must be accurate: a PE that a peer takes for dead is dead. The kernel reports those of
 * this machine; of others, one that does not answer for 4 s counts as dead (remote-peer.ts). A
 * PE that finds a failure writes it into the memory of all others, also of the failed one, which
 * may have been stopped: PEs of its machine would wait for it. It takes part in nothing any more.
 */
import { RECORDS_OFFSET, TEAMS_MAX } from './offsets.js';

/** Words of a record: rounds that the PE has arrived in, turns and teams that it has had. */
enum At {
  ARRIVED = 0,
  TURN_MAX = 1,
  USED = 2,
  SLOTS = 4,
}
/** Words of a slot: the status, then the proposal. */
enum Slot {
  STATUS = 0,
  NUMBER = 1,
  TURN = 2,
  MEMBERS = 3,
}
/** Otherwise a status is twice the coordinator's number plus 1, and odd if it is decided. */
const EMPTY = 0;
const WRITING = -1;
/** Numbers of `shmem.world` and `shmem.shared`. */
export const FIXED_TEAMS = 2;
/** All teams are taken. */
export const NO_NUMBER = -1;

/** Words of the members, a bit for each PE of the job. */
function memberWords(pes: number): number {
  return Math.ceil(pes / 32);
}

/** Words of the record of one team, in a job of that number of PEs. */
export function recordWords(pes: number): number {
  // A PE in the next round leaves the decision of this one to those that have not read it.
  return At.SLOTS + 2 * (Slot.MEMBERS + memberWords(pes));
}

/** The record of a team in the memory of a PE. */
export function recordOffset(pes: number, number: number): number {
  return RECORDS_OFFSET + number * recordWords(pes) * 4;
}

/** A byte for each PE of the job: others write it when they have found that PE to have failed. */
export function failedOffset(pes: number): number {
  return Math.ceil(recordOffset(pes, TEAMS_MAX) / 64) * 64;
}

/** The application's memory begins there. */
export function reservedBytes(pes: number): number {
  return failedOffset(pes) + Math.ceil(pes / 64) * 64;
}

export interface Decision {
  /** Number of the new team; NO_NUMBER. */
  readonly number: number;
  /** Turn of the last sync: memory of the members has flags of no later one. */
  readonly turn: number;
  /** PEs of the old team, in its order. */
  readonly members: readonly number[];
}

/** The records of a team's PEs. Words of a PE that turns out to be dead are undefined. */
export interface AgreementStore {
  load(pe: number, word: number): number | undefined;
  read(pe: number, word: number, count: number): Int32Array | undefined;
  /** Into the record of this PE. */
  store(word: number, value: number): void;
  hasFailed(pe: number): boolean;
  /** Has it finalized? Such a PE changes its record no more. */
  isDone(pe: number): boolean;
  /** The others look again. */
  wake(): void;
}

/** As a PE arrives: teams that it has, a bit each, and the last turn of those that it had. */
export interface Arrival {
  readonly used: bigint;
  readonly turnMax: number;
}

interface Seen {
  readonly pe: number;
  readonly isDone: boolean;
  /** Undefined: it has not arrived. */
  readonly status: number | undefined;
}

export class Agreement {
  readonly #store: AgreementStore;
  readonly #me: number;
  readonly #nPes: number;
  readonly #bodyWords: number;
  #round = 1;
  #hasArrived = false;

  /** `nPes`: of the team; `pes`: of the job. */
  constructor(store: AgreementStore, me: number, nPes: number, pes: number) {
    this.#store = store;
    this.#me = me;
    this.#nPes = nPes;
    this.#bodyWords = Slot.MEMBERS - 1 + memberWords(pes);
  }

  /** This PE calls `survivors`; again, if its last call ended by a limit. */
  arrive({ used, turnMax }: Arrival): void {
    if (this.#hasArrived) return;
    const put = (word: number, value: number): void => this.#store.store(word, value);
    // All have arrived in the last round, so all have read the slot's decision.
    put(this.#slot + Slot.STATUS, EMPTY);
    put(At.TURN_MAX, turnMax);
    put(At.USED, Number(BigInt.asIntN(32, used)));
    put(At.USED + 1, Number(BigInt.asIntN(32, used >> 32n)));
    put(At.ARRIVED, this.#round);
    this.#hasArrived = true;
    this.#store.wake();
  }

  /**
   * Takes the next step of this PE; the decision, once it is made. `finished` is called with a PE
   * that has finalized without it: if it returns, the others go on without that PE.
   */
  step(finished: (pe: number) => void): Decision | undefined {
    const live: Seen[] = [];
    for (let pe = 0; pe < this.#nPes; pe++) {
      const seen = this.#look(pe);
      if (!seen) continue;
      if (isDecided(seen.status)) {
        const body = this.#body(pe, seen.status!);
        return body && this.#decide(seen.status!, body);
      }
      if (seen.isDone) finished(pe);
      else live.push(seen);
    }
    const [coordinator] = live;
    if (coordinator?.pe === this.#me) return this.#coordinate(live);
    if (coordinator) this.#follow(coordinator);
    return undefined;
  }

  #follow({ pe, status }: Seen): void {
    const wanted = statusOf(pe);
    if (status !== wanted || this.#store.load(this.#me, this.#slot) === wanted) return;
    const body = this.#body(pe, wanted);
    if (body) this.#write(wanted, body);
  }

  #coordinate(live: readonly Seen[]): Decision | undefined {
    if (live.some(({ status }) => status === undefined || status === WRITING)) return undefined;
    const own = statusOf(this.#me);
    if (live[0]!.status !== own) {
      const newest = live.reduce((one, next) => (next.status! > one.status! ? next : one));
      const body =
        newest.status === EMPTY ? this.#propose(live) : this.#body(newest.pe, newest.status!);
      if (body) this.#write(own, body);
      return undefined;
    }
    if (live.some(({ status }) => status !== own)) return undefined;
    return this.#decide(own | 1, this.#body(this.#me, own)!);
  }

  /** Undefined: a PE of them has died meanwhile. */
  #propose(live: readonly Seen[]): Int32Array | undefined {
    const body = new Int32Array(this.#bodyWords);
    const used = [0, 0];
    let turn = 0;
    for (const { pe } of live) {
      const words = this.#store.read(pe, At.TURN_MAX, 3);
      if (!words) return undefined;
      turn = Math.max(turn, words[0]!);
      used[0]! |= words[1]!;
      used[1]! |= words[2]!;
      body[Slot.MEMBERS - 1 + (pe >> 5)]! |= 1 << (pe & 31);
    }
    let number = TEAMS_MAX - 1;
    while (number >= FIXED_TEAMS && (used[number >> 5]! >>> (number & 31)) & 1) number--;
    body[Slot.NUMBER - 1] = number < FIXED_TEAMS ? NO_NUMBER : number;
    body[Slot.TURN - 1] = turn;
    return body;
  }

  #decide(status: number, body: Int32Array): Decision {
    this.#write(status, body);
    this.#round++;
    this.#hasArrived = false;
    const isMember = (pe: number): boolean =>
      ((body[Slot.MEMBERS - 1 + (pe >> 5)]! >>> (pe & 31)) & 1) === 1;
    const all = Array.from({ length: this.#nPes }, (_, pe) => pe);
    const [number, turn] = [body[Slot.NUMBER - 1]!, body[Slot.TURN - 1]!];
    return { number, turn, members: all.filter(isMember) };
  }

  #write(status: number, body: Int32Array): void {
    const store = this.#store;
    store.store(this.#slot, WRITING);
    body.forEach((value, index) => store.store(this.#slot + Slot.NUMBER + index, value));
    store.store(this.#slot, status);
    store.wake();
  }

  /** Undefined: it has failed. */
  #look(pe: number): Seen | undefined {
    if (this.#store.hasFailed(pe)) return undefined;
    // Before the record: that of a PE that has finalized stays as it is.
    const isDone = this.#store.isDone(pe);
    const arrived = this.#store.load(pe, At.ARRIVED);
    if (arrived === undefined) return undefined;
    if (arrived < this.#round) return { pe, isDone, status: undefined };
    const status = this.#store.load(pe, this.#slot);
    return status === undefined ? undefined : { pe, isDone, status };
  }

  /** The proposal under that status; undefined: it has changed, or the PE has died. */
  #body(pe: number, status: number): Int32Array | undefined {
    const body = this.#store.read(pe, this.#slot + Slot.NUMBER, this.#bodyWords);
    return this.#store.load(pe, this.#slot) === status ? body : undefined;
  }

  get #slot(): number {
    return At.SLOTS + (this.#round & 1) * (this.#bodyWords + 1);
  }
}

/** Of a proposal that `coordinator` has made. */
function statusOf(coordinator: number): number {
  return (coordinator + 1) * 2;
}

function isDecided(status: number | undefined): boolean {
  return status !== undefined && status > EMPTY && status % 2 === 1;
}
