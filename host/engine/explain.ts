/**
 * Sentences: what a packet says, what a status means, what a text of options holds. The text module
 * (assembly/explain.ts) is loaded at first use; it shares nothing with any engine.
 */
import { MisuseError } from '../errors/errors.js';
import { moduleBytes } from './module-bytes.js';
import { textModule } from './text-module.js';

/** BTH. `name` is the opcode's name, null for an unknown opcode. */
export interface BthDescription {
  opcode: number;
  name: string | null;
  solicited: boolean;
  migration: boolean;
  padCount: number;
  version: number;
  pkey: number;
  fecn: boolean;
  becn: boolean;
  targetQp: number;
  ackRequest: boolean;
  psn: number;
}

/** AETH, with what its kind says. */
export interface AethDescription {
  syndrome: number;
  kind: 'ACK' | 'RNR_NAK' | 'NAK' | 'RESERVED';
  /** Of an ACK that counts credits: how many messages there is room for. */
  credits?: number;
  /** Of an RNR NAK. */
  waitMicros?: number;
  /** Of a NAK: a name of NakCode, or RESERVED. */
  code?: string;
  msn: number;
}

/** A packet; of the headers those that it has, in wire order. 64-bit numbers are `0x…` strings. */
export interface DecodedPacket {
  status: 'OK';
  /** Bytes, BTH to ICRC. */
  length: number;
  bth: BthDescription;
  deth?: { qkey: number; sourceQp: number };
  feth?: {
    selectivity: 'RANGE' | 'MR' | 'RESERVED';
    placement: ('GLOBAL' | 'PERSISTENT')[];
  };
  reth?: { virtualAddress: string; key: number; dmaLength: number };
  atomicEth?: { virtualAddress: string; key: number; swapAdd: string; compare: string };
  aeth?: AethDescription;
  atomicAckEth?: { original: string };
  immDt?: { immediate: number };
  ieth?: { key: number };
  cnpReserved?: Record<string, never>;
  /** PSNs 1..64 and 65..128 behind the BTH's that have arrived, least significant bit first. */
  selectiveAck?: { aheadLow: string; aheadHigh: string };
  /** Without pad; `offset` counts from the BTH. */
  payload: { offset: number; length: number };
  /** The ICRC on the wire as one number, `0x…`. It is not checked here: that takes addresses. */
  icrc: string;
}

/** Bytes that are no packet. */
export interface MalformedPacket {
  status:
    | 'TRUNCATED'
    | 'UNKNOWN_OPCODE'
    | 'SHORT_HEADERS'
    | 'VERSION'
    | 'UNALIGNED'
    | 'TOO_LONG'
    | 'UNEXPECTED_PAYLOAD';
  length: number;
  /** The fault, with its numbers. */
  reason: string;
  /** Decoding of the first 12 bytes, if there are that many. */
  bth?: BthDescription;
}

/** A packet as its parser found it. */
export type PacketDescription = DecodedPacket | MalformedPacket;

/** Value of an option of a device. */
export type OptionValue = string | number | boolean;

/** Exports of the module with strings and typed arrays. */
interface ExplainExports {
  explainPacket(packet: Uint8Array): string;
  explainFields(packet: Uint8Array): string;
  explainWcStatus(status: number, vendorErr: number): string;
  explainSyndrome(syndrome: number): string;
  explainPacketStatus(status: number): string;
  explainAsyncEvent(event: number): string;
  explainErrno(errno: number): string;
  parseConfig(text: string): string;
}

type ParsedConfig =
  | { values: Record<string, OptionValue> }
  | { error: { line: number; column: number; message: string } };

let loaded: ExplainExports | undefined;

function sentences(): ExplainExports {
  return (loaded ??= textModule<ExplainExports>(moduleBytes('explain')));
}

/** One sentence about a packet, BTH to ICRC, or about what is wrong with it. Takes any bytes. */
export function explainPacket(bytes: Uint8Array): string {
  checkBytes(bytes);
  return sentences().explainPacket(bytes);
}

/** The header fields of a packet, BTH to ICRC. Takes any bytes. */
export function explainFields(bytes: Uint8Array): PacketDescription {
  checkBytes(bytes);
  return JSON.parse(sentences().explainFields(bytes)) as PacketDescription;
}

function checkBytes(bytes: unknown): void {
  if (bytes instanceof Uint8Array) return;
  throw new MisuseError('bytes', `must be the Uint8Array of a packet, got ${typeof bytes}`);
}

/**
 * A completion status (`ibv_wc_status`): meaning, likely cause, remedy. `vendorErr` of the completion
 * says more of RETRY_EXC_ERR: that the path MTU is too large. Default 0.
 */
export function explainWcStatus(status: number, vendorErr = 0): string {
  return sentences().explainWcStatus(status, vendorErr);
}

/** An AETH syndrome, one byte: meaning, and what follows. */
export function explainSyndrome(syndrome: number): string {
  return sentences().explainSyndrome(syndrome);
}

/** Why the engine refused a packet (PacketStatus). */
export function explainPacketStatus(status: number): string {
  return sentences().explainPacketStatus(status);
}

/** An asynchronous event (`ibv_event_type`): meaning, and what to do. */
export function explainAsyncEvent(event: number): string {
  return sentences().explainAsyncEvent(event);
}

/** An errno that a verb was refused with: meaning, and what to try. */
export function explainErrno(errno: number): string {
  return sentences().explainErrno(errno);
}

/**
 * Options as text: `name=value`, parted by commas, semicolons or line ends; `#` begins a comment.
 * Sizes (`64k`, `1M`) become bytes, durations (`5ms`) microseconds. Throws a MisuseError that
 * names line and column.
 */
export function parseConfig(options: string): Record<string, OptionValue> {
  const parsed = JSON.parse(sentences().parseConfig(options)) as ParsedConfig;
  if ('values' in parsed) return parsed.values;
  const { line, column, message } = parsed.error;
  throw new MisuseError('config', `line ${line}, column ${column}: ${message}`);
}
