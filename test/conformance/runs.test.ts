/**
 * Packets that arrived in one run have a shorter path through the engine than single ones, and so
 * do plain requests. The results are the same, to the byte.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import {
  AccessFlag,
  Endpoint,
  Mtu,
  QpState,
  SendFlag,
  WrOpcode,
  type SendWorkRequest,
} from '../../host/index.js';
import { splitmix32 } from '../../host/link/faults/fault.js';
import type { Fields } from '../support/codec.js';
import { PEER, Wire, pattern, type WireOptions } from '../support/wire.js';

const RUN = 40;
const BYTES = 8192;

/** Packets of a run: the same for both devices, whose numbers and keys differ. */
interface Planned {
  readonly fields: Partial<Fields>;
  readonly payload: Uint8Array;
  /** Of the registered buffer; the device's key is put in. */
  readonly offset: number;
  readonly dmaLength: number;
  readonly wrongKey: boolean;
  readonly wrongNumber: boolean;
  /** Bits that are changed once the packet is sealed: [byte, mask]. */
  readonly damage: readonly [number, number] | undefined;
  /** … and before it is. */
  readonly mark: readonly [number, number] | undefined;
}

function build(wire: Wire, planned: Planned): Uint8Array {
  const { fields, payload, offset, dmaLength, mark, damage } = planned;
  const reth = wire.reth(offset, dmaLength);
  if (planned.wrongKey) reth.key! ^= 0x5500;
  const own = planned.wrongNumber ? { targetQp: wire.qp.qpNum ^ 0x10000 } : {};
  const bytes = wire.packet({ ...reth, ...fields, ...own }, payload);
  if (mark) {
    bytes[mark[0]]! ^= mark[1];
    wire.seal(bytes);
  }
  if (damage) bytes[damage[0] % bytes.length]! ^= damage[1];
  return bytes;
}

function oneByOne(wire: Wire, packets: readonly Uint8Array[]): void {
  wire.deliver(packets);
}

/** As receive offload hands them over: in the device's memory, one behind the other. */
function asRun(wire: Wire, packets: readonly Uint8Array[]): void {
  const { receiver } = wire.link;
  const room = wire.context.alloc(packets.reduce((sum, { length }) => sum + length, 0));
  // A run ends with a packet of another size.
  for (let index = 0, at = 0; index < packets.length;) {
    const [start, size] = [at, packets[index]!.length];
    for (; packets[index]?.length === size; at += size) room.set(packets[index++]!, at);
    receiver!.segments!(room.byteOffset + start, at - start, size, PEER);
  }
  receiver!.flush();
  wire.context.free(room);
}

/** Everything that is to be seen of a device, its own numbers left out. */
function outcome(wire: Wire) {
  return {
    memory: Buffer.from(wire.buffer).toString('base64'),
    counters: wire.context.counters(),
    region: wire.mr.counters(),
    answers: wire.takePackets().map(({ name, psn, syndrome, msn }) => [name, psn, syndrome, msn]),
    completions: wire.completions(),
    events: wire.takeEvents(),
    state: wire.qp.query().qpState,
  };
}

const FAULTS = [
  'icrc',
  'psn',
  'key',
  'number',
  'length',
  'range',
  'congestion',
  'migration',
  'version',
  'partition',
  'send',
  'read',
  'empty',
  'pad',
] as const;
type Fault = (typeof FAULTS)[number];

