/**
 * The general-purpose method (rpma/gpspm.ts) with several messages in flight: `serve --pmem` makes
 * the named ranges durable and answers; `rpma bench` measures it.
 */
import type { Context } from '../../index.js';
import * as rpma from '../../rpma/index.js';
import { RefusalError } from '../../errors/errors.js';
import { WcStatus } from '../../verbs/enums.js';
import { wcStatusStr } from '../../verbs/queries/strings.js';
import { complain, describeError } from '../base/report.js';

/** Messages under way at a time, each way. */
export const FLUSH_MESSAGES_MAX = 64;
const { GPSPM_MESSAGE_BYTES: PLACE_BYTES } = rpma;

/** Sets the queue sizes that a connection needs for these messages. */
export function withMessages(cfg: rpma.ConnCfg): rpma.ConnCfg {
  cfg.setRqSize(FLUSH_MESSAGES_MAX);
  cfg.setRcqSize(FLUSH_MESSAGES_MAX);
  return cfg;
}

/** Places to send from, then places to receive into. */
class Places {
  readonly mr: rpma.MrLocal;

  constructor(peer: rpma.Peer, context: Context) {
    const memory = context.alloc(2 * FLUSH_MESSAGES_MAX * PLACE_BYTES);
    this.mr = peer.mrReg(memory, rpma.MrUsage.SEND | rpma.MrUsage.RECV);
  }

  of(place: number): rpma.GpspmMemory {
    const recvOffset = (FLUSH_MESSAGES_MAX + place) * PLACE_BYTES;
    return { mr: this.mr, sendOffset: place * PLACE_BYTES, recvOffset };
  }

  received(place: number, length: number): Uint8Array {
    const { recvOffset } = this.of(place);
    return this.mr.getPtr().slice(recvOffset, recvOffset + length);
  }
}

/** The server's side, for one connection after the other. */
export class FlushAnswerer {
  readonly #places: Places;
  readonly #bytes: number;
  readonly #persist: (offset: number, length: number) => Promise<void>;

  /** `bytes`: of the memory that `persist` makes durable. */
  constructor(
    peer: rpma.Peer,
    context: Context,
    bytes: number,
    persist: (offset: number, length: number) => Promise<void>,
  ) {
    this.#places = new Places(peer, context);
    this.#bytes = bytes;
    this.#persist = persist;
  }

  /** Receives that are there before the other side can send. */
  prepare(request: rpma.ConnReq): void {
    for (let place = 0; place < FLUSH_MESSAGES_MAX; place++) {
      const { mr, recvOffset } = this.#places.of(place);
      request.recv(mr, recvOffset, PLACE_BYTES, place);
    }
  }

  /** Answers until the connection ends; a stranger's message ends it. */
  async answer(conn: rpma.Conn): Promise<void> {
    try {
      for (;;) {
        const { status, wrId, byteLen } = await conn.getRcq()!.next();
        if (status !== WcStatus.SUCCESS) return;
        void this.#answerOne(conn, Number(wrId), byteLen);
      }
    } catch {
      // Its queue is gone, and so is the connection.
    }
  }

  async #answerOne(conn: rpma.Conn, place: number, length: number): Promise<void> {
    const memory = this.#places.of(place);
    try {
      const received = this.#places.received(place, length);
      await rpma.answerFlushRequest(conn, memory, received, this.#bytes, this.#persist);
      conn.getCq().getWc(FLUSH_MESSAGES_MAX);
      conn.recv(memory.mr, memory.recvOffset, PLACE_BYTES, place);
    } catch (error) {
      complain('serve', describeError(error));
      try {
        conn.disconnect();
      } catch {
        // It ended meanwhile.
      }
    }
  }
}

interface Asked {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** The client's side of one connection. */
export class FlushAsker {
  readonly #conn: rpma.Conn;
  readonly #places: Places;
  readonly #free = Array.from({ length: FLUSH_MESSAGES_MAX }, (_, place) => place);
  readonly #asked = new Map<number, Asked>();

  constructor(peer: rpma.Peer, context: Context, conn: rpma.Conn) {
    this.#conn = conn;
    this.#places = new Places(peer, context);
    for (const place of this.#free) this.#receive(place);
    void this.#listen();
  }

  /**
   * Makes earlier WRITEs to these bytes durable. Rejects with RefusalError EIO (the connection
   * failed), EAGAIN (too many are under way).
   */
  flush(offset: number, length: number): Promise<void> {
    const place = this.#free.pop();
    if (place === undefined) {
      return Promise.reject(
        new RefusalError('EAGAIN', 'flush: too many messages are in flight; await some first'),
      );
    }
    const { mr, sendOffset } = this.#places.of(place);
    const opContext = BigInt(place);
    const request = { offset: BigInt(offset), length: BigInt(length), opContext };
    const bytes = rpma.encodeFlushRequest(request);
    mr.getPtr().set(bytes, sendOffset);
    return new Promise((resolve, reject) => {
      this.#asked.set(place, { resolve, reject });
      this.#conn.send(mr, sendOffset, bytes.length, rpma.Flag.COMPLETION_ON_ERROR);
    });
  }

  #receive(place: number): void {
    const { mr, recvOffset } = this.#places.of(place);
    this.#conn.recv(mr, recvOffset, PLACE_BYTES, place);
  }

  async #listen(): Promise<void> {
    try {
      for (;;) {
        const { status, wrId, byteLen } = await this.#conn.getRcq()!.next();
        if (status !== WcStatus.SUCCESS) throw new RefusalError('EIO', wcStatusStr(status));
        const answered = Number(
          rpma.decodeFlushResponse(this.#places.received(Number(wrId), byteLen)),
        );
        this.#receive(Number(wrId));
        const asked = this.#asked.get(answered);
        if (!asked)
          throw new RefusalError(
            'EPROTO',
            'flush: the server answered one that was not sent; check that both sides run ' +
              'the same version',
          );
        this.#asked.delete(answered);
        this.#free.push(answered);
        asked.resolve();
      }
    } catch (error) {
      for (const { reject } of this.#asked.values()) reject(error as Error);
      this.#asked.clear();
    }
  }
}
