/**
 * The engine's codec for tests: whole packets in and out, through the exports of engine.wasm.
 *
 * A packet ends at the last byte of the memory, so that a read beyond it traps. The bytes before
 * it are noise.
 */
import { crc32 } from 'node:zlib';
import { PacketFieldsLayout, PacketStatus } from '#build/abi.js';
import { ArenaMemory } from '../../host/engine/arena.js';
import { structAt, type Struct } from '../../host/engine/struct.js';
import type { CapturedPacket } from '../../host/link/capture/pcap.js';
import { icrc } from './icrc.js';

/** Every field of every header; those of headers that a packet lacks are 0. */
export type Fields = Struct<typeof PacketFieldsLayout>;
export type FieldName = keyof Fields;
const FIELD_NAMES = Object.keys(PacketFieldsLayout.fields) as FieldName[];

/** The part of a packet in front of its BTH, as far as the ICRC covers it. */
export interface Flow {
  readonly ipVersion: 4 | 6;
  /** 4 or 16 bytes, network order. */
  readonly source: Uint8Array;
  readonly destination: Uint8Array;
  readonly sourcePort: number;
  readonly destinationPort: number;
  /** IPv4 identification; what Verbena sends has 0. */
  readonly ipId: number;
}

/** `doubled` is what Linux rxe makes of FLUSH requests. */
export type IcrcForm = 'standard' | 'doubled';

export interface Parsed {
  readonly status: PacketStatus;
  /** Not to be looked at unless the status is OK. */
  readonly fields: Fields;
  /** Did the parser leave every byte of the fields as it was? It has to, unless all is OK. */
  readonly isUntouched: boolean;
}

const ICRC_SIZE = 4;
const NOISE = 0xa5;
const UDP_SIZE = 8;
const IP_SIZE = { 4: 20, 6: 40 } as const;
/** Bytes of an IPv4 header behind the identification. */
const BEHIND_IP_ID = 14;

/** All fields 0, but those given. */
export function fieldsOf(given: Partial<Fields>): Fields {
  const fields: Record<string, number | bigint> = {};
  for (const [name, [, kind]] of Object.entries(PacketFieldsLayout.fields)) {
    fields[name] = kind === 'u64' ? 0n : 0;
  }
  return { ...fields, ...given } as Fields;
}

/** The addresses and ports of a captured packet. */
export function flowOf(packet: CapturedPacket): Flow {
  const { ipVersion, ipId, source, destination } = packet;
  const from = ipVersion === 4 ? 12 : 0;
  return {
    ipVersion,
    source: source.gid.bytes.subarray(from),
    destination: destination.gid.bytes.subarray(from),
    sourcePort: source.port,
    destinationPort: destination.port,
    ipId,
  };
}

/** IP and UDP header, then `packet`: what `icrc` of ./icrc.ts, the second opinion, wants. */
export function ipPacket(flow: Flow, packet: Uint8Array): Uint8Array {
  const ipSize = IP_SIZE[flow.ipVersion];
  const bytes = new Uint8Array(ipSize + UDP_SIZE + packet.length);
  const view = new DataView(bytes.buffer);
  if (flow.ipVersion === 4) {
    bytes.set([0x45, 0x12]);
    view.setUint16(2, bytes.length);
    view.setUint16(4, flow.ipId);
    bytes.set([0x40, 0, 0x3f, 17, 0x34, 0x56, ...flow.source, ...flow.destination], 6);
  } else {
    bytes.set([0x61, 0x23, 0x45, 0x67]);
    view.setUint16(4, bytes.length - ipSize);
    bytes.set([17, 0x3f, ...flow.source, ...flow.destination], 6);
  }
  view.setUint16(ipSize, flow.sourcePort);
  view.setUint16(ipSize + 2, flow.destinationPort);
  view.setUint16(ipSize + 4, UDP_SIZE + packet.length);
  view.setUint16(ipSize + 6, 0x789a);
  bytes.set(packet, ipSize + UDP_SIZE);
  return bytes;
}

/** The ICRC by zlib, without the engine. The last four bytes of `packet` do not count. */
export function zlibIcrc(flow: Flow, packet: Uint8Array, form: IcrcForm = 'standard'): number {
  const once = icrc(ipPacket(flow, packet));
  // A second time, and now as it is: without ones in byte 4.
  return form === 'standard' ? once : crc32(packet.subarray(0, packet.length - ICRC_SIZE), once);
}

/** Difference in the ICRC of a packet if its IP id is not 0. A CRC is linear. */
export function ipIdEffect(flow: Flow, packetLength: number, form: IcrcForm): number {
  if (flow.ipVersion !== 4 || flow.ipId === 0) return 0;
  const covered = packetLength - ICRC_SIZE;
  const behind = BEHIND_IP_ID + UDP_SIZE + covered + (form === 'doubled' ? covered : 0);
  const bytes = new Uint8Array(2 + behind);
  const without = crc32(bytes);
  new DataView(bytes.buffer).setUint16(0, flow.ipId);
  return (crc32(bytes) ^ without) >>> 0;
}

