/** One queue pair of two peers of the demo, and where each has its memory: their private data. */
import type { RdmaConnection } from '../cm/connect.js';
import { WcStatus, WcStatusName } from '../verbs/enums.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';

/** Purpose of a connection. Each has a queue pair of its own, so that none waits for another. */
export const Role = {
  /** WRITEs of what is painted. */
  PAINT: 0,
  /** READs of the other's memory, to be shown. */
  VIEW: 1,
  /** SENDs. */
  MESSAGE: 2,
  /** A queue pair that an act may break. */
  SPARE: 3,
  /** The called peer WRITEs, after a message, to memory that the caller names. */
  STAMP: 4,
  /** The called peer writes records, without end, into persistent memory that the caller names. */
  RECORD: 5,
} as const;
export type Role = (typeof Role)[keyof typeof Role];

/** Kind of a peer. */
export type PeerKind = 'tab' | 'node';

/** In the private data of both messages: role, kind, 0, 0, rkey, address, columns' key. */
export interface PrivateData {
  readonly role: Role;
  readonly kind: PeerKind;
  readonly rkey: number;
  readonly addr: bigint;
  /** Of the layout by which the picture is its columns, one after the other, from address 0. */
  readonly columnsKey: number;
}

const PRIVATE_DATA_BYTES = 20;

export function encodePrivateData({ role, kind, rkey, addr, columnsKey }: PrivateData): Uint8Array {
  const bytes = new Uint8Array(PRIVATE_DATA_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, role);
  view.setUint8(1, kind === 'node' ? 1 : 0);
  view.setUint32(4, rkey);
  view.setBigUint64(8, addr);
  view.setUint32(16, columnsKey);
  return bytes;
}

/** Undefined if the bytes are not private data of the demo. */
export function decodePrivateData(bytes: Uint8Array): PrivateData | undefined {
  const isWhole = bytes.length >= PRIVATE_DATA_BYTES;
  if (!isWhole || bytes[0]! > Role.RECORD || bytes[1]! > 1) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return {
    role: bytes[0] as Role,
    kind: bytes[1] === 1 ? 'node' : 'tab',
    rkey: view.getUint32(4),
    addr: view.getBigUint64(8),
    columnsKey: view.getUint32(16),
  };
}

export interface End {
  readonly connection: RdmaConnection;
  /** The other's memory. */
  readonly privateData: PrivateData;
}

/** Where something is in the other's memory. */
export function at({ privateData }: End, offset: number): { remoteAddr: bigint; rkey: number } {
  return { remoteAddr: privateData.addr + BigInt(offset), rkey: privateData.rkey };
}

/** Throws for what did not succeed. */
export function check(completions: readonly WorkCompletion[]): void {
  if (completions.length === 0) throw new Error('the device is closed');
  for (const { status } of completions) {
    if (status !== WcStatus.SUCCESS) {
      throw new Error(`a request ended with ${WcStatusName[status] ?? status}`);
    }
  }
}
