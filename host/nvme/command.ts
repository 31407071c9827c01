/**
 * Commands and completions: 64 bytes and 16. One table of commands drives parse, build and
 * explain (Base 1.4 sections 4.2 and 4.6, Fabrics 1.1 sections 2.1, 3 and 6).
 */
import { CQE_BYTES, NvmeAdminOpcode, NvmeFabricsType, NvmeOpcode } from './constants.js';
import { NvmeStatus, SQE_BYTES, nvmeStatusName } from './constants.js';
import { readNumber, readWide, writeNumber, writeWide } from './structure.js';

/** Where a field lies in the entry: byte, bytes, and for what is no whole byte, shift and bits. */
interface CommandField {
  readonly at: number;
  readonly bytes: 1 | 2 | 3 | 4 | 8;
  readonly shift?: number;
  readonly bits?: number;
}
type CommandFields = Readonly<Record<string, CommandField>>;

interface CommandEntry {
  readonly opcode: number;
  readonly fctype?: number;
  /** Which queues know it. */
  readonly queue: 'admin' | 'io' | 'both';
  readonly fields: CommandFields;
}

const at = <Bytes extends CommandField['bytes']>(
  byte: number,
  bytes: Bytes,
): { readonly at: number; readonly bytes: Bytes } => ({ at: byte, bytes });
const bit = (byte: number, shift: number, bits = 1) =>
  ({ at: byte, bytes: 1, shift, bits }) as const;
const MOVE = { slba: at(40, 8), nlb: at(48, 2), fua: bit(51, 6) };

const SECURITY = { spsp0: at(41, 1), spsp1: at(42, 1), secp: at(43, 1), length: at(44, 4) };

const { FABRICS } = NvmeAdminOpcode;
/** In order of how often they come. */
export const COMMANDS = {
  READ: { opcode: NvmeOpcode.READ, queue: 'io', fields: MOVE },
  WRITE: { opcode: NvmeOpcode.WRITE, queue: 'io', fields: MOVE },
  FLUSH: { opcode: NvmeOpcode.FLUSH, queue: 'io', fields: {} },
  WRITE_ZEROES: { opcode: NvmeOpcode.WRITE_ZEROES, queue: 'io', fields: MOVE },
  DATASET_MANAGEMENT: {
    opcode: NvmeOpcode.DATASET_MANAGEMENT,
    queue: 'io',
    fields: { nr: at(40, 1), ad: bit(44, 2) },
  },
  KEEP_ALIVE: { opcode: NvmeAdminOpcode.KEEP_ALIVE, queue: 'admin', fields: {} },
  IDENTIFY: {
    opcode: NvmeAdminOpcode.IDENTIFY,
    queue: 'admin',
    fields: { cns: at(40, 1), cntid: at(42, 2), nvmsetid: at(44, 2), csi: at(47, 1) },
  },
  GET_LOG_PAGE: {
    opcode: NvmeAdminOpcode.GET_LOG_PAGE,
    queue: 'admin',
    fields: {
      lid: at(40, 1),
      lsp: bit(41, 0, 4),
      rae: bit(41, 7),
      numdl: at(42, 2),
      numdu: at(44, 2),
      lpo: at(48, 8),
    },
  },
  SET_FEATURES: {
    opcode: NvmeAdminOpcode.SET_FEATURES,
    queue: 'admin',
    fields: { fid: at(40, 1), sv: bit(43, 7), value: at(44, 4) },
  },
  GET_FEATURES: {
    opcode: NvmeAdminOpcode.GET_FEATURES,
    queue: 'admin',
    fields: { fid: at(40, 1), sel: bit(41, 0, 3), value: at(44, 4) },
  },
  ASYNC_EVENT_REQUEST: {
    opcode: NvmeAdminOpcode.ASYNC_EVENT_REQUEST,
    queue: 'admin',
    fields: {},
  },
  ABORT: {
    opcode: NvmeAdminOpcode.ABORT,
    queue: 'admin',
    fields: { sqid: at(40, 2), abortCid: at(42, 2) },
  },
  CONNECT: {
    opcode: FABRICS,
    fctype: NvmeFabricsType.CONNECT,
    queue: 'both',
    fields: {
      recfmt: at(40, 2),
      qid: at(42, 2),
      sqsize: at(44, 2),
      cattr: at(46, 1),
      kato: at(48, 4),
    },
  },
  PROPERTY_GET: {
    opcode: FABRICS,
    fctype: NvmeFabricsType.PROPERTY_GET,
    queue: 'admin',
    fields: { attrib: at(40, 1), ofst: at(44, 4) },
  },
  PROPERTY_SET: {
    opcode: FABRICS,
    fctype: NvmeFabricsType.PROPERTY_SET,
    queue: 'admin',
    fields: { attrib: at(40, 1), ofst: at(44, 4), value: at(48, 8) },
  },
  AUTHENTICATION_SEND: {
    opcode: FABRICS,
    fctype: NvmeFabricsType.AUTHENTICATION_SEND,
    queue: 'both',
    fields: SECURITY,
  },
  AUTHENTICATION_RECEIVE: {
    opcode: FABRICS,
    fctype: NvmeFabricsType.AUTHENTICATION_RECEIVE,
    queue: 'both',
    fields: SECURITY,
  },
} as const satisfies Readonly<Record<string, CommandEntry>>;

