/** The queue pairs to one peer share half of its receive buffer (shared/path-control.ts). */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  Endpoint,
  Mtu,
  QpState,
  SendFlag,
  VirtualClock,
  WcStatus,
  WrOpcode,
  createLoopbackPair,
  openDevice,
  type Context,
  type MemoryRegion,
  type QueuePair,
} from '../../host/index.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';

const PACKET_BYTES = 4096;
/** Charge of a packet of 4096 bytes to a receive buffer (link/udp/udp.ts). */
const CHARGE = 256 + 8192;
/** Packets that fit into half of the peer's receive buffer. */
const HALF_PACKETS = 16;
const DEPTH = 128;

interface World {
  readonly context: Context;
  readonly qps: readonly QueuePair[];
  readonly clock: VirtualClock;
  /** Delivers until nothing travels, then lets time jump to the next timer, until `done`. */
  until(done: () => boolean): void;
  deliver(): number;
  /** Posts `count` WRITEs of one packet each. */
  write(qp: QueuePair, count: number): void;
  completed(): number;
  /** Packets that were sent so far. */
  sent(): number;
  close(): Promise<void>;
}

async function open(queuePairs: number, half: number): Promise<World> {
  const clock = new VirtualClock();
  const { network, a, b } = createLoopbackPair({ auto: false });
  const sideOf = async (link: typeof a): Promise<[Omit<Side, 'qp'>, MemoryRegion, QueuePair[]]> => {
    const options = {
      link,
      clock,
      memoryBytes: 64 * 2 ** 20,
      windowPackets: 1024,
      initialWindowPackets: 1024,
      sendBuffers: 256,
    };
    const context = await openDevice({ ...options, windowBytes: 2 ** 24 });
    const pd = context.allocPd();
    const cq = context.createCq(8192);
    const buffer = context.alloc(PACKET_BYTES);
    const mr = pd.regMr(buffer, ALL_ACCESS);
    const cap = { maxSendWr: DEPTH, maxRecvWr: 1 };
    const qps = Array.from({ length: queuePairs }, () =>
      pd.createQp({ sendCq: cq, recvCq: cq, cap }),
    );
    return [{ context, pd, cq, buffer, mr }, mr, qps];
  };
  const [ours, local, qps] = await sideOf(a);
  const [theirs, remote, others] = await sideOf(b);
  const attributes = { maxDestRdAtomic: 1, minRnrTimer: 1, timeout: 14, maxRdAtomic: 1 };
  const address = { receiveBufferBytes: 2 * half * CHARGE };
  for (const [index, qp] of qps.entries()) {
    const peer = { context: theirs.context, qp: others[index]! };
    connect(qp, peer, 1, 1, { mtu: Mtu.MTU_4096, attributes, address });
    connect(others[index]!, { ...ours, qp }, 1, 1, { mtu: Mtu.MTU_4096 });
  }
  const deliver = (): number => network.deliver();
  return {
    context: ours.context,
    qps,
    clock,
    deliver,
    until(done) {
      for (let turn = 0; !done(); turn++) {
        assert.ok(turn < 10_000, 'it ends');
        if (deliver() === 0 && !done()) clock.step();
      }
    },
    write(qp, count) {
      for (let index = 0; index < count; index++) {
        qp.postSend({
          opcode: WrOpcode.RDMA_WRITE,
          sendFlags: SendFlag.SIGNALED,
          sgList: [{ addr: local.addr, length: PACKET_BYTES, lkey: local.lkey }],
          rdma: { remoteAddr: remote.addr, rkey: remote.rkey },
        });
      }
    },
    completed() {
      const completions = ours.cq.poll(8192);
      assert.ok(completions.every(({ status }) => status === WcStatus.SUCCESS));
      return completions.length;
    },
    sent() {
      return Number(ours.context.counters().sentPkts);
    },
    async close() {
      await ours.context.close();
      await theirs.context.close();
    },
  };
}

async function inWorld(
  queuePairs: number,
  work: (world: World) => void,
  half = HALF_PACKETS,
): Promise<void> {
  const world = await open(queuePairs, half);
  try {
    work(world);
  } finally {
    await world.close();
  }
}

