/**
 * The fence of an invalidation: its completion guarantees that no engine of the protection domain
 * accesses the memory by the key any more (IBA 10.6.5.1; an adapter has one engine, a device that
 * threads or processes share has several). Here a second context is attached to the domain, and the
 * test keeps its engine inside a call by the word that the context publishes.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  FENCE_MICROS_MAX,
  Opcode,
} from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import {
  AccessFlag,
  MwType,
  QpState,
  QpType,
  SendFlag,
  WcFlag,
  WcStatus,
  WrOpcode,
  openDevice,
  type Context,
  type MemoryRegion,
  type SendWorkRequest,
} from '../../host/index.js';
import { Endpoint } from '../../host/link/endpoint.js';
import { VirtualClock } from '../../host/device/clock.js';
import { FULL_ACCESS, Wire, WireLink, type WireOptions } from '../support/wire.js';

const SEND = { opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED } as const;
const invalidate = (key: number, wrId = 1n): SendWorkRequest => ({
  wrId,
  opcode: WrOpcode.LOCAL_INV,
  sendFlags: SendFlag.SIGNALED,
  invalidateRkey: key,
});

/** A wire to a device with a second context, in the same domain unless `attached` is false. */
class World {
  readonly #slot: { activity: number };

  private constructor(
    readonly wire: Wire,
    readonly other: Context,
  ) {
    const { arena } = wire.context.device;
    const { contextSlots } = structAt(arena.memory, ArenaLayout, arena.address);
    this.#slot = structAt(arena.memory, ContextSlotLayout, contextSlots + CONTEXT_SLOT_SIZE);
  }

  static async open(options: WireOptions = {}, attached = true): Promise<World> {
    const wire = await Wire.open({
      ...options,
      device: {
        sharedArrayBuffer: true,
        threadsMax: 3,
        memoryBytes: 32 * 2 ** 20,
        ...options.device,
      },
    });
    const other = await openDevice({
      threadShare: wire.context.share({ memoryBytes: 8 * 2 ** 20 }),
      link: new WireLink(Endpoint.parse('127.0.0.3', 4791), 'none'),
      clock: new VirtualClock(),
    });
    if (attached) other.importPd(wire.pd.handle);
    return new World(wire, other);
  }

  /** The engine of the other context begins a call. */
  enter(): void {
    const { arena } = this.wire.context.device;
    const { epoch } = structAt(arena.memory, ArenaLayout, arena.address);
    this.#slot.activity = epoch * 2 + 1;
  }

  /** The engine leaves that call. */
  leave(): void {
    this.#slot.activity &= ~1;
  }

  /** Time passes; timers of the device under test fire. */
  pass(micros: number): void {
    this.wire.clock.advance(micros);
  }

  region(): MemoryRegion {
    const { wire } = this;
    return wire.pd.regMr(wire.buffer, FULL_ACCESS, { invalidatable: true });
  }

  async close(): Promise<void> {
    this.leave();
    await this.other.close();
    await this.wire.context.close();
  }
}

async function within(
  options: WireOptions,
  attached: boolean,
  work: (world: World, wire: Wire) => void,
): Promise<void> {
  const world = await World.open(options, attached);
  try {
    work(world, world.wire);
  } finally {
    await world.close();
  }
}