function plan(psn: number, size: number, offset: number, random: () => number, fault?: Fault) {
  const payload = pattern(fault === 'empty' ? 0 : size, random() & 0xffff);
  const fields: Partial<Fields> = {
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn: (fault === 'psn' ? psn + 1 + (random() & 3) : psn) & 0xffffff,
    ackRequest: (random() & 7) === 0 ? 1 : 0,
  };
  if (fault === 'partition') fields.pkey = 0x8001;
  if (fault === 'send') fields.opcode = Opcode.RC_SEND_ONLY;
  if (fault === 'read') fields.opcode = Opcode.RC_RDMA_READ_REQUEST;
  if (fault === 'pad') fields.padCount = 3;
  const mark = { congestion: [4, 0x80], migration: [1, 0x40], version: [1, 0x01] } as const;
  return {
    fields,
    payload: fault === 'read' ? new Uint8Array(0) : payload,
    offset: fault === 'range' ? BYTES - 4 : offset,
    dmaLength: payload.length + (fault === 'length' ? 4 : 0),
    wrongKey: fault === 'key',
    wrongNumber: fault === 'number',
    damage: fault === 'icrc' ? ([random(), 1 << (random() & 7)] as const) : undefined,
    mark: fault && fault in mark ? mark[fault as keyof typeof mark] : undefined,
  } satisfies Planned;
}

/** With an ICRC, and without. */
async function compare(options: WireOptions, runs: (random: () => number) => Planned[]) {
  for (const skipIcrc of [false, true]) await compareOnce({ ...options, skipIcrc }, runs);
}

async function compareOnce(
  options: WireOptions,
  runs: (random: () => number) => Planned[],
  seed = 1,
) {
  const random = splitmix32(seed);
  const [alone, together] = [await Wire.open(options), await Wire.open(options)];
  const planned = runs(random);
  for (const [wire, deliver] of [
    [alone, oneByOne],
    [together, asRun],
  ] as const) {
    wire.receive(7, 0, 512);
    deliver(
      wire,
      planned.map((each) => build(wire, each)),
    );
  }
  assert.equal(outcome(together), outcome(alone));
  await alone.close();
  await together.close();
}

for (const size of [1, 4, 60, 61, 64, 200, 228, 300]) {
  test(`a run of WRITEs of ${size} bytes, all as they should be`, async () => {
    await compare({ bytes: BYTES }, (random) =>
      Array.from({ length: RUN }, (_, n) => plan(0x200 + n, size, n * 100, random)),
    );
  });
}

for (const fault of FAULTS) {
  test(`a run of WRITEs and in it one with something else: ${fault}`, async () => {
    for (const at of [0, 5, 15, 16, 31, 39]) {
      await compare({ bytes: BYTES }, (random) =>
        Array.from({ length: RUN }, (_, n) =>
          plan(0x200 + n, 61, n * 64, random, n === at ? fault : undefined),
        ),
      );
    }
  });
}

test('a run of WRITEs over the end of the PSNs, with pads, with packets that come twice', async () => {
  await compare({ bytes: BYTES, receivePsn: 0xfffff0 }, (random) =>
    Array.from({ length: RUN }, (_, n) =>
      plan(0xfffff0 + n - (n > 20 ? 2 : 0), 62, n * 64, random),
    ),
  );
});

test('a run towards a queue pair that grants no WRITEs', async () => {
  const attributes = { qpAccessFlags: AccessFlag.REMOTE_READ };
  await compare({ bytes: BYTES, attributes }, (random) =>
    Array.from({ length: RUN }, (_, n) => plan(0x200 + n, 64, n * 64, random)),
  );
});

test('a run behind the first packet of a longer message', async () => {
  await compare({ bytes: BYTES, mtu: Mtu.MTU_256 }, (random) =>
    Array.from({ length: RUN }, (_, n) => {
      if (n > 0) return plan(0x200 + n, 64, n * 64, random);
      const first = plan(0x200, 256, 0, random);
      const fields = { ...first.fields, opcode: Opcode.RC_RDMA_WRITE_FIRST };
      return { ...first, fields, dmaLength: 320 };
    }),
  );
});

test('a run with packets longer than the path MTU behind it', async () => {
  await compare({ bytes: BYTES, mtu: Mtu.MTU_256 }, (random) =>
    Array.from({ length: RUN }, (_, n) => plan(0x200 + n, n < 20 ? 64 : 300, n * 64, random)),
  );
});

