/**
 * The general-purpose method of librpma's example 09: the requester sends the range that is to be
 * persistent; the peer's program flushes it and answers. It needs neither FLUSH nor an adapter that
 * bypasses the processor's caches (DDIO off).
 *
 * ```
 *  request   09 offset  11 length  19 opContext     27 bytes: protobuf, fixed64, little-endian
 *  response  09 opContext                            9 bytes
 * ```
 */
import { checkObject } from '../base/options.js';
import { checkBytes } from '../errors/check-bytes.js';
import { WcOpcode, WcStatus } from '#build/abi.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { wcStatusStr } from '../verbs/queries/strings.js';
import type { Conn } from './conn.js';
import { Flag } from './constants.js';
import type { MrLocal } from './mr.js';

/** Range to make durable, in bytes from the region’s begin. */
export interface FlushRequest {
  readonly offset: bigint;
  readonly length: bigint;
  readonly opContext: bigint;
}

/** Of a field by its number: fixed64 is wire type 1. */
const tagOf = (field: number): number => (field << 3) | 1;
const FIELD_BYTES = 9;
/** Most bytes of a flush request on the wire. */
export const FLUSH_REQUEST_BYTES = 3 * FIELD_BYTES;
/** Most bytes of its answer on the wire. */
export const FLUSH_RESPONSE_BYTES = FIELD_BYTES;
/** Room for one message, with what newer programs may add. */
export const GPSPM_MESSAGE_BYTES = 512;

/** A flush request as its bytes on the wire. */
export function encodeFlushRequest(request: FlushRequest): Uint8Array {
  checkObject('encodeFlushRequest', request, 'request');
  for (const name of ['offset', 'length', 'opContext'] as const) {
    const type = typeof request[name];
    if (type !== 'bigint') throw new MisuseError(name, `must be a bigint, got ${type}`);
  }
  return encode([request.offset, request.length, request.opContext]);
}

/** Throws RefusalError EPROTO for what is no request. */
export function decodeFlushRequest(bytes: Uint8Array): FlushRequest {
  const [offset = 0n, length = 0n, opContext = 0n] = decode(bytes, 3);
  return { offset, length, opContext };
}

/** The answer to a flush request as its bytes on the wire. */
export function encodeFlushResponse(opContext: bigint): Uint8Array {
  if (typeof opContext !== 'bigint') {
    throw new MisuseError('opContext', `must be a bigint, got ${typeof opContext}`);
  }
  return encode([opContext]);
}

/** Throws RefusalError EPROTO for what is no response. */
export function decodeFlushResponse(bytes: Uint8Array): bigint {
  return decode(bytes, 1)[0] ?? 0n;
}

function encode(values: readonly bigint[]): Uint8Array {
  const bytes = new Uint8Array(values.length * FIELD_BYTES);
  const view = new DataView(bytes.buffer);
  values.forEach((value, index) => {
    view.setUint8(index * FIELD_BYTES, tagOf(index + 1));
    view.setBigUint64(index * FIELD_BYTES + 1, value, true);
  });
  return bytes;
}

/** Fields in any order; one that is left out is 0, and one that comes twice counts last. */
function decode(bytes: Uint8Array, count: number): bigint[] {
  checkBytes('bytes', bytes);
  const values: bigint[] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += FIELD_BYTES) {
    const tag = bytes[at]!;
    const field = tag >> 3;
    const isKnown = tag === tagOf(field) && field >= 1 && field <= count;
    if (!isKnown || at + FIELD_BYTES > bytes.length) {
      throw new RefusalError(
        'EPROTO',
        `flush message: it has ${tag} at byte ${at}; check that both sides run the same version`,
      );
    }
    values[field - 1] = view.getBigUint64(at + 1, true);
  }
  return values;
}

/** Where the messages lie: `count` places of GPSPM_MESSAGE_BYTES each way, in a SEND | RECV region. */
export interface GpspmMemory {
  readonly mr: MrLocal;
  /** Of the first place to send from, and of the first to receive into. */
  readonly sendOffset: number;
  readonly recvOffset: number;
}

/**
 * The server's side of one message: makes the range durable by `persist`, and answers. `received`:
 * what came. Throws RefusalError EPROTO for a stranger's message, EINVAL for a range outside of the
 * `bytes` bytes that may be flushed; rejects with what `persist` rejects with, and answers nothing.
 */
export async function answerFlushRequest(
  conn: Conn,
  memory: GpspmMemory,
  received: Uint8Array,
  bytes: number,
  persist: (offset: number, length: number) => Promise<void>,
): Promise<FlushRequest> {
  const request = decodeFlushRequest(received);
  const { offset, length, opContext } = request;
  if (offset > BigInt(bytes) || length > BigInt(bytes) - offset) {
    throw new RefusalError(
      'EINVAL',
      `answerFlushRequest: ${length} bytes at ${offset} exceed the memory; flush fewer bytes`,
    );
  }
  await persist(Number(offset), Number(length));
  const answer = encodeFlushResponse(opContext);
  memory.mr.getPtr().set(answer, memory.sendOffset);
  conn.send(memory.mr, memory.sendOffset, answer.length, Flag.COMPLETION_ALWAYS);
  return request;
}

/**
 * The client's side: everything that was written to these bytes before is durable when it resolves.
 * Completions of `conn.getCq()` are its own meanwhile. Rejects with RefusalError EIO (what failed),
 * EPROTO (an answer that answers nothing).
 */
export async function requestFlush(
  conn: Conn,
  memory: GpspmMemory,
  offset: number,
  length: number,
  opContext: bigint,
): Promise<void> {
  checkObject('requestFlush', memory, 'memory');
  const { mr, sendOffset, recvOffset } = memory;
  conn.recv(mr, recvOffset, GPSPM_MESSAGE_BYTES, opContext);
  const request = { offset: BigInt(offset), length: BigInt(length), opContext };
  const bytes = encodeFlushRequest(request);
  mr.getPtr().set(bytes, sendOffset);
  conn.send(mr, sendOffset, bytes.length, Flag.COMPLETION_ON_ERROR);
  const wc = await (conn.getRcq() ?? conn.getCq()).next();
  if (wc.status !== WcStatus.SUCCESS) {
    throw new RefusalError('EIO', `requestFlush: the flush failed: ${wcStatusStr(wc.status)}`);
  }
  const answer = mr.getPtr().slice(recvOffset, recvOffset + wc.byteLen);
  if (wc.opcode !== WcOpcode.RECV || decodeFlushResponse(answer) !== opContext) {
    throw new RefusalError(
      'EPROTO',
      'requestFlush: the answer names another flush; await one before the next',
    );
  }
}