/** An arena of 1 MiB with one context, for calls that need little more than a scratch area. */
export function smallContext(shared: boolean): [arena: ArenaMemory, context: number] {
  const arena = ArenaMemory.create({
    memoryBytes: 2 ** 20,
    shared,
    regionsMax: 16,
    protectionDomainsMax: 4,
    contextsMax: 1,
  });
  const context = arena.createContext(
    0,
    (config) => {
      config.queuePairsMax = 4;
      config.completionQueuesMax = 4;
      config.rdAtomicMax = 4;
      config.sendBuffers = 1;
      config.receivePackets = 4;
      config.receiveBytes = 4096;
      config.eventsMax = 16;
      config.packetSizeMax = 4160;
    },
    0,
  );
  return [arena, context];
}

export class Codec {
  readonly #arena: ArenaMemory;
  readonly #context: number;
  readonly #fields: Fields;
  readonly #fieldsAddress: number;
  readonly #addresses: number;

  constructor(shared = false) {
    [this.#arena, this.#context] = smallContext(shared);
    const { heap, memory } = this.#arena;
    this.#fieldsAddress = heap.alloc(PacketFieldsLayout.size);
    this.#fields = structAt(memory, PacketFieldsLayout, this.#fieldsAddress);
    this.#addresses = heap.alloc(32);
    memory.bytes.fill(NOISE, memory.bytes.length - 65536);
  }

  /** Where a packet of this length lies: it ends with the memory. */
  #place(length: number): number {
    return this.#arena.memory.bytes.length - length;
  }

  parse(packet: Uint8Array): Parsed {
    const at = this.#place(packet.length);
    this.#arena.memory.bytes.set(packet, at);
    return this.parseInPlace(packet.length);
  }

  /** Parses the last `length` bytes of the memory, as they are. */
  parseInPlace(length: number): Parsed {
    const { exports, memory } = this.#arena;
    const end = this.#fieldsAddress + PacketFieldsLayout.size;
    const bytes = memory.bytes.subarray(this.#fieldsAddress, end).fill(NOISE);
    const at = this.#place(length);
    const status = exports.parse(this.#context, at, length, this.#fieldsAddress) as PacketStatus;
    const isUntouched = bytes.every((byte) => byte === NOISE);
    return { status, fields: this.#copyFields(), isUntouched };
  }

  /** The last `length` bytes of the memory: the packet that was parsed or covered last. */
  bytesInPlace(length: number): Uint8Array {
    return this.#arena.memory.bytes.slice(this.#place(length));
  }

  /** A struct's fields are accessors over the memory: these are values that stay. */
  #copyFields(): Fields {
    return Object.fromEntries(FIELD_NAMES.map((name) => [name, this.#fields[name]])) as Fields;
  }

  /** The bytes of all headers; none for an unknown opcode. */
  buildHeaders(fields: Partial<Fields>): Uint8Array {
    const { exports, memory } = this.#arena;
    // The builder takes no length. No packet has headers of more than 64 bytes.
    const at = this.#place(64);
    memory.bytes.fill(NOISE, at);
    Object.assign(this.#fields, fieldsOf(fields));
    const length = exports.build(this.#context, at, this.#fieldsAddress);
    return memory.bytes.slice(at, at + length);
  }

  /** A whole packet: headers, payload, as many zeros as the pad count says, ICRC. */
  build(
    fields: Partial<Fields>,
    payload: Uint8Array,
    flow: Flow,
    form: IcrcForm = 'standard',
  ): Uint8Array {
    const headers = this.buildHeaders(fields);
    const pad = (fields.padCount ?? 0) & 3;
    const packet = new Uint8Array(headers.length + payload.length + pad + ICRC_SIZE);
    packet.set(headers);
    packet.set(payload, headers.length);
    const value = this.icrc(flow, packet, form) ^ ipIdEffect(flow, packet.length, form);
    new DataView(packet.buffer).setUint32(packet.length - ICRC_SIZE, value, true);
    return packet;
  }

  /** The ICRC for IP id 0, whatever the flow says. */
  icrc(flow: Flow, packet: Uint8Array, form: IcrcForm = 'standard'): number {
    const { exports, memory } = this.#arena;
    const at = this.#place(packet.length);
    memory.bytes.set(packet, at);
    memory.bytes.set(flow.source, this.#addresses);
    memory.bytes.set(flow.destination, this.#addresses + 16);
    const compute = form === 'standard' ? exports.icrc : exports.icrcDoubled;
    const value = compute(
      this.#context,
      flow.ipVersion,
      this.#addresses,
      this.#addresses + 16,
      flow.sourcePort,
      flow.destinationPort,
      at,
      packet.length,
    );
    return value >>> 0;
  }

  /** The IP id that explains why a packet's ICRC differs from `icrc`; -1: none does. */
  ipIdOf(difference: number, packetLength: number, form: IcrcForm = 'standard'): number {
    const length = form === 'standard' ? packetLength : 2 * packetLength - ICRC_SIZE;
    return this.#arena.exports.ipIdOf(this.#context, difference, length);
  }
}

/** The ICRC that a packet carries. */
export function wireIcrc(packet: Uint8Array): number {
  const { buffer, byteOffset, length } = packet;
  return new DataView(buffer, byteOffset + length - ICRC_SIZE).getUint32(0, true);
}