/** With a model of caches every packet goes the long way (transport/responder/fast-path.ts). */
const LONG_WAY: WireOptions = { device: { cacheModel: { mptEntries: 64, mttEntries: 64 } } };
const CONTINUED: WireOptions = { bytes: BYTES, mtu: Mtu.MTU_1024 };
const PACKETS = 6;

/** A WRITE of some packets, as long as the MTU all but the first; `fault` in the one at `at`. */
function message(random: () => number, at?: number, fault?: Fault | 'end' | 'middle') {
  return Array.from({ length: PACKETS + 3 }, (_, n): Planned => {
    const isFault = n === at;
    const old = fault === 'end' || fault === 'middle' ? undefined : fault;
    const planned = plan(0x200 + n, 1024, 0, random, isFault ? old : undefined);
    // Another message begins behind it.
    const kind = { 0: 'FIRST', [PACKETS - 1]: 'LAST', [PACKETS]: 'FIRST' }[n] ?? 'MIDDLE';
    let opcode: number = Opcode[`RC_RDMA_WRITE_${kind as 'FIRST'}`];
    if (isFault && (fault === 'send' || fault === 'read')) opcode = planned.fields.opcode!;
    if (isFault && fault === 'end') opcode = Opcode.RC_RDMA_WRITE_LAST;
    if (isFault && fault === 'middle') opcode = Opcode.RC_RDMA_WRITE_MIDDLE;
    const payload = isFault && fault === 'length' ? pattern(1020) : planned.payload;
    const dmaLength = PACKETS * 1024;
    return { ...planned, payload, dmaLength, fields: { ...planned.fields, opcode } };
  });
}

for (const fault of [undefined, ...FAULTS, 'end', 'middle'] as const) {
  test(`a WRITE of many packets by both ways, ${fault ?? 'nothing wrong'}`, async () => {
    const places = fault ? [1, 3, PACKETS - 1, PACKETS + 1] : [0];
    for (const { at, skipIcrc } of places.flatMap((at) => [
      { at, skipIcrc: false },
      { at, skipIcrc: true },
    ])) {
      const options = { ...CONTINUED, skipIcrc };
      const wires = [await Wire.open({ ...options, ...LONG_WAY }), await Wire.open(options)];
      for (const wire of wires) {
        const random = splitmix32(7);
        asRun(
          wire,
          message(random, at, fault).map((each) => build(wire, each)),
        );
      }
      const [long, short] = wires.map(outcome);
      assert.equal(short, long);
      for (const wire of wires) await wire.close();
    }
  });
}

test('a key that is gone in the middle of a WRITE ends it, by both ways', async () => {
  const wires = [await Wire.open({ ...CONTINUED, ...LONG_WAY }), await Wire.open(CONTINUED)];
  for (const wire of wires) {
    const random = splitmix32(7);
    const packets = message(random).map((each) => build(wire, each));
    asRun(wire, packets.slice(0, 3));
    const before = Buffer.from(wire.buffer);
    wire.mr.dereg();
    asRun(wire, packets.slice(3));
    assert.is(Buffer.compare(before, wire.buffer), 0, 'nothing more is written');
    assert.is(wire.qp.query().qpState, QpState.ERR);
  }
  const told = wires.map((wire) =>
    wire.takePackets().map(({ name, psn, syndrome }) => [name, psn, syndrome]),
  );
  assert.equal(told[1], told[0]);
  for (const wire of wires) await wire.close();
});

test('what continues a WRITE of the connection before is refused', async () => {
  const wire = await Wire.open(CONTINUED);
  const packets = message(splitmix32(7)).map((each) => build(wire, each));
  wire.deliver(packets.slice(0, 2));
  const before = Buffer.from(wire.buffer);
  wire.qp.modify({ qpState: QpState.RESET });
  wire.connect({ ...CONTINUED, receivePsn: 0x202 });
  wire.takePackets();
  wire.deliver(packets[2]!);
  assert.is(Buffer.compare(before, wire.buffer), 0);
  wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x202, syndrome: 0x61 });
  await wire.close();
});