export type CommandName = keyof typeof COMMANDS;
type ValuesOf<F extends CommandFields> = {
  readonly [Name in keyof F]: F[Name]['bytes'] extends 8 ? bigint : number;
};
export type FieldsOf<Name extends CommandName> = ValuesOf<(typeof COMMANDS)[Name]['fields']>;

/** Where the data of a command is (Base 1.4 section 4.4, RDMA transport 1.0 section 3). */
export type Sgl =
  | { readonly kind: 'none' }
  /** In the capsule, behind the entry. */
  | { readonly kind: 'capsule'; readonly offset: number; readonly length: number }
  /** Memory of the host; `invalidate`: its key is to be invalidated with the answer. */
  | {
      readonly kind: 'keyed';
      readonly address: bigint;
      readonly length: number;
      readonly key: number;
      readonly invalidate: boolean;
    };

/** One of the table, whichever. */
export type Command = {
  [Name in CommandName]: {
    readonly name: Name;
    readonly cid: number;
    readonly nsid: number;
    readonly sgl: Sgl;
  } & FieldsOf<Name>;
}[CommandName];
export type CommandOf<Name extends CommandName> = Extract<Command, { readonly name: Name }>;

/** Command that cannot be served, with its status. */
export interface BadCommand {
  readonly name: undefined;
  readonly cid: number;
  readonly status: number;
}

const SGL_AT = 24;
const SGL_TYPE_AT = SGL_AT + 15;
/** Descriptor types and subtypes: data in the capsule; keyed, without and with invalidation. */
const SGL_OFFSET = 0x01;
const SGL_KEYED = 0x40;
const SGL_KEYED_INVALIDATE = 0x4f;
/** PSDT 01b: the entry has an SGL. Fabrics has no other. */
const PSDT_SGL = 0x40;

const ENTRIES = Object.entries(COMMANDS) as [CommandName, CommandEntry][];
/** Command names by queue kind, opcode and fabrics type. */
const BY_CODE = new Map<number, CommandName>();
for (const [name, { opcode, fctype = 0, queue }] of ENTRIES) {
  if (queue !== 'io') BY_CODE.set(opcode * 256 + fctype, name);
  if (queue !== 'admin') BY_CODE.set(65536 + opcode * 256 + fctype, name);
}

/** The fields as lists, for readers that iterate them. */
const FIELDS = new Map(ENTRIES.map(([name, { fields }]) => [name, Object.entries(fields)]));

/** Commands that set a queue up, before its user has it. */
export function isSetUp(name: CommandName): boolean {
  return COMMANDS[name].opcode === FABRICS && COMMANDS[name].queue === 'both';
}

