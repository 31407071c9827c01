/**
 * A real device, and the test as its peer: packets made by hand go in, with a right ICRC unless the
 * test says otherwise, and every packet that comes out is taken apart, its ICRC checked by zlib.
 * Nothing runs by itself; `clock` is virtual.
 */
import * as assert from 'uvu/assert';
import {
  AsyncEventName,
  CountersLayout,
  Opcode,
  OpcodeName,
  PacketStatus,
  PacketStatusName,
} from '#build/abi.js';
import {
  AccessFlag,
  Endpoint,
  Mtu,
  QpState,
  QpType,
  VirtualClock,
  WcStatusName,
  openDevice,
  type Context,
  type Gid,
  type Link,
  type LinkInfo,
  type LinkReceiver,
  type OpenOptions,
  type PacketBatch,
  type QpAttributes,
  type QpInitAttributes,
  type ReceiveWorkRequest,
  type SendWorkRequest,
  type Sge,
} from '../../host/index.js';
import { Codec, wireIcrc, zlibIcrc, type Fields, type Flow } from './codec.js';
import { QUEUE_PAIRS_MAX, WINDOW_PACKETS, type Side } from './pair.js';

/** Every access that works today. */
export const FULL_ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC;

/** The queue pair number that the test plays, and where it lives. */
const PEER_QPN = 0x51;
export const PEER = Endpoint.parse('127.0.0.2', 4791);
const LOCAL = Endpoint.parse('127.0.0.1', 4791);
const ICRC_SIZE = 4;

const codec = new Codec();

/** A packet that the device sent. */
export interface Packet extends Fields {
  readonly name: string;
  readonly payload: Uint8Array;
  readonly bytes: Uint8Array;
  readonly destination: Endpoint;
}

/** Fields that `expectPacket` compares; `payload` as well when it is there. */
export type Expected = Partial<Fields> & { readonly payload?: Uint8Array };

export interface WireOptions {
  readonly qp?: Partial<QpInitAttributes>;
  readonly device?: Partial<OpenOptions>;
  readonly mtu?: number;
  readonly bytes?: number;
  /** Changes of the attributes that connect the queue pair. */
  readonly attributes?: QpAttributes;
  /** Selective repeat: packets that both sides keep when they come ahead. */
  readonly reorderPackets?: number;
  /** The test is a peer of our own kind. */
  readonly ownKind?: boolean;
  /** The link keeps bytes whole: packets of both sides have 0 in place of the ICRC. */
  readonly skipIcrc?: boolean;
  /** How far the queue pair is taken. Default RTS. */
  readonly state?: number;
  /** First PSN of the device's own requests. Default 0x100. */
  readonly sendPsn?: number;
  /** First PSN of the test's requests. Default 0x200. */
  readonly receivePsn?: number;
  /** Which pseudo header the ICRC covers. Default `none`: a link without IP. */
  readonly pseudoHeader?: 'none' | 'ip';
  /** The link has a window of its own. Default false. */
  readonly paced?: boolean;
  readonly local?: Endpoint;
  readonly peer?: Endpoint;
}

/** The device's link: what it sends lies in `sent` until the test looks. */
export class WireLink implements Link {
  readonly info: LinkInfo;
  readonly sent: { readonly bytes: Uint8Array; readonly destination: Endpoint }[] = [];
  readonly groups: string[] = [];
  receiver: LinkReceiver | undefined;
  /** Longer packets are refused, as by an interface with a small MTU. */
  longest = Infinity;
  /** Set: batches are kept until `release`, as a slow socket keeps them. */
  holds = false;
  readonly #held: PacketBatch[] = [];

  constructor(local: Endpoint, pseudoHeader: 'none' | 'ip', paced = false) {
    this.info = {
      name: 'test',
      pseudoHeader,
      local,
      packetSizeMax: 4160,
      windowBytes: 4 * 2 ** 20,
      receiveBufferBytes: 8 * 2 ** 20,
      multicast: true,
      paced,
    };
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    this.receiver = receiver;
    return this.info;
  }

  send(batch: PacketBatch): void {
    for (let index = 0; index < batch.count; index++) {
      const bytes = batch.bytesOf(index).slice();
      if (bytes.length > this.longest) batch.tooLong?.(index);
      else this.sent.push({ bytes, destination: batch.destinationOf(index) });
    }
    if (this.holds) this.#held.push(batch);
    else batch.release();
  }