test('what continues a WRITE and comes from another address is dropped', async () => {
  const wire = await Wire.open(CONTINUED);
  const packets = message(splitmix32(7)).map((each) => build(wire, each));
  wire.deliver(packets.slice(0, 2));
  wire.deliver(packets[2]!, Endpoint.parse('127.0.0.9', 4791));
  assert.is(wire.context.counters().dropSource, 1n);
  wire.deliver(packets.slice(2, PACKETS));
  assert.is(wire.context.counters().rdmaRecvs, 1n);
  await wire.close();
});

/**
 * Packets sent for these requests when nothing is acknowledged but `acknowledged`. `posted`:
 * requests that are posted together.
 */
async function sent(
  requests: (wire: Wire) => SendWorkRequest[],
  acknowledged: number,
  { posted = 1, ...options }: WireOptions & { readonly posted?: number } = {},
) {
  const usual = { bytes: BYTES, mtu: Mtu.MTU_1024, device: { windowPackets: 64 } };
  const wire = await Wire.open({ ...usual, ...options });
  wire.buffer.set(pattern(BYTES));
  const all = requests(wire);
  for (let at = 0; at < all.length; at += posted) wire.qp.postSend(all.slice(at, at + posted));
  const packets = wire.takePackets();
  for (let psn = 0x100; psn < 0x100 + acknowledged; psn += 16) {
    wire.acknowledge(psn + 15);
    packets.push(...wire.takePackets());
  }
  const told = packets.map(({ bytes }) => Buffer.from(bytes).toString('hex'));
  const completions = wire.completions();
  await wire.close();
  return { told, completions };
}

/** The same requests; `plain`: with one SGE, as most have, or else with one more of no byte. */
function requests(wire: Wire, plain: boolean, seed: number, count = 100): SendWorkRequest[] {
  const random = splitmix32(seed);
  return Array.from({ length: count }, (_, wrId) => {
    const size = [64, 64, 64, 64, 61, 1, 200, 1500][random() & 7]!;
    const kinds = [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE, WrOpcode.SEND, WrOpcode.SEND_WITH_IMM];
    const opcode = kinds[random() & 3]!;
    const flags = [0, SendFlag.SIGNALED, 0, SendFlag.SOLICITED | SendFlag.SIGNALED];
    const sgList = wire.sge(random() & 0xff8, size);
    if (!plain) sgList.push({ addr: wire.mr.addr, length: 0, lkey: wire.mr.lkey });
    const rdma = { remoteAddr: 0x10000n + BigInt(wrId), rkey: 0x77 };
    return { wrId, opcode, sendFlags: flags[random() & 3]!, sgList, rdma, immData: wrId };
  });
}

test('requests of one SGE become the packets that those of two become', async () => {
  for (let seed = 1; seed <= 6; seed++) {
    const acknowledged = 16 * (seed - 1);
    const plain = await sent((wire) => requests(wire, true, seed), acknowledged);
    assert.equal(await sent((wire) => requests(wire, false, seed), acknowledged), plain);
    assert.ok(plain.told.length >= 40);
  }
});

for (const windowPackets of [16, 66, 120, 2048]) {
  for (const windowBytes of [32_768, 200_000, 2 ** 22]) {
    test(`so they do in lists, with windows of ${windowPackets} packets, ${windowBytes} bytes`, async () => {
      const device = { windowPackets, initialWindowPackets: windowPackets, windowBytes };
      for (const posted of [16, 50]) {
        for (let seed = 1; seed <= 4; seed++) {
          const reorderPackets = [64, 16][seed & 1]!;
          const qp = { cap: { maxSendWr: 256, reorderPackets } };
          const mtu = [Mtu.MTU_4096, Mtu.MTU_1024][seed >> 2]!;
          const options = { device, posted, reorderPackets, qp, mtu };
          const [plain, two] = await Promise.all(
            [true, false].map((isPlain) =>
              sent((wire) => requests(wire, isPlain, seed, 160), 32, options),
            ),
          );
          assert.equal(two, plain);
          assert.ok(plain!.told.length >= 16);
        }
      }
    });
  }
}

