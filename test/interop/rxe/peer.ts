/**
 * One side of a connection, ours or Linux's: what scenarios are written against, so that each runs
 * in both roles. A peer has one queue pair, one completion queue, and memory of which all is
 * registered with every access.
 */
import type { AnyRequest } from '../../support/any-request.js';

export const MEMORY_BYTES = 2 ** 20;
export const QKEY = 0x11111111;
/** Of what does come: on a machine that does other things, too. */
export const FIRST_WAIT_MILLIS = 60_000;
export const EVENT_MILLIS = 100;

/** Memory that keys open. */
export interface Region {
  /** Of its first byte, as work requests and peers name it. */
  readonly addr: bigint;
  readonly length: number;
  readonly lkey: number;
  readonly rkey: number;
}

/** Fields of an `ibv_wc` that the scenarios compare. */
export interface Completion {
  readonly wrId: bigint;
  readonly status: number;
  readonly opcode: number;
  readonly byteLen: number;
  readonly wcFlags: number;
  /** Immediate data, or the key that was invalidated. */
  readonly immData: number;
  readonly srcQp: number;
}

/** `ibv_send_wr` without an address handle: a UD peer has one, of its only partner. */
export type Request = Omit<AnyRequest, 'ud' | 'inline'> & {
  /** UD. Default: the peer's Q_Key. */
  readonly qkey?: number;
};

export interface PeerOptions {
  /** A QpType. */
  readonly qpType: number;
  readonly isIpv6: boolean;
  readonly sgesMax?: number;
  /** Ours: of the way to the guest, in milliseconds. Default 0. */
  readonly rttMillis?: number;
}

export interface ConnectOptions {
  /** Bytes. */
  readonly mtuBytes: number;
  readonly sqPsn: number;
  readonly rqPsn: number;
  /** 4.096 us * 2^timeout. */
  readonly timeout: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
  readonly minRnrTimer: number;
  /** Ours: FLUSH requests have the ICRC that rxe wants. Default true. */
  readonly doubledFlushIcrc?: boolean;
}

export interface Peer {
  readonly name: 'Linux' | 'Verbena';
  readonly qpType: number;
  readonly address: string;
  readonly qpn: number;
  /** All of its memory. */
  readonly region: Region;
  /** Part of its memory, with other access. */
  regMr(access: number, offset: number, length: number): Promise<Region>;
  /** Part of its memory that remote WRITEs reach by a key which SEND_WITH_INV may kill. */
  regInvalidatable(offset: number, length: number): Promise<Region>;
  connect(peer: Peer, options: ConnectOptions): Promise<void>;
  postRecv(wrId: number, sgList: Request['sgList']): Promise<void>;
  postSend(request: Request): Promise<void>;
  /** Waits for `count` completions; returns fewer when nothing comes for `millis`. */
  poll(count: number, millis?: number): Promise<readonly Completion[]>;
  /** The next solicited receive, or error, is an event. */
  armSolicited(): Promise<void>;
  /** There was one since, or is within `EVENT_MILLIS`: an event comes behind its completion. */
  hadEvent(): Promise<boolean>;
  /** A QpState. */
  state(): Promise<number>;
  /** Bytes without a period, the same for the same seed. */
  fill(offset: number, length: number, seed: number): Promise<void>;
  /** The offset of the first byte that is not as `fill` would make it; -1: none. */
  same(offset: number, length: number, seed: number): Promise<number>;
  read(offset: number, length: number): Promise<Buffer>;
  write(offset: number, bytes: Uint8Array): Promise<void>;
  close(): Promise<void>;
}
