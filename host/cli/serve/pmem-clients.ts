/**
 * Clients of `serve --pmem`. A log has one writer: its clients take turns. Requests are received
 * all the time; sources take turns as well, and a client that stays half open loses its turn to the
 * next one. So a silent client delays others by a second, and its source has a share of the queue.
 */
import * as rpma from '../../rpma/index.js';
import { sourceOf } from '../../link/source-shares.js';
import { withMessages, type FlushAnswerer } from '../file-transfer/pmem-messages.js';
import { complain, describeError } from '../base/report.js';

/** A client without an RTU for this time loses its turn if another client waits. */
const HALF_OPEN_MILLIS = 1000;
const LOOK_MILLIS = 50;
const WAITING_MAX = 64;
const WAITING_PER_SOURCE = 8;

/** Requests that wait, by source; the source that waits longest comes first. */
class Waiting {
  readonly #bySource = new Map<string, rpma.ConnReq[]>();
  #count = 0;
  #wake = (): void => {};

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  /** False: the queue, or the share of its source, is full. */
  add(request: rpma.ConnReq): boolean {
    const source = sourceOf(request.getPeerAddr().address);
    const own = this.#bySource.get(source) ?? [];
    if (this.#count >= WAITING_MAX || own.length >= WAITING_PER_SOURCE) return false;
    own.push(request);
    this.#bySource.set(source, own);
    this.#count++;
    this.#wake();
    return true;
  }

  async next(): Promise<rpma.ConnReq> {
    while (this.isEmpty) await new Promise<void>((resolve) => (this.#wake = resolve));
    const [[source, own]] = this.#bySource as unknown as [[string, rpma.ConnReq[]]];
    const request = own.shift()!;
    this.#count--;
    // Behind the other sources.
    this.#bySource.delete(source);
    if (own.length > 0) this.#bySource.set(source, own);
    return request;
  }
}

/** Serves clients until the end point is shut down. `privateData`: of the REP. */
export async function takeClients(
  ep: rpma.Ep,
  privateData: Uint8Array,
  answerer: FlushAnswerer,
): Promise<void> {
  const waiting = new Waiting();
  void takeTurns(waiting, privateData, answerer);
  for (;;) {
    try {
      const request = await ep.nextConnReq(withMessages(rpma.connCfgNew()));
      if (!waiting.add(request)) request.delete();
    } catch (error) {
      if (error instanceof rpma.RpmaError) return;
      complain('serve', describeError(error));
    }
  }
}

/** Serves waiting clients in turn until the process ends. */
async function takeTurns(
  waiting: Waiting,
  privateData: Uint8Array,
  answerer: FlushAnswerer,
): Promise<void> {
  for (;;) {
    const request = await waiting.next();
    try {
      answerer.prepare(request);
      const conn = request.connect(privateData);
      void answerer.answer(conn);
      if (await isEstablished(conn, waiting)) await conn.nextEvent();
      conn.delete();
    } catch (error) {
      request.delete();
      complain('serve', describeError(error));
    }
  }
}

/** Returns false if the connection failed, or took too long while another client waits. */
async function isEstablished(conn: rpma.Conn, waiting: Waiting): Promise<boolean> {
  const began = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setInterval(() => {
      if (!waiting.isEmpty && performance.now() - began > HALF_OPEN_MILLIS) resolve(false);
    }, LOOK_MILLIS).unref();
  });
  const ended = conn.nextEvent().then(
    (event) => event === rpma.ConnEvent.ESTABLISHED,
    () => false,
  );
  try {
    return await Promise.race([ended, late]);
  } finally {
    clearInterval(timer);
  }
}
