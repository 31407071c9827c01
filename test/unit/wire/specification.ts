/**
 * The opcodes and headers of the InfiniBand specification, volume 1, 9.2 and 9.3 (FLUSH and ATOMIC
 * WRITE: annex A19; CNP: annex A17), typed by hand. Nothing here comes from the engine.
 */
import { PacketStatus } from '#build/abi.js';
import type { FieldName, Fields } from '../../support/codec.js';

export type HeaderName =
  | 'DETH'
  | 'FETH'
  | 'RETH'
  | 'ATOMIC_ETH'
  | 'AETH'
  | 'ATOMIC_ACK_ETH'
  | 'IMM_DT'
  | 'IETH'
  | 'CNP_RESERVED'
  | 'SELECTIVE_ACK';

/** A header with some value: its fields, and the bytes they make. */
export interface HeaderSample {
  readonly size: number;
  readonly fields: Partial<Fields>;
  readonly bytes: string;
}

export const HEADERS: Readonly<Record<HeaderName, HeaderSample>> = {
  DETH: { size: 8, fields: { qkey: 0x80010000, sourceQp: 0x010203 }, bytes: '8001000000010203' },
  FETH: { size: 4, fields: { flush: 0x12 }, bytes: '00000012' },
  RETH: {
    size: 16,
    fields: { virtualAddress: 0xf1e2d3c4b5a69788n, key: 0x99aabbcc, dmaLength: 0x80000000 },
    bytes: 'f1e2d3c4b5a6978899aabbcc80000000',
  },
  ATOMIC_ETH: {
    size: 28,
    fields: {
      virtualAddress: 0xf1e2d3c4b5a69788n,
      key: 0x99aabbcc,
      swapAdd: 0x1011121314151617n,
      compare: 0xfefdfcfbfaf9f8f7n,
    },
    bytes: 'f1e2d3c4b5a6978899aabbcc1011121314151617fefdfcfbfaf9f8f7',
  },
  AETH: { size: 4, fields: { syndrome: 0x61, msn: 0xc0ffee }, bytes: '61c0ffee' },
  ATOMIC_ACK_ETH: {
    size: 8,
    fields: { original: 0x8899aabbccddeeffn },
    bytes: '8899aabbccddeeff',
  },
  IMM_DT: { size: 4, fields: { immediate: 0xcafe0001 }, bytes: 'cafe0001' },
  IETH: { size: 4, fields: { key: 0xdeadbe01 }, bytes: 'deadbe01' },
  CNP_RESERVED: { size: 16, fields: {}, bytes: '00'.repeat(16) },
  // Our own, not the specification's.
  SELECTIVE_ACK: {
    size: 16,
    fields: { aheadLow: 0x0102030405060708n, aheadHigh: 0xf0e0d0c0b0a09080n },
    bytes: '0102030405060708f0e0d0c0b0a09080',
  },
};

export const BTH_SIZE = 12;
export const ICRC_SIZE = 4;
/** BTH to ICRC: path MTU 4096 and all headers. */
export const PACKET_SIZE_MAX = 4160;

/** Bits of each field; the others are what the parser derives. */
export const FIELD_BITS: Readonly<Partial<Record<FieldName, number>>> = {
  virtualAddress: 64,
  swapAdd: 64,
  compare: 64,
  original: 64,
  aheadLow: 64,
  aheadHigh: 64,
  opcode: 8,
  targetQp: 24,
  psn: 24,
  pkey: 16,
  padCount: 2,
  solicited: 1,
  ackRequest: 1,
  migration: 1,
  congestion: 8,
  key: 32,
  dmaLength: 32,
  syndrome: 8,
  msn: 24,
  immediate: 32,
  qkey: 32,
  sourceQp: 24,
  flush: 32,
};

export interface OpcodeSpecification {
  readonly opcode: number;
  readonly name: string;
  /** BTH and the others. */
  readonly length: number;
  /** Behind the BTH, in wire order. */
  readonly headers: readonly HeaderName[];
  readonly hasPayload: boolean;
}

type Row = readonly [number, string, number, HeaderName[], 'payload'?];

/** SEND and RDMA WRITE, which RC and UC share. */
const STREAM: readonly Row[] = [
  [0x00, 'SEND_FIRST', 12, [], 'payload'],
  [0x01, 'SEND_MIDDLE', 12, [], 'payload'],
  [0x02, 'SEND_LAST', 12, [], 'payload'],
  [0x03, 'SEND_LAST_WITH_IMM', 16, ['IMM_DT'], 'payload'],
  [0x04, 'SEND_ONLY', 12, [], 'payload'],
  [0x05, 'SEND_ONLY_WITH_IMM', 16, ['IMM_DT'], 'payload'],
  [0x06, 'RDMA_WRITE_FIRST', 28, ['RETH'], 'payload'],
  [0x07, 'RDMA_WRITE_MIDDLE', 12, [], 'payload'],
  [0x08, 'RDMA_WRITE_LAST', 12, [], 'payload'],
  [0x09, 'RDMA_WRITE_LAST_WITH_IMM', 16, ['IMM_DT'], 'payload'],
  [0x0a, 'RDMA_WRITE_ONLY', 28, ['RETH'], 'payload'],
  [0x0b, 'RDMA_WRITE_ONLY_WITH_IMM', 32, ['RETH', 'IMM_DT'], 'payload'],
];