  /** Holds nothing any more. */
  release(): void {
    this.holds = false;
    for (const batch of this.#held.splice(0)) batch.release();
  }

  join(group: Gid): void {
    this.groups.push(`+${group}`);
  }

  leave(group: Gid): void {
    this.groups.push(`-${group}`);
  }

  async close(): Promise<void> {
    this.receiver = undefined;
  }
}

export class Wire implements Side {
  readonly context: Context;
  readonly clock: VirtualClock;
  readonly link: WireLink;
  readonly pd: Side['pd'];
  readonly cq: Side['cq'];
  readonly qp: Side['qp'];
  readonly buffer: Uint8Array;
  readonly mr: Side['mr'];
  readonly peer: Endpoint;
  /** In the reserved bits of the test's packets: 0, or what selective repeat asks for. */
  mark = 0;
  /** The same of the test's responses. */
  answerMark = 0;
  /** Names of asynchronous events that came and were not looked at. */
  readonly events: string[] = [];
  /** Addresses of armed completion queues that rang. */
  readonly rings: number[] = [];
  readonly #skipsIcrc: boolean;

  private constructor(context: Context, link: WireLink, clock: VirtualClock, options: WireOptions) {
    this.context = context;
    this.link = link;
    this.clock = clock;
    this.peer = options.peer ?? PEER;
    this.#skipsIcrc = options.skipIcrc ?? false;
    if (options.reorderPackets) {
      this.mark = markOf(options.sendPsn ?? 0x100);
      this.answerMark = markOf(options.receivePsn ?? 0x200);
    }
    this.pd = context.allocPd();
    this.cq = context.createCq(4096);
    const cap = { reorderPackets: options.reorderPackets ?? 0 };
    this.qp = this.pd.createQp({ sendCq: this.cq, recvCq: this.cq, cap, ...options.qp });
    this.buffer = context.alloc(options.bytes ?? 65536);
    this.mr = this.pd.regMr(this.buffer, FULL_ACCESS);
    const inner = context.device.events!;
    context.device.events = {
      ...inner,
      completion: (cq) => {
        this.rings.push(cq);
        inner.completion(cq);
      },
      asyncEvent: (event, object) => {
        this.events.push(AsyncEventName[event] ?? String(event));
        inner.asyncEvent(event, object);
      },
    };
  }

  static async open(options: WireOptions = {}): Promise<Wire> {
    const clock = new VirtualClock();
    const link = new WireLink(
      options.local ?? LOCAL,
      options.pseudoHeader ?? 'none',
      options.paced,
    );
    const device = {
      memoryBytes: 8 * 2 ** 20,
      queuePairsMax: QUEUE_PAIRS_MAX,
      initialWindowPackets: WINDOW_PACKETS,
      ...options.device,
      link,
      clock,
    } as OpenOptions;
    const wire = new Wire(await openDevice(device), link, clock, options);
    wire.connect(options);
    return wire;
  }

