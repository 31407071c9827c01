/** Puts one file: connects, and connects again where it stopped, until it is there or hopeless. */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { timerMillis } from '../../base/timer.js';
import { RefusalError, type PathState } from '../../index.js';
import { Attempt, type AttemptOptions } from './attempt.js';
import { ConnectionLost } from '../file-transfer/channel.js';
import { formatServerAddress } from '../base/server-address.js';
import { Interrupted } from '../base/report.js';

/** What the server says, or its absence, that may be otherwise in a moment. */
const PASSING_CODES: ReadonlySet<string> = new Set([
  'EAGAIN',
  'EBUSY',
  'ECONNREFUSED',
  'ECONNRESET',
  'ETIMEDOUT',
]);
const FIRST_PAUSE_MILLIS = 200;
const PAUSE_MILLIS_MAX = 5000;

export interface TransferOptions extends Omit<AttemptOptions, 'transfer' | 'resumes'> {
  /** How often to connect again without a piece arriving in between; */
  readonly retries: number;
  /** and for how long: both must be exhausted before the transfer fails. */
  readonly outageMillis: number;
}

export interface TransferEvents {
  /** Bytes of the file that the server has. */
  progress(bytes: number): void;
  /** The server has all bytes, and reads them back. */
  verifying(): void;
  /** Something that the user should know. */
  note(text: string): void;
}

export interface TransferResult {
  readonly sha256: string;
  readonly seconds: number;
  /** Pieces that the server had from an earlier run. */
  readonly piecesSkipped: number;
  /** Pieces that arrived now. */
  readonly piecesSent: number;
  readonly reconnects: number;
  /** What the path was when the last piece had arrived; undefined: no piece was sent. */
  readonly path: PathState | undefined;
}

export class Transfer {
  readonly #options: Omit<AttemptOptions, 'resumes'>;
  readonly #retries: number;
  readonly #outageMillis: number;
  readonly #events: TransferEvents;
  #piecesSkipped: number | undefined;
  #piecesSent = 0;
  #bytes = 0;
  #reconnects = 0;
  #path: PathState | undefined;

  constructor({ retries, outageMillis, ...options }: TransferOptions, events: TransferEvents) {
    this.#options = { ...options, transfer: randomBytes(16) };
    this.#retries = retries;
    this.#outageMillis = outageMillis;
    this.#events = events;
  }

  /** Rejects with RefusalError or Interrupted; both say how things stand. */
  async run(): Promise<TransferResult> {
    const start = performance.now();
    let failures = 0;
    let failedSince = 0;
    for (;;) {
      const sentBefore = this.#piecesSent;
      try {
        await this.#attempt();
        return {
          sha256: this.#options.file.digest().toString('hex'),
          seconds: (performance.now() - start) / 1000,
          piecesSkipped: this.#piecesSkipped ?? 0,
          piecesSent: this.#piecesSent,
          reconnects: this.#reconnects,
          path: this.#path,
        };
      } catch (error) {
        failures = this.#piecesSent > sentBefore ? 1 : failures + 1;
        if (failures === 1) failedSince = performance.now();
        if (!this.#mayPass(error)) throw error;
        const outage = performance.now() - failedSince;
        if (failures > this.#retries && outage >= this.#outageMillis) {
          throw this.#giveUp(error as Error, failures - 1);
        }
        await this.#pause(error as Error, failures);
      }
    }
  }

  /** Did the server once talk to us, and is this no verdict about the file? */
  #mayPass(error: unknown): boolean {
    if (error instanceof ConnectionLost) return this.#options.context.failure === undefined;
    if (this.#piecesSkipped === undefined || !(error instanceof RefusalError)) return false;
    return error.name === 'RefusalError' && PASSING_CODES.has(error.code);
  }

  #giveUp(error: Error, retries: number): RefusalError {
    const { file, server } = this.#options;
    const where = formatServerAddress(server);
    const tries = `${retries} ${retries === 1 ? 'retry' : 'retries'}`;
    const hint =
      this.#bytes > 0
        ? `the server keeps what it has of ${file.name}: put it again to go on from there`
        : `check that "verbena serve" still runs there`;
    return new RefusalError(
      'ECONNRESET',
      `${where} is lost after ${tries} without progress (${error.message}); ${hint}`,
      { cause: error },
    );
  }

  async #pause(error: Error, failures: number): Promise<void> {
    const millis = Math.min(FIRST_PAUSE_MILLIS * 2 ** (failures - 1), PAUSE_MILLIS_MAX);
    this.#reconnects++;
    this.#events.note(`connection lost (${error.message}); trying again in ${millis / 1000} s`);
    await sleep(timerMillis(millis), undefined, { signal: this.#options.signal }).catch(() => {
      throw new Interrupted('interrupted');
    });
  }

  #attempt(): Promise<void> {
    const { file } = this.#options;
    const options = { ...this.#options, resumes: this.#piecesSent > 0 };
    return Attempt.run(options, {
      connected: (have, note) => {
        if (note !== '') this.#events.note(note);
        this.#bytes = 0;
        for (let index = 0; index < file.pieceCount; index++) {
          if (have.has(index)) this.#bytes += file.lengthOf(index);
        }
        if (this.#piecesSkipped === undefined && have.size > 0) {
          this.#events.note(
            `going on from an earlier run: the server has ${have.size} of ${file.pieceCount} pieces`,
          );
        }
        this.#piecesSkipped ??= have.size;
        this.#events.progress(this.#bytes);
      },
      written: (index) => {
        this.#piecesSent++;
        this.#bytes += file.lengthOf(index);
        this.#events.progress(this.#bytes);
      },
      verifying: (path) => {
        this.#path = path;
        this.#events.verifying();
      },
    });
  }
}