/** Packets that leave before anything is answered. */
function burst(world: World, qps: readonly QueuePair[]): number {
  const before = world.sent();
  for (const qp of qps) world.write(qp, DEPTH);
  return world.sent() - before;
}

test('one queue pair has half of the receive buffer for itself', () =>
  inWorld(1, (world) => {
    assert.is(burst(world, world.qps), HALF_PACKETS);
  }));

test('a queue pair that begins has its part of what those before it have', () =>
  inWorld(8, (world) => {
    const sent = world.qps.map((qp) => burst(world, [qp]));
    assert.equal(sent, [16, 8, 6, 4, 4, 3, 3, 2]);
  }));

test('queue pairs that share a window complete all, without a timer', () =>
  inWorld(16, (world) => {
    for (const qp of world.qps) world.write(qp, DEPTH);
    const began = world.clock.now();
    const all = world.qps.length * DEPTH;
    let [done, most] = [0, 0];
    world.until(() => {
      done += world.completed();
      // Once the first ones have come down to their share.
      if (done > all / 8) most = Math.max(most, world.sent() - done);
      return done === all;
    });
    assert.ok(most <= HALF_PACKETS + 2 * world.qps.length, `${most} packets under way`);
    // One packet each asks once more: it was sent before the others began.
    const again = Number(world.context.counters().retransmittedPkts);
    assert.ok(again <= world.qps.length, `${again} packets twice`);
    assert.ok(world.clock.now() - began < 1000, 'no timer was waited for');
  }));

test('a share is free again when the others are done, in ERR, in RESET or destroyed', () =>
  inWorld(8, (world) => {
    const [first, ...others] = world.qps;
    for (const qp of others) world.write(qp, 4);
    others[1]!.modify({ qpState: QpState.ERR });
    others[2]!.modify({ qpState: QpState.ERR });
    others[2]!.modify({ qpState: QpState.RESET });
    others[3]!.destroy();
    while (world.deliver() > 0);
    assert.is(burst(world, [first!]), HALF_PACKETS);
  }));

test('a timeout lowers the limit of all queue pairs to the peer once, arrivals raise it again', () =>
  inWorld(
    3,
    (world) => {
      const [first, second, third] = world.qps;
      world.write(first!, 1);
      world.write(second!, 1);
      const { timeouts } = world.context.counters();
      while (world.context.counters().timeouts < timeouts + 2n) world.clock.step();
      while (world.deliver() > 0);
      assert.is(world.completed(), 2);
      // After a timeout four packets may be in flight, and two have arrived since.
      assert.is(burst(world, [third!]), 5);
      world.until(() => world.sent() >= 4 + DEPTH);
      while (world.deliver() > 0);
      assert.is(world.completed(), DEPTH);
      assert.is(burst(world, [third!]), 100);
    },
    100,
  ));

test('the limit never falls below 4 packets', () =>
  inWorld(
    2,
    (world) => {
      const [first, second] = world.qps;
      for (let turn = 0; turn < 5; turn++) {
        world.write(first!, 1);
        const { timeouts } = world.context.counters();
        while (world.context.counters().timeouts === timeouts) world.clock.step();
        while (world.deliver() > 0);
      }
      assert.is(world.completed(), 5);
      assert.is(burst(world, [second!]), 4);
    },
    100,
  ));

test('peers do not share', () =>
  inWorld(2, (world) => {
    const [first, second] = world.qps;
    // The second one is connected to an address where nothing answers.
    second!.modify({ qpState: QpState.RESET });
    second!.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
    const { gid, port } = Endpoint.parse('10.9.9.9', 4791);
    second!.modify({
      qpState: QpState.RTR,
      ahAttr: { dgid: gid, port, receiveBufferBytes: 2 * HALF_PACKETS * CHARGE },
      pathMtu: Mtu.MTU_4096,
      destQpNum: 5,
      rqPsn: 1,
      maxDestRdAtomic: 1,
      minRnrTimer: 1,
    });
    const patience = { timeout: 14, retryCnt: 7, rnrRetry: 7 };
    second!.modify({ qpState: QpState.RTS, sqPsn: 1, ...patience, maxRdAtomic: 1 });
    world.write(second!, 8);
    assert.is(burst(world, [first!]), HALF_PACKETS);
  }));

test.run();