/** The command identifier, whatever else is wrong. */
export function cidOf(entry: Uint8Array): number {
  return entry[2]! + entry[3]! * 256;
}

/** Parses an entry of a submission queue. `entry`: at least its 64 bytes. */
export function parseCommand(entry: Uint8Array, isAdmin: boolean): Command | BadCommand {
  const cid = cidOf(entry);
  const opcode = entry[0]!;
  const fctype = opcode === FABRICS ? entry[4]! : 0;
  const name = BY_CODE.get((isAdmin ? 0 : 65536) + opcode * 256 + fctype);
  if (name === undefined) return { name: undefined, cid, status: NvmeStatus.INVALID_OPCODE };
  // Neither fused commands nor PRPs.
  if ((entry[1]! & 0xc3) !== PSDT_SGL) {
    return { name: undefined, cid, status: NvmeStatus.INVALID_FIELD };
  }
  const sgl = parseSgl(entry);
  if (typeof sgl === 'number') return { name: undefined, cid, status: sgl };
  // A fabrics command has its type where others have the namespace.
  const nsid = opcode === FABRICS ? 0 : readNumber(entry, 4, 4);
  const values: Record<string, number | bigint> = {};
  for (const [field, place] of FIELDS.get(name)!) values[field] = readField(entry, place);
  return { name, cid, nsid, sgl, ...values } as Command;
}

/** Fields that are left out are 0. Returns the 64 bytes. */
export function buildCommand<Name extends CommandName>(
  name: Name,
  cid: number,
  fields: Partial<FieldsOf<Name>> & { readonly nsid?: number },
  sgl: Sgl = { kind: 'none' },
  into: Uint8Array = new Uint8Array(SQE_BYTES),
): Uint8Array {
  into.fill(0, 0, SQE_BYTES);
  const { opcode, fctype }: CommandEntry = COMMANDS[name];
  into[0] = opcode;
  into[1] = PSDT_SGL;
  writeNumber(into, 2, 2, cid);
  writeNumber(into, 4, 4, fctype ?? fields.nsid ?? 0);
  buildSgl(into, sgl);
  for (const [field, place] of FIELDS.get(name)!) {
    const value = (fields as Readonly<Record<string, number | bigint | undefined>>)[field];
    if (value !== undefined) writeField(into, place, value);
  }
  return into;
}

function readField(from: Uint8Array, { at, bytes, shift, bits }: CommandField): number | bigint {
  if (bytes === 8) return readWide(from, at);
  const value = readNumber(from, at, bytes);
  return bits === undefined ? value : (value >> (shift ?? 0)) & ((1 << bits) - 1);
}

function writeField(into: Uint8Array, place: CommandField, value: number | bigint): void {
  const { at, bytes, shift, bits } = place;
  if (typeof value === 'bigint') writeWide(into, at, value);
  else if (bits === undefined) writeNumber(into, at, bytes, value);
  else into[at]! |= (value & ((1 << bits) - 1)) << (shift ?? 0);
}

/** A number is the status that says what is wrong with it. */
function parseSgl(entry: Uint8Array): Sgl | number {
  const type = entry[SGL_TYPE_AT]!;
  if (type === SGL_KEYED || type === SGL_KEYED_INVALIDATE) {
    const length = readNumber(entry, SGL_AT + 8, 3);
    if (length === 0) return { kind: 'none' };
    const address = readWide(entry, SGL_AT);
    const key = readNumber(entry, SGL_AT + 11, 4);
    return { kind: 'keyed', address, length, key, invalidate: type === SGL_KEYED_INVALIDATE };
  }
  if (type === SGL_OFFSET) {
    const length = readNumber(entry, SGL_AT + 8, 4);
    const offset = readWide(entry, SGL_AT);
    if (offset > 0xffff_ffffn) return NvmeStatus.SGL_OFFSET_INVALID;
    return { kind: 'capsule', offset: Number(offset), length };
  }
  // Some say so that there is nothing.
  if (type === 0 && readNumber(entry, SGL_AT + 8, 4) === 0) return { kind: 'none' };
  return NvmeStatus.SGL_DESCRIPTOR_TYPE_INVALID;
}

