/** Puts one file: connects, and connects again where it stopped, until it is there or hopeless. */
import { RefusalError } from '../errors/errors.js';
import type { PathState } from '../verbs/queues/path-state.js';
import type { Context } from '../verbs/context.js';
import { randomId } from '../verbs/refuse.js';
import { Attempt, type AttemptOptions } from './attempt.js';
import { hexOf } from './bytes.js';
import { ConnectionLost } from './channel.js';
import { pause } from './pause.js';
import { formatServerAddress, type ServerAddress } from './server-address.js';

/** Refusals of the server, or its absence, that may pass: worth another attempt. */
const PASSING_CODES: ReadonlySet<string> = new Set([
  'EAGAIN',
  'EBUSY',
  'ECONNREFUSED',
  'ECONNRESET',
  'ETIMEDOUT',
]);
const FIRST_PAUSE_MILLIS = 200;
const PAUSE_MILLIS_MAX = 5000;

export interface TransferOptions extends Omit<AttemptOptions, 'transfer' | 'resumes' | 'server'> {
  /** Before each attempt: a page that was reloaded has another address. */
  readonly server: () => ServerAddress | Promise<ServerAddress>;
  /** Before each attempt but the first: this machine may have another address. Default: `context`. */
  readonly contextAgain?: () => Promise<Context>;
  /** Check to advise when the receiver is lost, without the end of the sentence. */
  readonly remedy: string;
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
  /** State of the path when the last piece had arrived; undefined: no piece was sent. */
  readonly path: PathState | undefined;
}

export class Transfer {
  readonly #options: Omit<AttemptOptions, 'resumes' | 'server' | 'context'>;
  #context: Context;
  readonly #contextAgain: (() => Promise<Context>) | undefined;
  #attempts = 0;
  readonly #findServer: () => ServerAddress | Promise<ServerAddress>;
  readonly #remedy: string;
  #server: ServerAddress | undefined;
  readonly #retries: number;
  readonly #outageMillis: number;
  readonly #events: TransferEvents;
  #piecesSkipped: number | undefined;
  #piecesSent = 0;
  #bytes = 0;
  #reconnects = 0;
  #path: PathState | undefined;

  constructor(
    { retries, outageMillis, server, remedy, context, contextAgain, ...options }: TransferOptions,
    events: TransferEvents,
  ) {
    const ids = BigUint64Array.of(randomId(), randomId());
    this.#options = { ...options, transfer: new Uint8Array(ids.buffer) };
    this.#context = context;
    this.#contextAgain = contextAgain;
    this.#findServer = server;
    this.#remedy = remedy;
    this.#retries = retries;
    this.#outageMillis = outageMillis;
    this.#events = events;
  }

  /** Rejects with RefusalError, which says how things stand; the reason of `signal`. */
  async run(): Promise<TransferResult> {
    const start = performance.now();
    let failures = 0;
    let failedSince = 0;
    for (;;) {
      const sentBefore = this.#piecesSent;
      try {
        await this.#attempt();
        return {
          sha256: hexOf(this.#options.file.digest()),
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
    if (error instanceof ConnectionLost) return this.#context.failure === undefined;
    if (this.#piecesSkipped === undefined || !(error instanceof RefusalError)) return false;
    return error.name === 'RefusalError' && PASSING_CODES.has(error.code);
  }

  #giveUp(error: Error, retries: number): RefusalError {
    const { file } = this.#options;
    const where = this.#server ? formatServerAddress(this.#server) : 'the receiver';
    const tries = `${retries} ${retries === 1 ? 'retry' : 'retries'}`;
    const hint =
      this.#bytes > 0
        ? `the server keeps what it has of ${file.name}: put it again to go on from there`
        : this.#remedy;
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
    await pause(millis, this.#options.signal);
  }

  async #attempt(): Promise<void> {
    const { file } = this.#options;
    const server = (this.#server = await this.#findServer());
    if (this.#attempts++ > 0) this.#context = (await this.#contextAgain?.()) ?? this.#context;
    const place = { context: this.#context, server };
    const options = { ...this.#options, ...place, resumes: this.#piecesSent > 0 };
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
