/**
 * The first message of each side: the regions that it shares. JSON with arrays in place of objects
 * that have names as keys. A message of the peer is hostile: each field is checked.
 */
import { protocolError } from './remote-error.js';

/** In the private data of REQ and REP: the protocol of this folder, and its version. */
export const PROTOCOL: Uint8Array = new TextEncoder().encode('verbena.share/1');
export const HELLO_BYTES_MAX = 64 * 1024;
export const REGIONS_MAX = 1024;
export const NAME_CHARACTERS_MAX = 128;

/** Bits of the rights of a region, as on the wire. */
export const RightBit = { READ: 1, WRITE: 2, ATOMIC: 4, PERSISTENT: 8, FLUSH: 16 } as const;
const RIGHT_BITS = 31;

/** A region as its owner describes it. */
export interface RegionDescription {
  readonly name: string;
  /** The address of its first byte for work requests. */
  readonly addr: bigint;
  /** Bytes. */
  readonly length: number;
  readonly rkey: number;
  /** Made of RightBit. */
  readonly rights: number;
}

export interface Hello {
  /** The instance of this side. */
  readonly id: bigint;
  /** Of a client: proves that its place is its own (`client-places.ts`). */
  readonly secret?: string | undefined;
  /** The longest message that this side accepts, in bytes. */
  readonly messageBytesMax: number;
  readonly regions: readonly RegionDescription[];
  /** Names and bytes of regions that this side wants from the other one. */
  readonly wanted: readonly (readonly [name: string, bytes: number])[];
  /** Why the server does not serve this client. */
  readonly refusal?: string | undefined;
}

export const hex = (value: bigint): string => value.toString(16);

export function buildHello(hello: Hello): Uint8Array {
  const { id, secret, messageBytesMax, regions, wanted, refusal } = hello;
  const list = regions.map(({ name, addr, length, rkey, rights }) => [
    name,
    hex(addr),
    length,
    rkey >>> 0,
    rights,
  ]);
  const fields = { id: hex(id), secret, messageBytesMax, regions: list, wanted, refusal };
  return new TextEncoder().encode(JSON.stringify(fields));
}

/** Throws RemoteError EPROTO. */
export function parseHello(operation: string, bytes: Uint8Array): Hello {
  const wrong = (what: string): Error =>
    protocolError(operation, `the first message of the peer has an invalid ${what}`);
  let fields: Record<string, unknown>;
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    fields = JSON.parse(text) as Record<string, unknown>;
  } catch {
    throw wrong('form');
  }
  if (typeof fields !== 'object' || fields === null) throw wrong('form');
  const { secret, messageBytesMax, refusal } = fields;
  if (!isWhole(messageBytesMax)) throw wrong('messageBytesMax');
  if (refusal !== undefined && !isText(refusal, 1024)) throw wrong('refusal');
  if (secret !== undefined && !isText(secret, 16)) throw wrong('secret');
  const id = parseHex(fields['id']);
  if (id === undefined) throw wrong('id');
  const wanted = listOf(fields['wanted'], parseWanted);
  if (!wanted) throw wrong('wanted');
  const regions = listOf(fields['regions'], parseRegion);
  if (!regions) throw wrong('regions');
  return { id, secret, messageBytesMax, regions, wanted, refusal };
}

/** @internal A region in a handle, or in a message; undefined: invalid. */
export function parseRegion(entry: unknown): RegionDescription | undefined {
  if (!Array.isArray(entry) || entry.length !== 5) return undefined;
  const [name, addrHex, length, rkey, rights] = entry as unknown[];
  const addr = parseHex(addrHex);
  const isValid =
    isText(name, NAME_CHARACTERS_MAX) &&
    addr !== undefined &&
    isWhole(length) &&
    length > 0 &&
    addr + BigInt(length) <= 1n << 64n &&
    isWhole(rkey, 2 ** 32 - 1) &&
    isWhole(rights, RIGHT_BITS);
  return isValid ? { name, addr, length, rkey, rights } : undefined;
}

function parseWanted(entry: unknown): readonly [string, number] | undefined {
  if (!Array.isArray(entry) || entry.length !== 2) return undefined;
  const [name, bytes] = entry as unknown[];
  if (!isText(name, NAME_CHARACTERS_MAX) || !isWhole(bytes, 2 ** 32) || bytes === 0) {
    return undefined;
  }
  return [name, bytes];
}

/** A list whose entries are valid and have different names; undefined otherwise. */
function listOf<T extends { readonly name: string } | readonly [string, number]>(
  value: unknown,
  parse: (entry: unknown) => T | undefined,
): T[] | undefined {
  if (!Array.isArray(value) || value.length > REGIONS_MAX) return undefined;
  const found: T[] = [];
  const names = new Set<string>();
  for (const entry of value as unknown[]) {
    const one = parse(entry);
    if (!one) return undefined;
    names.add('name' in one ? one.name : one[0]);
    found.push(one);
  }
  return names.size === found.length ? found : undefined;
}

function isWhole(value: unknown, most = Number.MAX_SAFE_INTEGER): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= most;
}

function isText(value: unknown, most: number): value is string {
  return typeof value === 'string' && value.length > 0 && value.length <= most;
}

function parseHex(value: unknown): bigint | undefined {
  if (typeof value !== 'string' || !/^[0-9a-f]{1,16}$/.test(value)) return undefined;
  return BigInt(`0x${value}`);
}

/** Does the private data of a REQ or REP name this protocol? */
export function speaksProtocol(privateData: Uint8Array): boolean {
  // Private data is padded with zeros.
  return PROTOCOL.every((byte, at) => privateData[at] === byte);
}