const OTHERS: readonly Row[] = [
  [0x0c, 'RC_RDMA_READ_REQUEST', 28, ['RETH']],
  [0x0d, 'RC_RDMA_READ_RESPONSE_FIRST', 16, ['AETH'], 'payload'],
  [0x0e, 'RC_RDMA_READ_RESPONSE_MIDDLE', 12, [], 'payload'],
  [0x0f, 'RC_RDMA_READ_RESPONSE_LAST', 16, ['AETH'], 'payload'],
  [0x10, 'RC_RDMA_READ_RESPONSE_ONLY', 16, ['AETH'], 'payload'],
  [0x11, 'RC_ACKNOWLEDGE', 16, ['AETH']],
  [0x12, 'RC_ATOMIC_ACKNOWLEDGE', 24, ['AETH', 'ATOMIC_ACK_ETH']],
  [0x13, 'RC_COMPARE_SWAP', 40, ['ATOMIC_ETH']],
  [0x14, 'RC_FETCH_ADD', 40, ['ATOMIC_ETH']],
  [0x16, 'RC_SEND_LAST_WITH_INVALIDATE', 16, ['IETH'], 'payload'],
  [0x17, 'RC_SEND_ONLY_WITH_INVALIDATE', 16, ['IETH'], 'payload'],
  [0x1c, 'RC_FLUSH', 32, ['FETH', 'RETH']],
  [0x1d, 'RC_ATOMIC_WRITE', 28, ['RETH'], 'payload'],
  [0x64, 'UD_SEND_ONLY', 20, ['DETH'], 'payload'],
  [0x65, 'UD_SEND_ONLY_WITH_IMM', 24, ['DETH', 'IMM_DT'], 'payload'],
  [0x81, 'CNP', 28, ['CNP_RESERVED']],
  [0xe0, 'MSP_SELECTIVE_ACKNOWLEDGE', 32, ['AETH', 'SELECTIVE_ACK'], 'payload'],
];

function specification([opcode, name, length, headers, payload]: Row): OpcodeSpecification {
  return { opcode, name, length, headers, hasPayload: payload === 'payload' };
}

export const OPCODES: readonly OpcodeSpecification[] = [
  ...STREAM.map(([opcode, name, ...rest]) => specification([opcode, `RC_${name}`, ...rest])),
  ...STREAM.map(([opcode, name, ...rest]) => specification([opcode + 0x20, `UC_${name}`, ...rest])),
  ...OTHERS.map(specification),
];

const byOpcode = new Map(OPCODES.map((row) => [row.opcode, row]));

export function opcodeSpecification(opcode: number): OpcodeSpecification | undefined {
  return byOpcode.get(opcode);
}

/** Fields of the BTH, which every packet has. */
const BTH_FIELDS: readonly FieldName[] = [
  'opcode',
  'targetQp',
  'psn',
  'pkey',
  'padCount',
  'solicited',
  'ackRequest',
  'migration',
  'congestion',
];

/** The fields that a packet of this opcode carries. */
export function fieldNamesOf({ headers }: OpcodeSpecification): Set<FieldName> {
  const names = headers.flatMap((header) => Object.keys(HEADERS[header].fields) as FieldName[]);
  return new Set([...BTH_FIELDS, ...names]);
}

/** All defects of these bytes. A parser may name any of them; without one, the packet is OK. */
export function defectsOf(bytes: Uint8Array): Set<PacketStatus> {
  const defects = new Set<PacketStatus>();
  if (bytes.length > PACKET_SIZE_MAX) defects.add(PacketStatus.TOO_LONG);
  if (bytes.length % 4 !== 0) defects.add(PacketStatus.UNALIGNED);
  if (bytes.length < BTH_SIZE + ICRC_SIZE) return defects.add(PacketStatus.TRUNCATED);
  const row = byOpcode.get(bytes[0]!);
  const pad = (bytes[1]! >> 4) % 4;
  if (bytes[1]! % 16 !== 0) defects.add(PacketStatus.VERSION);
  if (!row) return defects.add(PacketStatus.UNKNOWN_OPCODE);
  const least = row.length + ICRC_SIZE;
  if (bytes.length < least + pad) defects.add(PacketStatus.SHORT_HEADERS);
  if (!row.hasPayload && (bytes.length > least || pad > 0)) {
    defects.add(PacketStatus.UNEXPECTED_PAYLOAD);
  }
  return defects;
}
