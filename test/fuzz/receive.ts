/**
 * Hostile packets into `receive`: raw bytes, mutations of good packets, and well-formed packets with
 * every field drawn at random and a right ICRC, which get past the border. Checks that nothing
 * traps and that no byte outside granted memory changes.
 *
 *     node build/test/fuzz/receive.js [packets] [seed]
 */
import { fileURLToPath } from 'node:url';
import { AccessFlag, Opcode, PacketFieldsLayout, QpState, QueuePairLayout } from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import { splitmix32 } from '../../host/link/fault.js';
import { connect, makePair, type Pair } from '../support/pair.js';

const CANARY = 0xa5;
const OPCODES = Object.values(Opcode);
const GRANTED = 8192;
const GUARD = 4096;

export interface FuzzReport {
  readonly packets: number;
  /** Packets by opcode that got past the border. */
  readonly served: ReadonlyMap<number, number>;
  /** How often the queue pair had to be connected anew. */
  readonly reconnects: number;
}

/** One world: B is attacked, A is who it believes to talk to. */
class Target {
  readonly pair: Pair;
  readonly guards: Uint8Array[];
  readonly key: number;
  readonly readOnlyKey: number;
  readonly granted: Uint8Array;
  readonly readOnly: Uint8Array;
  readonly scratch: number;
  #psn = 0x1000;

  private constructor(pair: Pair) {
    this.pair = pair;
    const { context, pd } = pair.b;
    // Allocations follow one another: guard, granted, guard, read-only, guard.
    const guard = (): Uint8Array => context.alloc(GUARD).fill(CANARY);
    const first = guard();
    this.granted = context.alloc(GRANTED);
    const second = guard();
    this.readOnly = context.alloc(GRANTED).fill(CANARY);
    const third = guard();
    this.guards = [first, second, this.readOnly, third];
    const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ } = AccessFlag;
    this.key = pd.regMr(this.granted, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ).rkey;
    this.readOnlyKey = pd.regMr(this.readOnly, REMOTE_READ).rkey;
    this.scratch = context.device.arena.heap.alloc(PacketFieldsLayout.size + 8192);
  }

  static async open(): Promise<Target> {
    const pair = await makePair({ connect: false });
    const target = new Target(pair);
    target.connect();
    return target;
  }

  connect(): void {
    const { a, b } = this.pair;
    this.#psn = (this.#psn + 0x3fff1) & 0xffffff;
    for (const [side, peer] of [
      [a, b],
      [b, a],
    ] as const) {
      side.qp.modify({ qpState: QpState.RESET });
      connect(side.qp, peer, this.#psn, this.#psn, {});
    }
    const { mr } = b;
    const sgList = [{ addr: mr.addr, length: 4096, lkey: mr.lkey }];
    for (let i = 0; i < 64; i++) b.qp.postRecv({ wrId: i, sgList });
    // Something to be answered, so that responses and acknowledgements mean something.
    const lkey = b.mr.lkey;
    const rdma = { remoteAddr: a.mr.addr, rkey: a.mr.rkey };
    b.qp.postSend({ opcode: 4, sgList: [{ addr: b.mr.addr, length: 30000, lkey }], rdma });
    b.qp.postSend({ opcode: 0, sgList: [{ addr: b.mr.addr, length: 5000, lkey }], rdma });
  }

  get alive(): boolean {
    return this.pair.b.qp.state === QpState.RTS;
  }

  /** The PSN that B's responder waits for, and the oldest that B has not seen acknowledged. */
  psns(): { expected: number; unacked: number } {
    const { device } = this.pair.b.context;
    const qp = structAt(device.arena.memory, QueuePairLayout, this.pair.b.qp.handle);
    return { expected: qp.psnExpected, unacked: qp.psnUnacked };
  }

  /** Gives B a packet from A's address, seals it first when asked to. */
  receive(bytes: Uint8Array, seal: boolean): void {
    const { device } = this.pair.b.context;
    if (seal) this.#seal(bytes);
    device.packet(bytes, this.pair.a.context.local);
    device.flush();
  }

  #seal(bytes: Uint8Array): void {
    const { device } = this.pair.b.context;
    const { memory, exports } = device.arena;
    const source = this.scratch;
    const packet = source + 64;
    memory.bytes.set(this.pair.a.context.local.gid.bytes, source);
    memory.bytes.set(this.pair.b.context.local.gid.bytes, source + 16);
    memory.bytes.set(bytes, packet);
    const context = device.engine.context;
    const icrc = exports.icrc(context, 6, source, source + 16, 4791, 4791, packet, bytes.length);
    new DataView(bytes.buffer, bytes.byteOffset).setUint32(bytes.length - 4, icrc, true);
  }

  /** Headers of a packet with these fields, built by the engine. */
  build(fields: Partial<Record<keyof (typeof PacketFieldsLayout)['fields'], number | bigint>>) {
    const { arena, engine } = this.pair.b.context.device;
    const at = this.scratch + 4096;
    arena.memory.bytes.fill(0, at, at + PacketFieldsLayout.size);
    Object.assign(structAt(arena.memory, PacketFieldsLayout, at), fields);
    const length = arena.exports.build(engine.context, this.scratch + 64, at);
    return arena.memory.bytes.slice(this.scratch + 64, this.scratch + 64 + length);
  }

  /** Throws when a byte changed that nobody was allowed to change. */
  checkGuards(what: string): void {
    for (const [index, guard] of this.guards.entries()) {
      const at = guard.findIndex((byte) => byte !== CANARY);
      if (at >= 0) throw new Error(`${what}: guard ${index} was written at byte ${at}`);
    }
  }
}

