/**
 * The link of a device under attack: it delivers nothing by itself and looks at what the device
 * sends. The attacker writes packets straight into the device's receive area.
 */
import {
  ContextLayout,
  Opcode,
  RECEIVE_DESCRIPTOR_SIZE,
  ReceiveDescriptorLayout,
} from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import type { Endpoint, Gid, Link, LinkInfo, PacketBatch } from '../../host/index.js';
import type { Device } from '../../host/device/device.js';
import { CANARY_RUN } from './canary.js';

const OPCODES: ReadonlySet<number> = new Set(Object.values(Opcode));

/** Looks at every packet that leaves; keeps buffers when told to. */
export class SinkLink implements Link {
  readonly info: LinkInfo;
  /** Packets that left. */
  sent = 0;
  /** Runs when the device is in the middle of sending. */
  between: (() => void) | undefined;
  /** Called with every packet that is sent. */
  sees: ((bytes: Uint8Array) => void) | undefined;
  #holding = false;
  #held: PacketBatch[] = [];

  constructor(local: Endpoint, pseudoHeader: 'ip' | 'none') {
    this.info = {
      name: 'sink',
      pseudoHeader,
      local,
      packetSizeMax: 4160,
      windowBytes: 1 << 20,
      receiveBufferBytes: 1 << 20,
      multicast: true,
      // As data channels do.
      paced: pseudoHeader === 'none',
    };
  }

  open(): Promise<LinkInfo> {
    return Promise.resolve(this.info);
  }

  send(batch: PacketBatch): void {
    for (let index = 0; index < batch.count; index++) this.#look(batch.bytesOf(index));
    this.sent += batch.count;
    if (this.#holding) this.#held.push(batch);
    else batch.release();
    this.between?.();
  }

  /** From now on buffers are kept, or given back. */
  hold(holding: boolean): void {
    this.#holding = holding;
    if (holding) return;
    for (const batch of this.#held.splice(0)) batch.release();
  }

  join(): void {}

  leave(): void {}

  close(): Promise<void> {
    return Promise.resolve();
  }

  /** A sent packet parses, and carries no byte of protected memory. */
  #look(bytes: Uint8Array): void {
    const whole = bytes.length >= 16 && bytes.length <= 4160 && bytes.length % 4 === 0;
    if (!whole || !OPCODES.has(bytes[0]!)) {
      throw new Error(`sent ${Buffer.from(bytes).toString('hex')}, which is no packet`);
    }
    this.sees?.(bytes);
    if (bytes.length < 40) return;
    const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    if (view.includes(CANARY_RUN)) throw new Error('sent bytes that were not granted');
  }
}

const FIELD = ReceiveDescriptorLayout.fields;

/** The device's receive area: packets are written one behind another and handed over together. */
export class Intake {
  readonly #device: Device;
  readonly #words: Uint32Array;
  readonly #descriptors: number;
  readonly #area: number;
  readonly #end: number;
  readonly #most: number;
  #used: number;
  #count = 0;
  /** Bytes and packets handed over so far. */
  bytes = 0;
  packets = 0;
  /** How often packets were handed over. */
  flushes = 0;

  constructor(device: Device) {
    const context = structAt(device.arena.memory, ContextLayout, device.engine.context);
    this.#device = device;
    this.#words = device.arena.memory.words;
    this.#descriptors = context.receiveDescriptors >> 2;
    this.#area = context.receiveArea;
    this.#end = context.receiveArea + context.receiveBytes;
    this.#most = context.receivePackets;
    this.#used = this.#area;
  }

  /** Packets that wait to be handed over. */
  get waiting(): number {
    return this.#count;
  }

  /** Where the next packet is to be written: room for at least 8 KiB. */
  next(): number {
    if (this.#count === this.#most || this.#used + 8192 > this.#end) this.flush();
    return this.#used;
  }

  /** Adds the packet of `length` bytes at `next()`. */
  add(length: number, source: Gid, port: number, group: Gid | undefined): void {
    const at = this.#descriptors + ((this.#count++ * RECEIVE_DESCRIPTOR_SIZE) >> 2);
    const words = this.#words;
    words.set(source.words, at + (FIELD.sourceGid0[0] >> 2));
    const target = at + (FIELD.targetGid0[0] >> 2);
    if (group) words.set(group.words, target);
    else words.fill(0, target, target + 4);
    words[at + (FIELD.address[0] >> 2)] = this.#used;
    words[at + (FIELD.length[0] >> 2)] = length;
    words[at + (FIELD.sourcePort[0] >> 2)] = port;
    words[at + (FIELD.segmentSize[0] >> 2)] = 0;
    this.#used += length;
    this.bytes += length;
    this.packets++;
  }

  /** Hands over what waits as one range, cut where the first packet ends and as often again. */
  flushSegmented(): void {
    if (this.#count === 0) return;
    const at = this.#descriptors;
    const size = this.#words[at + (FIELD.length[0] >> 2)]!;
    const total = this.#used - this.#area;
    this.#words[at + (FIELD.length[0] >> 2)] = total;
    this.#words[at + (FIELD.segmentSize[0] >> 2)] = size;
    this.packets -= this.#count;
    this.packets += size === 0 ? 1 : Math.ceil(total / size);
    this.#count = 1;
    this.flush();
  }

  flush(): void {
    if (this.#count === 0) return;
    const { arena, engine, clock } = this.#device;
    const count = this.#count;
    this.#count = 0;
    this.#used = this.#area;
    this.flushes++;
    arena.exports.receivePackets(engine.context, count, clock.now());
    engine.drain();
  }
}