test('LOCAL_INV completes at once while no other engine is in a call', () =>
  within({}, true, (world, wire) => {
    wire.qp.postSend(invalidate(world.region().rkey));
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('LOCAL_INV completes when the other engine of the domain has left its call', () =>
  within({}, true, (world, wire) => {
    world.enter();
    wire.qp.postSend(invalidate(world.region().rkey));
    assert.equal(wire.completions(), []);
    world.pass(100_000);
    assert.equal(wire.completions(), [], 'the other engine is still in its call');
    world.leave();
    world.pass(2_000);
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('an engine that entered its call after the invalidation delays nothing', () =>
  within({}, true, (world, wire) => {
    world.enter();
    wire.qp.postSend(invalidate(world.region().rkey));
    assert.equal(wire.completions(), []);
    world.enter();
    world.pass(2_000);
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('an engine of another protection domain delays nothing', () =>
  within({}, false, (world, wire) => {
    world.enter();
    wire.qp.postSend(invalidate(world.region().rkey));
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('a fence that is pending while the link keeps all buffers lets time pass', () =>
  within({ device: { sendBuffers: 2 } }, true, (world, wire) => {
    world.enter();
    wire.qp.postSend(invalidate(world.region().rkey));
    wire.link.holds = true;
    // Two acknowledgements take the buffers.
    for (const psn of [0x200, 0x201]) {
      wire.sendPacket({ opcode: Opcode.RC_RDMA_WRITE_ONLY, psn, ackRequest: 1 });
    }
    // A timer that is due again at once would keep the thread for as long as the link is blocked.
    let turns = 0;
    while (turns < 1000 && (wire.clock.nextMicros() ?? Infinity) <= FENCE_MICROS_MAX) {
      wire.clock.step();
      turns++;
    }
    assert.ok(turns < 1000, `${turns} timers until ${wire.clock.now()} us`);
    world.leave();
    wire.link.release();
    world.pass(2_000);
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('requests posted behind a LOCAL_INV wait for its fence as well', () =>
  within({}, true, (world, wire) => {
    const key = world.region().rkey;
    world.enter();
    wire.qp.postSend(invalidate(key));
    wire.qp.postSend({ ...SEND, wrId: 2n });
    wire.expectSilence('the SEND waits behind the fence');
    world.leave();
    world.pass(2_000);
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY });
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('the key is invalid while its fence is pending', () =>
  within({}, true, (world, wire) => {
    const mr = world.region();
    world.enter();
    wire.qp.postSend(invalidate(mr.rkey));
    wire.sendPacket(
      {
        opcode: Opcode.RC_RDMA_WRITE_ONLY,
        psn: 0x200,
        ackRequest: 1,
        virtualAddress: mr.addr,
        key: mr.rkey,
        dmaLength: 8,
      },
      8,
    );
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, syndrome: 0x62 });
    assert.equal(wire.completions(), ['1 WR_FLUSH_ERR']);
  }));

test('an engine that never leaves its call fails LOCAL_INV after the limit, naming its slot', () =>
  within({}, true, (world, wire) => {
    world.enter();
    wire.qp.postSend(invalidate(world.region().rkey));
    world.pass(FENCE_MICROS_MAX - 10_000);
    assert.equal(wire.completions(), []);
    world.pass(20_000);
    const [completion] = wire.cq.poll(2);
    assert.is(completion!.status, WcStatus.RESP_TIMEOUT_ERR);
    assert.is(completion!.vendorErr, 2, 'slot 1, counted from 1');
  }));

test('a type 1 window that is bound again, or unbound, completes behind a fence', () =>
  within({}, true, (world, wire) => {
    const mw = wire.pd.allocMw(MwType.TYPE_1);
    const mr = wire.pd.regMr(wire.buffer, FULL_ACCESS | AccessFlag.MW_BIND);
    const bind = (wrId: bigint, length: number): void => {
      const bindInfo = { mr, addr: mr.addr, length, mwAccessFlags: AccessFlag.REMOTE_WRITE };
      wire.qp.bindMw(mw, { wrId, sendFlags: SendFlag.SIGNALED, bindInfo });
    };
    bind(1n, 64);
    assert.equal(wire.completions(), ['1 SUCCESS']);
    for (const [wrId, length] of [
      [2n, 32],
      [3n, 0],
    ] as const) {
      world.enter();
      bind(wrId, length);
      assert.equal(wire.completions(), []);
      world.leave();
      world.pass(2_000);
      assert.equal(wire.completions(), [`${wrId} SUCCESS`]);
    }
  }));

test('a bind behind a fence does not stop retransmissions of earlier requests', () =>
  within({}, true, (world, wire) => {
    const mw = wire.pd.allocMw(MwType.TYPE_1);
    const mr = wire.pd.regMr(wire.buffer, FULL_ACCESS | AccessFlag.MW_BIND);
    wire.qp.postSend({ ...SEND, wrId: 1n });
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x100 });
    world.enter();
    const bindInfo = { mr, addr: mr.addr, length: 8, mwAccessFlags: AccessFlag.REMOTE_WRITE };
    wire.qp.bindMw(mw, { wrId: 2n, sendFlags: SendFlag.SIGNALED, bindInfo });
    world.pass(20_000);
    wire.expectPacket({ opcode: Opcode.RC_SEND_ONLY, psn: 0x100 });
    wire.takePackets();
    world.leave();
    world.pass(2_000);
    assert.equal(wire.completions(), [], 'in order: the SEND is not acknowledged');
    wire.acknowledge(0x100);
    assert.equal(wire.completions(), ['1 SUCCESS', '2 SUCCESS']);
  }));

interface InvalidatingSend {
  readonly opcode: number;
  readonly psn: number;
  readonly ackRequest: number;
  readonly key: number;
}

/** Receives a SEND_WITH_INV while the other engine is in a call. Returns the packet. */
function receiveBehindFence(world: World): InvalidatingSend {
  const { wire } = world;
  const sgList = [{ addr: wire.mr.addr, length: 64, lkey: wire.mr.lkey }];
  wire.qp.postRecv({ wrId: 7n, sgList });
  world.enter();
  const opcode = Opcode.RC_SEND_ONLY_WITH_INVALIDATE;
  const packet = { opcode, psn: 0x200, ackRequest: 1, key: world.region().rkey };
  wire.sendPacket(packet, 16);
  return packet;
}

test('a received SEND_WITH_INV completes, and is acknowledged, behind its fence', () =>
  within({}, true, (world, wire) => {
    const packet = receiveBehindFence(world);
    wire.expectSilence('the fence withholds the acknowledgement');
    assert.equal(wire.completions(), []);
    world.leave();
    world.pass(2_000);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x1f });
    const [completion] = wire.cq.poll(1);
    assert.is(completion!.wrId, 7n);
    assert.is(completion!.status, WcStatus.SUCCESS);
    assert.is(completion!.byteLen, 16);
    assert.is(completion!.wcFlags, WcFlag.WITH_INV);
    assert.is(completion!.invalidatedRkey, packet.key);
  }));

test('messages behind a SEND_WITH_INV keep their own receive requests', () =>
  within({}, true, (world, wire) => {
    const mr = world.region();
    for (const [wrId, offset] of [
      [7n, 0n],
      [8n, 2048n],
    ] as const) {
      wire.qp.postRecv({
        wrId,
        sgList: [{ addr: wire.mr.addr + offset, length: 2048, lkey: wire.mr.lkey }],
      });
    }
    world.enter();
    const invalidating = { opcode: Opcode.RC_SEND_ONLY_WITH_INVALIDATE, psn: 0x200, ackRequest: 1 };
    wire.sendPacket({ ...invalidating, key: mr.rkey }, new Uint8Array(16).fill(1));
    const first = { opcode: Opcode.RC_SEND_FIRST, psn: 0x201 };
    const last = { opcode: Opcode.RC_SEND_LAST, psn: 0x202, ackRequest: 1 };
    const sendBoth = (): void => {
      wire.sendPacket(first, new Uint8Array(1024).fill(2));
      wire.sendPacket(last, new Uint8Array(16).fill(3));
    };
    sendBoth();
    assert.is(wire.buffer[0], 1, 'the receive request of the first message is not written again');
    wire.expectSilence('nothing behind the fence is acknowledged');
    world.leave();
    world.pass(2_000);
    // The peer retransmits the second message.
    wire.takePackets();
    sendBoth();
    assert.equal(wire.completions(), ['7 SUCCESS', '8 SUCCESS']);
    assert.equal([wire.buffer[0], wire.buffer[2048], wire.buffer[3072]], [1, 2, 3]);
  }));

test('a retransmitted SEND_WITH_INV behind a fence gets an RNR NAK, and executes once', () =>
  within({}, true, (world, wire) => {
    const packet = receiveBehindFence(world);
    world.pass(50_000);
    wire.sendPacket(packet, 16);
    const { syndrome } = wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
    assert.is(syndrome! >> 5, 1, 'an RNR NAK');
    world.leave();
    world.pass(2_000);
    assert.equal(wire.completions(), ['7 SUCCESS']);
  }));

test('a SEND_WITH_INV with a fence that never passes ends its queue pair', () =>
  within({}, true, (world, wire) => {
    receiveBehindFence(world);
    world.pass(FENCE_MICROS_MAX + 10_000);
    assert.equal(wire.completions(), ['7 RESP_TIMEOUT_ERR']);
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200, syndrome: 0x63 });
  }));

test('a queue pair that is destroyed behind a fence leaves no trace', () =>
  within({}, true, (world, wire) => {
    world.enter();
    wire.qp.postSend(invalidate(world.region().rkey));
    wire.qp.destroy();
    // The next queue pair uses the same memory, and waits behind a fence as well.
    const next = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, qpType: QpType.RC });
    wire.connect({}, next);
    world.enter();
    next.postSend(invalidate(world.region().rkey, 9n));
    world.pass(10_000);
    assert.equal(wire.completions(), []);
    world.leave();
    world.pass(2_000);
    assert.equal(wire.completions(), ['9 SUCCESS']);
  }));

test('a queue pair that is destroyed behind a fence takes no other one off the list', () =>
  within({}, true, (world, wire) => {
    const make = () => {
      const qp = wire.pd.createQp({ sendCq: wire.cq, recvCq: wire.cq, qpType: QpType.RC });
      wire.connect({}, qp);
      return qp;
    };
    const destroyed = make();
    world.enter();
    // The one that waits longer is the first of the list.
    destroyed.postSend(invalidate(world.region().rkey));
    wire.qp.postSend(invalidate(world.region().rkey, 3n));
    destroyed.destroy();
    // It uses the same memory, which is zeroed.
    make();
    world.leave();
    world.pass(2_000);
    assert.equal(wire.completions(), ['3 SUCCESS']);
  }));

test('a SEND_WITH_INV behind its fence is solicited, or not, when it completes', async () => {
  for (const solicited of [0, 1]) {
    await within({}, true, (world, wire) => {
      wire.receive(7);
      wire.cq.reqNotify(true);
      world.enter();
      const key = world.region().rkey;
      const opcode = Opcode.RC_SEND_ONLY_WITH_INVALIDATE;
      wire.sendPacket({ opcode, psn: 0x200, solicited, ackRequest: 1, key }, 16);
      assert.equal(wire.rings, []);
      world.leave();
      world.pass(2_000);
      assert.equal(wire.completions(), ['7 SUCCESS']);
      assert.is(wire.rings.length, solicited);
    });
  }
});

test('SQD is drained when the fence of a LOCAL_INV has passed', () =>
  within({}, true, (world, wire) => {
    world.enter();
    wire.qp.postSend(invalidate(world.region().rkey));
    wire.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
    world.pass(2_000);
    assert.equal([wire.completions(), wire.takeEvents()], [[], []]);
    world.leave();
    world.pass(2_000);
    assert.equal([wire.completions(), wire.takeEvents()], [['1 SUCCESS'], ['SQ_DRAINED']]);
  }));

test.run();