type Below = (n: number) => number;

/** A well-formed packet: often plausible, sometimes absurd in one field. */
function structured(target: Target, below: Below): Uint8Array {
  const opcode = OPCODES[below(OPCODES.length)]!;
  const { expected, unacked } = target.psns();
  const near = below(3) === 0 ? unacked : expected;
  const psn = (near + [0, 0, 0, 0, 1, -1, 2, -3, below(1 << 24)][below(9)]!) & 0xffffff;
  const write = below(4) > 0;
  const base = BigInt(write ? target.granted.byteOffset : target.readOnly.byteOffset);
  const offset = BigInt(below(GRANTED + 64)) - 16n;
  const payload = [0, 1, 4, 8, 100, 1023, 1024, 1025, 4096][below(9)]!;
  const pad = below(8) === 0 ? below(4) : -payload & 3;
  const keys = [target.key, target.readOnlyKey, target.pair.b.mr.rkey, below(2 ** 32)];
  const headers = target.build({
    opcode,
    targetQp: below(50) === 0 ? below(1 << 24) : target.pair.b.qp.qpNum,
    psn,
    pkey: below(50) === 0 ? below(65536) : 0xffff,
    padCount: pad,
    solicited: below(2),
    ackRequest: below(2),
    congestion: below(10) === 0 ? below(256) : 0,
    virtualAddress: below(10) === 0 ? 2n ** 64n - BigInt(below(4096)) : base + offset,
    key: keys[below(10) < 7 ? (write ? 0 : 1) : below(4)]!,
    dmaLength: [payload, payload, payload, below(GRANTED * 2), below(2 ** 32), 0][below(6)]!,
    syndrome: [0x1f, 0x1f, 0x60, 0x61, 0x62, 0x63, 0x20 | below(32), below(256)][below(8)]!,
    msn: below(1 << 24),
    immediate: below(2 ** 32),
    qkey: below(2 ** 32),
    sourceQp: below(1 << 24),
    flush: below(64),
  });
  const size = (headers.length + payload + pad + 4 + 3) & ~3;
  const packet = new Uint8Array(size);
  packet.set(headers);
  return packet;
}

function raw(below: Below): Uint8Array {
  const bytes = new Uint8Array(below(4) === 0 ? below(5000) : below(80));
  for (let i = 0; i < bytes.length; i++) bytes[i] = below(256);
  return bytes;
}

function mutate(bytes: Uint8Array, below: Below): Uint8Array {
  const changed = below(4) === 0 ? bytes.slice(0, below(bytes.length + 1)) : bytes.slice();
  for (let i = below(3); i >= 0 && changed.length > 0; i--) {
    changed[below(Math.min(changed.length, 48))] = below(256);
  }
  return changed;
}

/** Throws, naming seed and packet, when something traps or a guard is written. */
export async function fuzzReceive(
  packets: number,
  seed: number,
  progress: (done: number) => void = () => {},
): Promise<FuzzReport> {
  const random = splitmix32(seed);
  const below: Below = (n) => Math.floor((random() / 2 ** 32) * n);
  const target = await Target.open();
  const served = new Map<number, number>();
  let reconnects = 0;
  for (let index = 0; index < packets; index++) {
    if (!target.alive) {
      target.connect();
      reconnects++;
    }
    const kind = below(10);
    const bytes = kind === 0 ? raw(below) : structured(target, below);
    const counters = target.pair.b.context.device.engine.counters;
    const before = counters.icrcExact;
    try {
      if (kind === 0) target.receive(bytes, false);
      else if (kind === 1) target.receive(mutate(bytes, below), false);
      else if (kind === 2) {
        const changed = mutate(bytes, below);
        target.receive(
          changed,
          changed.length >= 16 && changed.length <= 4160 && changed.length % 4 === 0,
        );
      } else target.receive(bytes, bytes.length <= 4160);
    } catch (error) {
      const hex = Buffer.from(bytes).toString('hex');
      throw new Error(`seed ${seed}, packet ${index}: ${hex}`, { cause: error });
    }
    if (counters.icrcExact !== before) served.set(bytes[0]!, (served.get(bytes[0]!) ?? 0) + 1);
    if (index % 1000 === 0) {
      target.checkGuards(`seed ${seed}, up to packet ${index}`);
      drain(target);
      progress(index);
    }
  }
  target.checkGuards(`seed ${seed}, at the end`);
  await target.pair.close();
  return { packets, served, reconnects };
}

/** Completions are polled and what B sent is thrown away, so that queues do not fill up. */
function drain(target: Target): void {
  target.pair.settle();
  target.pair.a.cq.poll(1 << 20);
  target.pair.b.cq.poll(1 << 20);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const packets = Number(process.argv[2] ?? 1_000_000);
  const seed = Number(process.argv[3] ?? 1);
  const start = performance.now();
  const report = await fuzzReceive(packets, seed, (done) => {
    if (done % 100_000 === 0) process.stderr.write(`\r${done} of ${packets}`);
  });
  const rate = Math.round(packets / ((performance.now() - start) / 1000));
  process.stderr.write('\r');
  console.log(`${packets} packets, ${rate}/s, ${report.reconnects} reconnects`);
  console.log(`opcodes past the border: ${report.served.size} of ${OPCODES.length}`);
}
