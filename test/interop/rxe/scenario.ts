/** Type of a scenario, and functions that all of them use. */
import assert from 'node:assert/strict';
import { SendFlag, WcStatusName, type Sge } from '../../../host/index.js';
import type { Completion, Peer, Region, Request } from './peer.js';

/** Two peers that are connected to each other. */
export interface Pair {
  readonly requester: Peer;
  readonly responder: Peer;
  readonly mtuBytes: number;
}

export interface Scenario {
  readonly name: string;
  readonly sgesMax?: number;
  /** Default 7: as often as it takes. */
  readonly rnrRetry?: number;
  /** The requester; by default each side in turn. */
  readonly requester?: Peer['name'];
  /** Default 7. */
  readonly retryCnt?: number;
  /** Default true. */
  readonly doubledFlushIcrc?: boolean;
  /** Added to the requester's first PSN, which the responder does not know of. */
  readonly psnAhead?: number;
  run(pair: Pair): Promise<void>;
}

/** Where in a peer's memory things lie: what is sent, received, and reached by others. */
export const SEND_OFFSET = 0;
export const RECEIVE_OFFSET = 256 * 1024;
export const TARGET_OFFSET = 512 * 1024;
export const PART_BYTES = 256 * 1024;
/** Of receives; no request has it. */
export const RECEIVE_ID = 1_000_000;
/** Nothing comes for so long: nothing will. */
export const SILENCE_MILLIS = 400;

/** Lengths that make a difference: empty, padded, at and around the path MTU, many packets. */
export function lengths(mtuBytes: number): number[] {
  return [0, 1, 5, 64, mtuBytes - 1, mtuBytes, mtuBytes + 1, 2 * mtuBytes, 3 * mtuBytes + 501];
}

export function sge({ region }: Peer, offset: number, length: number): Sge {
  return { addr: region.addr + BigInt(offset), length, lkey: region.lkey };
}

export function at({ addr, rkey }: Region, offset: number): NonNullable<Request['rdma']> {
  return { remoteAddr: addr + BigInt(offset), rkey };
}

/** Posts requests, each signalled, and waits for all; each must succeed. */
export async function perform(peer: Peer, ...requests: Request[]): Promise<void> {
  for (const [index, request] of requests.entries()) {
    await peer.postSend({ sendFlags: SendFlag.SIGNALED, wrId: index, ...request });
  }
  const done = await peer.poll(requests.length);
  assert.deepEqual(
    done.map(({ wrId, status }) => [Number(wrId), nameOf(status)]),
    requests.map((request, index) => [Number(request.wrId ?? index), 'SUCCESS']),
    `${peer.name}'s completions`,
  );
}

/** Posts one request; returns its status. */
export async function statusOf(peer: Peer, request: Request): Promise<string> {
  await peer.postSend({ sendFlags: SendFlag.SIGNALED, ...request });
  const [completion] = await peer.poll(1);
  return completion ? nameOf(completion.status) : 'no completion';
}

export function nameOf(status: number): string {
  return WcStatusName[status] ?? `${status}`;
}

/** The next receive, which must succeed. */
export async function received(peer: Peer): Promise<Completion> {
  const [completion] = await peer.poll(1);
  assert.ok(completion, `${peer.name} receives nothing`);
  assert.equal(nameOf(completion.status), 'SUCCESS', `${peer.name}'s receive`);
  return completion;
}

/** `length` bytes at `offset` are those of `seed`, and the 64 around them are as they were. */
export async function assertBytes(
  peer: Peer,
  offset: number,
  length: number,
  seed: number,
): Promise<void> {
  assert.equal(await peer.same(offset, length, seed), -1, `bytes at ${peer.name}`);
  const after = await peer.read(offset + length, 64);
  assert.ok(
    after.every((byte) => byte === 0),
    `bytes after those at ${peer.name} are written to`,
  );
}

/** So that `assertBytes` sees what was written. */
export function clear(peer: Peer, offset: number, length: number): Promise<void> {
  return peer.write(offset, new Uint8Array(length + 64));
}