function buildSgl(into: Uint8Array, sgl: Sgl): void {
  switch (sgl.kind) {
    case 'none':
      into[SGL_TYPE_AT] = SGL_KEYED;
      return;
    case 'capsule':
      writeWide(into, SGL_AT, BigInt(sgl.offset));
      writeNumber(into, SGL_AT + 8, 4, sgl.length);
      into[SGL_TYPE_AT] = SGL_OFFSET;
      return;
    case 'keyed':
      writeWide(into, SGL_AT, sgl.address);
      writeNumber(into, SGL_AT + 8, 3, sgl.length);
      writeNumber(into, SGL_AT + 11, 4, sgl.key >>> 0);
      into[SGL_TYPE_AT] = sgl.invalidate ? SGL_KEYED_INVALIDATE : SGL_KEYED;
  }
}

/** An entry of a completion queue. */
export interface Completion {
  /** Result in the format of the command. */
  readonly result: bigint;
  readonly sqhd: number;
  readonly sqid: number;
  readonly cid: number;
  /** As NvmeStatus has it, with DO_NOT_RETRY. */
  readonly status: number;
}

export function parseCompletion(from: Uint8Array): Completion {
  return {
    result: readWide(from, 0),
    sqhd: readNumber(from, 8, 2),
    sqid: readNumber(from, 10, 2),
    cid: readNumber(from, 12, 2),
    // Bit 0 is the phase, which fabrics do not have.
    status: readNumber(from, 14, 2) >> 1,
  };
}

export function buildCompletion(
  { result, sqhd, sqid, cid, status }: Completion,
  into: Uint8Array = new Uint8Array(CQE_BYTES),
): Uint8Array {
  writeWide(into, 0, result);
  writeNumber(into, 8, 2, sqhd);
  writeNumber(into, 10, 2, sqid);
  writeNumber(into, 12, 2, cid);
  writeNumber(into, 14, 2, status << 1);
  return into;
}

function explainSgl(sgl: Sgl): string {
  switch (sgl.kind) {
    case 'none':
      return '';
    case 'capsule':
      return `, ${sgl.length} bytes in the capsule`;
    case 'keyed': {
      const { address, length, key, invalidate } = sgl;
      const where = `0x${address.toString(16)} with key 0x${key.toString(16)}`;
      return `, ${length} bytes at ${where}${invalidate ? ' (to be invalidated)' : ''}`;
    }
  }
}

/** Describes a capsule; undefined if it is not a command. */
export function explainCapsule(capsule: Uint8Array, isAdmin: boolean): string | undefined {
  if (capsule.length < SQE_BYTES) return undefined;
  const command = parseCommand(capsule, isAdmin);
  if (command.name === undefined) return undefined;
  const { name, cid, nsid, sgl } = command;
  const values = FIELDS.get(name)!
    .map(([field]) => [field, (command as unknown as Record<string, number | bigint>)[field]!])
    .filter(([, value]) => Number(value) !== 0)
    .map(([field, value]) => ` ${String(field)} 0x${value!.toString(16)}`);
  const of = nsid === 0 ? '' : ` namespace ${nsid}`;
  return `NVMe ${name} ${cid}${of}${values.join('')}${explainSgl(sgl)}`;
}

/** A completion in a sentence. */
export function explainCompletion(bytes: Uint8Array): string | undefined {
  if (bytes.length !== CQE_BYTES) return undefined;
  const { cid, sqid, status, result } = parseCompletion(bytes);
  const said = result === 0n ? '' : `, result 0x${result.toString(16)}`;
  return `NVMe completion of ${cid} in queue ${sqid}: ${nvmeStatusName(status)}${said}`;
}