/** Large ones: one SGE, whose bytes are copied while the ICRC goes over them, or two. */
function large(wire: Wire, plain: boolean): SendWorkRequest[] {
  const sizes = [511, 512, 528, 1024, 1500, 2048, 4080, 4096, 6000, 8192];
  const kinds = [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM, WrOpcode.SEND];
  return sizes.flatMap((size) =>
    [...kinds, WrOpcode.SEND_WITH_IMM].map((opcode, wrId) => {
      const [sge] = wire.sge(BYTES - size, size);
      const rest = { ...sge!, addr: BigInt(sge!.addr) + 17n, length: size - 17 };
      const sgList = plain ? [sge!] : [{ ...sge!, length: 17 }, rest];
      const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
      return { wrId, opcode, sgList, rdma, immData: size };
    }),
  );
}

test('large requests of one SGE become the packets that those of two become', async () => {
  const plain = await sent((wire) => large(wire, true), 0, { mtu: Mtu.MTU_4096 });
  const two = await sent((wire) => large(wire, false), 0, { mtu: Mtu.MTU_4096 });
  assert.equal(two, plain);
  assert.is(plain.told.length, 48);
});

test('a READ is answered with what is there, whatever its length and address', async () => {
  const wire = await Wire.open({ bytes: BYTES, mtu: Mtu.MTU_4096 });
  wire.buffer.set(pattern(BYTES));
  let psn = 0x200;
  for (const [offset, length] of [
    [0, 4096],
    [1, 512],
    [5, 2048],
    [3, 4095],
    [0, 8192],
  ] as const) {
    const fields = { ...wire.reth(offset, length), opcode: Opcode.RC_RDMA_READ_REQUEST, psn };
    wire.sendPacket(fields);
    const packets = wire.takePackets();
    const got = Buffer.concat(packets.map(({ payload }) => payload));
    assert.is(Buffer.compare(got, wire.buffer.subarray(offset, offset + length)), 0);
    psn += packets.length;
  }
  await wire.close();
});

test('a plain request whose key is wrong fails, and those before it do not', async () => {
  const wire = await Wire.open({ bytes: BYTES });
  const list = Array.from({ length: 20 }, (_, wrId) => {
    const sgList = wire.sge(0, 64);
    if (wrId === 18) sgList[0] = { ...sgList[0]!, lkey: wire.mr.lkey ^ 0x100 };
    const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
    return { wrId, opcode: WrOpcode.RDMA_WRITE, sendFlags: SendFlag.SIGNALED, sgList, rdma };
  });
  for (const request of list) wire.qp.postSend(request);
  wire.acknowledge(0x100 + 17);
  assert.equal(wire.completions().slice(17), ['17 SUCCESS', '18 LOC_PROT_ERR', '19 WR_FLUSH_ERR']);
  await wire.close();
});

test('a run is the first that a queue pair in RTR receives', async () => {
  await compare({ bytes: BYTES, state: QpState.RTR }, (random) =>
    Array.from({ length: 16 }, (_, n) => plan(0x200 + n, 64, n * 64, random)),
  );
});

test('a packet behind a run of its length is checked by itself', async () => {
  const wire = await Wire.open({ bytes: BYTES });
  for (let wrId = 0; wrId < 17; wrId++) wire.receive(wrId);
  const packets = Array.from({ length: 17 }, (_, n) =>
    wire.packet({ opcode: Opcode.RC_SEND_ONLY, psn: 0x200 + n }, pattern(64, n)),
  );
  asRun(wire, packets.slice(0, 16));
  wire.deliver(packets[16]!);
  assert.is(wire.completions().length, 17);
  await wire.close();
});

test.run();