  /** `qp` from RESET as far as `options.state` says, connected to the test. */
  connect(options: WireOptions = {}, qp = this.qp): void {
    const { state = QpState.RTS, attributes = {} } = options;
    const reliable = qp.qpType === QpType.RC;
    const datagram = qp.qpType === QpType.UD;
    const given = (names: readonly (keyof QpAttributes)[]): QpAttributes =>
      Object.fromEntries(
        names.filter((name) => attributes[name] !== undefined).map((n) => [n, attributes[n]]),
      );
    if (state < QpState.INIT) return;
    const access = datagram ? { qkey: 0x1111 } : { qpAccessFlags: FULL_ACCESS };
    const init = given([datagram ? 'qkey' : 'qpAccessFlags']);
    qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, ...access, ...init });
    if (state < QpState.RTR) return;
    const connected = {
      ahAttr: {
        dgid: this.peer.gid,
        port: this.peer.port,
        reorderPackets: options.reorderPackets ?? 0,
        ownKind: options.ownKind ?? false,
        skipIcrc: options.skipIcrc ?? false,
      },
      pathMtu: options.mtu ?? Mtu.MTU_1024,
      destQpNum: PEER_QPN,
      rqPsn: options.receivePsn ?? 0x200,
    };
    qp.modify({
      qpState: QpState.RTR,
      ...(datagram ? {} : connected),
      ...(reliable ? { maxDestRdAtomic: 16, minRnrTimer: 12 } : {}),
      ...given(['maxDestRdAtomic', 'minRnrTimer']),
    });
    if (state < QpState.RTS) return;
    qp.modify({
      qpState: QpState.RTS,
      sqPsn: options.sendPsn ?? 0x100,
      ...(reliable ? { timeout: 10, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 16 } : {}),
      ...given(['timeout', 'retryCnt', 'rnrRetry', 'maxRdAtomic']),
    });
  }

  get #flow(): Flow {
    const { local, pseudoHeader } = this.link.info;
    const isIpv4 = pseudoHeader === 'ip' && local.gid.isIpv4;
    const ports = pseudoHeader === 'ip' ? [this.peer.port, local.port] : [4791, 4791];
    return {
      ipVersion: isIpv4 ? 4 : 6,
      source: this.peer.gid.bytes.subarray(isIpv4 ? 12 : 0),
      destination: local.gid.bytes.subarray(isIpv4 ? 12 : 0),
      sourcePort: ports[0]!,
      destinationPort: ports[1]!,
      ipId: 0,
    };
  }

  /** A whole packet to the device's queue pair, sealed; fields not given are 0 or sensible. */
  packet(fields: Partial<Fields>, payload: Uint8Array | number = 0): Uint8Array {
    const data = typeof payload === 'number' ? pattern(payload) : payload;
    const padCount = fields.padCount ?? -data.length & 3;
    const whole = { pkey: 0xffff, targetQp: this.qp.qpNum, ...fields, padCount };
    const packet = codec.build(whole, data, this.#flow);
    const mark = isResponse(packet[0]!) ? this.answerMark : this.mark;
    if (mark === 0 && !this.#skipsIcrc) return packet;
    packet[8]! |= mark;
    return this.seal(packet);
  }

  /** Puts the right ICRC behind bytes of any content. */
  seal(bytes: Uint8Array): Uint8Array {
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const icrc = this.#skipsIcrc ? 0 : zlibIcrc(this.#flow, bytes);
    view.setUint32(bytes.length - ICRC_SIZE, icrc, true);
    return bytes;
  }

  /** Puts the ICRC behind them that Linux rxe gives FLUSH requests. */
  sealDoubled(bytes: Uint8Array, ipId = 0): Uint8Array {
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const icrc = zlibIcrc({ ...this.#flow, ipId }, bytes, 'doubled');
    view.setUint32(bytes.length - ICRC_SIZE, icrc, true);
    return bytes;
  }

  /** The device gets these bytes, all in one call of its engine. */
  deliver(packets: Uint8Array | readonly Uint8Array[], source = this.peer, group?: Gid): void {
    const { receiver } = this.link;
    for (const bytes of packets instanceof Uint8Array ? [packets] : packets) {
      receiver?.packet(bytes, source, group);
    }
    receiver?.flush();
  }

  /** One packet from the peer: built, sealed, delivered. `payload`: bytes, or how many. */
  sendPacket(fields: Partial<Fields>, payload: Uint8Array | number = 0): void {
    this.deliver(this.packet(fields, payload));
  }

  /** ACKNOWLEDGE with this PSN; syndrome 0x1f unless told otherwise. */
  acknowledge(psn: number, syndrome = 0x1f): void {
    this.sendPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn, syndrome });
  }

  /** The next packet that the device sent; fails without one, or if a field differs. */
  expectPacket(expected: Expected): Packet {
    const packet = this.takePacket();
    const wanted = expected.opcode === undefined ? 'a packet' : OpcodeName[expected.opcode];
    assert.ok(packet, `${wanted} is expected, and nothing was sent`);
    const { payload, ...fields } = expected;
    const found = Object.fromEntries(
      Object.keys(fields).map((name) => [name, packet![name as keyof Fields]]),
    );
    assert.equal(found, fields, `${wanted} is expected, got ${packet!.name} ${packet!.psn}`);
    if (payload) assert.equal(packet!.payload, payload, `payload of ${packet!.name}`);
    return packet!;
  }

  expectSilence(why = 'nothing is to be sent'): void {
    assert.equal(
      this.takePackets().map(({ name, psn }) => `${name} ${psn}`),
      [],
      why,
    );
  }

  /** The next packet, taken apart; undefined: none. */
  takePacket(): Packet | undefined {
    const sent = this.link.sent.shift();
    if (!sent) return undefined;
    const { bytes, destination } = sent;
    const { status, fields } = codec.parse(bytes);
    assert.is(status, PacketStatus.OK, `sent: ${PacketStatusName[status]}`);
    const { source, sourcePort, ...flow } = this.#flow;
    const back = {
      ...flow,
      source: flow.destination,
      sourcePort: flow.destinationPort,
      destination: destination.gid.bytes.subarray(16 - source.length),
      destinationPort: this.link.info.pseudoHeader === 'ip' ? destination.port : 4791,
    };
    const icrc = this.#skipsIcrc ? 0 : zlibIcrc(back, bytes) >>> 0;
    assert.is(wireIcrc(bytes), icrc, 'the ICRC of what was sent');
    const { headersLength, payloadLength } = fields;
    const payload = bytes.slice(headersLength, headersLength + payloadLength);
    return { ...fields, name: OpcodeName[fields.opcode]!, payload, bytes, destination };
  }

  takePackets(): Packet[] {
    const packets: Packet[] = [];
    for (let next = this.takePacket(); next; next = this.takePacket()) packets.push(next);
    return packets;
  }

  /** Names of completion statuses, oldest first. */
  statuses(): string[] {
    return this.cq.poll(1000).map((wc) => WcStatusName[wc.status]!);
  }

  /** `wrId STATUS`, oldest first. */
  completions(): string[] {
    return this.cq.poll(1000).map((wc) => `${wc.wrId} ${WcStatusName[wc.status]}`);
  }

  takeEvents(): string[] {
    return this.events.splice(0);
  }

  /** Which counters `action` changed, and by how much; what every packet counts is left out. */
  counted(action: () => void): { [name: string]: number } {
    const before = this.context.counters();
    action();
    const after = this.context.counters();
    const names = Object.keys(CountersLayout.fields) as (keyof typeof before)[];
    const always = /^(sent|rcvd)(Pkts|Bytes)$|^icrc/;
    return Object.fromEntries(
      names
        .filter((name) => !always.test(name) && after[name] !== before[name])
        .map((name) => [name, Number(after[name] - before[name])]),
    );
  }

  /** `action` changes these counters by that much, and no others. */
  expectCounted(changes: { [name: string]: number }, action: () => void, why?: string): void {
    assert.equal(this.counted(action), changes, why);
  }

  /** One SGE of the registered buffer. */
  sge(offset: number, length: number): Sge[] {
    return [{ addr: this.mr.addr + BigInt(offset), length, lkey: this.mr.lkey }];
  }

  /** RETH fields for a place in the registered buffer. */
  reth(offset: number, dmaLength: number): Partial<Fields> {
    return { virtualAddress: this.mr.addr + BigInt(offset), key: this.mr.rkey, dmaLength };
  }

  /** Posts a receive of `length` bytes at `offset`. */
  receive(wrId: number, offset = 0, length = 4096, more: ReceiveWorkRequest = {}): void {
    this.qp.postRecv({ wrId, sgList: this.sge(offset, length), ...more });
  }

  /** Posts a request towards the peer, whose memory is wherever the test says. */
  post(opcode: number, length: number, more: Partial<SendWorkRequest> = {}): void {
    const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
    this.qp.postSend({ opcode, sgList: this.sge(0, length), rdma, ...more });
  }

  async close(): Promise<void> {
    await this.context.close();
  }
}

/** A response with data: those have a mark of their own. */
function isResponse(opcode: number): boolean {
  const { RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_ONLY, RC_ATOMIC_ACKNOWLEDGE } = Opcode;
  if (opcode === RC_ATOMIC_ACKNOWLEDGE) return true;
  return opcode >= RC_RDMA_READ_RESPONSE_FIRST && opcode <= RC_RDMA_READ_RESPONSE_ONLY;
}

/** Of requests to a side whose own begin at this PSN (responder/reorder-buffer.ts). */
export function markOf(psn: number): number {
  return (((psn ^ (psn >>> 7) ^ (psn >>> 14) ^ (psn >>> 21)) & 0x7f) % 127) + 1;
}

/** `length` bytes that tell where they are. */
export function pattern(length: number, seed = 1): Uint8Array {
  return Uint8Array.from(
    { length },
    (_, index) => (Math.imul(index + seed, 0x9e3779b1) >>> 16) + seed,
  );
}

/** Runs `body` over a fresh wire and closes it. */
export async function onWire(
  options: WireOptions,
  body: (wire: Wire) => void | Promise<void>,
): Promise<void> {
  const wire = await Wire.open(options);
  try {
    await body(wire);
  } finally {
    await wire.close();
  }
}
