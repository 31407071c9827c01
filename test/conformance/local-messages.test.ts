/**
 * Messages between two contexts of one device, step by step: the source posts, the target's engine
 * takes when it is its turn, and either side may stop or end in between.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  LocalMessageLayout,
  LocalMessageState,
  QueuePairLayout,
} from '#build/abi.js';
import { structAt } from '../../host/engine/struct.js';
import {
  AccessFlag,
  Endpoint,
  QpState,
  ReregMrFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  openDevice,
} from '../../host/index.js';
import { PathWorld } from '../support/request-paths.js';
import { LocalChannel } from '../support/local-channels.js';
import { connect, makePair, type PairOptions } from '../support/pair.js';
import { WireLink, pattern } from '../support/wire.js';
import { Random } from '../simulation/random.js';
import { asPosted, type AnyRequest } from '../support/any-request.js';

const { SEND, RDMA_WRITE, RDMA_WRITE_WITH_IMM } = WrOpcode;
const { SIGNALED } = SendFlag;

interface World extends PathWorld {
  readonly channel: LocalChannel;
}

async function between(
  body: (world: World) => void | Promise<void>,
  options: PairOptions = {},
): Promise<void> {
  const pair = await makePair({ contexts: true, ...options });
  const channel = new LocalChannel(pair.a.context.device.arena, 1, 0);
  const world = Object.assign(new PathWorld(pair), { channel });
  world.a.buffer.set(pattern(world.a.buffer.length, 1));
  world.b.buffer.fill(0);
  try {
    await body(world);
  } finally {
    await pair.close();
  }
}

function send(world: World, wrId: number, from: number, length: number): AnyRequest {
  return { wrId, opcode: SEND, sendFlags: SIGNALED, sgList: [world.sge(world.a, from, length)] };
}

function receive(world: World, wrId: number, to: number, length: number): void {
  world.b.qp.postRecv([{ wrId, sgList: [world.sge(world.b, to, length)] }]);
}

/** `wrId STATUS` of all completions of a side. */
function seen(side: World['a']): string[] {
  return side.cq.poll(1000).map(({ wrId, status }) => `${wrId} ${WcStatusName[status]}`);
}

function sent(world: World): bigint {
  return world.a.context.counters().sentPkts + world.b.context.counters().sentPkts;
}

test('more messages than the channel has places arrive in order, without a packet', () =>
  between((world) => {
    const { a, b, channel } = world;
    const count = 3 * channel.entries;
    for (let index = 0; index < count; index++) receive(world, index, index * 100, 100);
    for (let index = 0; index < count; index++) {
      world.post(a, send(world, index, index, index % 3 === 0 ? 90 : 100));
    }
    world.quiet();
    const all = Array.from({ length: count }, (_, index) => `${index} SUCCESS`);
    assert.equal([seen(a), seen(b)], [all, all]);
    assert.equal(b.buffer.slice(100, 200), a.buffer.slice(1, 101));
    assert.equal([sent(world), a.context.counters().localRequests], [0n, BigInt(count)]);
  }));

test('a WRITE behind a SEND waits until the SEND is executed', () =>
  between((world) => {
    const { a, b } = world;
    receive(world, 7, 0, 100);
    const rdma = world.to(b, 0);
    world.post(a, send(world, 1, 0, 100), {
      ...send(world, 2, 500, 100),
      opcode: RDMA_WRITE,
      rdma,
    });
    assert.is(b.buffer[0], 0, 'the target has not had its turn');
    world.quiet();
    assert.equal(b.buffer.slice(0, 100), a.buffer.slice(500, 600));
    assert.equal([seen(a), sent(world)], [['1 SUCCESS', '2 SUCCESS'], 0n]);
  }));

test('a target that does not come to its turn: the message goes by packets, once', () =>
  between((world) => {
    const { a, b, channel } = world;
    for (let index = 0; index < 3; index++) receive(world, index, index * 1000, 1000);
    world.post(a, send(world, 1, 0, 1000), send(world, 2, 9, 60), send(world, 3, 5, 700));
    assert.is(channel.message(channel.head - 1).state, LocalMessageState.POSTED);
    // The timer of the source.
    const first = channel.message(channel.head - 3);
    for (let turn = 0; turn < 20 && first.state === LocalMessageState.POSTED; turn++) {
      world.pair.clock.step();
    }
    const states = [3, 2, 1].map((back) => channel.message(channel.head - back).state);
    assert.equal(states, Array(3).fill(LocalMessageState.WITHDRAWN));
    world.quiet();
    assert.equal(seen(a), ['1 SUCCESS', '2 SUCCESS', '3 SUCCESS']);
    assert.equal(seen(b), ['0 SUCCESS', '1 SUCCESS', '2 SUCCESS']);
    assert.equal(b.buffer.slice(2000, 2700), a.buffer.slice(5, 705));
    // And back.
    receive(world, 9, 0, 10);
    world.post(a, send(world, 4, 0, 10));
    world.quiet();
    assert.equal([seen(a), a.context.counters().localRequests], [['4 SUCCESS'], 1n]);
  }));

test('a target that stopped while it executed: retries end in RETRY_EXC_ERR', () =>
  between((world) => {
    const { a, channel } = world;
    receive(world, 0, 0, 100);
    world.post(a, send(world, 1, 0, 100), send(world, 2, 0, 100));
    channel.message(channel.head - 2).state = LocalMessageState.TAKEN;
    const { clock } = world.pair;
    for (let turn = 0; turn < 20 && a.qp.state === QpState.RTS; turn++) clock.step();
    assert.equal(seen(a), ['1 RETRY_EXC_ERR', '2 WR_FLUSH_ERR']);
    // It continues: the abandoned message is not executed.
    assert.is(channel.message(channel.head - 2).state, LocalMessageState.WITHDRAWN);
    world.quiet();
    assert.equal(seen(world.b), []);
  }));

test('messages behind a refused one follow it by packets, in order', () =>
  between((world) => {
    const { a, b } = world;
    receive(world, 0, 0, 100);
    world.post(a, send(world, 1, 1, 100), send(world, 2, 2, 100), send(world, 3, 3, 100));
    world.pair.settle();
    assert.equal(seen(a), ['1 SUCCESS']);
    assert.is(b.context.counters().sendRnrErr, 1n);
    receive(world, 1, 1000, 100);
    receive(world, 2, 2000, 100);
    world.quiet();
    assert.equal([seen(a), seen(b).length], [['2 SUCCESS', '3 SUCCESS'], 3]);
    assert.equal(b.buffer.slice(1000, 1100), a.buffer.slice(2, 102));
    assert.equal(b.buffer.slice(2000, 2100), a.buffer.slice(3, 103));
  }));

test('what was posted before a reset, or before ERR, is not delivered', () =>
  between((world) => {
    const { a, b } = world;
    for (const state of [QpState.ERR, QpState.RESET]) {
      receive(world, 1, 0, 100);
      world.post(a, send(world, 1, 0, 100), send(world, 2, 0, 100));
      a.qp.modify({ qpState: state });
      world.quiet();
      const flushed = state === QpState.ERR ? ['1 WR_FLUSH_ERR', '2 WR_FLUSH_ERR'] : [];
      assert.equal([seen(a), seen(b)], [flushed, []]);
      for (const side of [a, b]) side.qp.modify({ qpState: QpState.RESET });
      connect(a.qp, b, 1, 1, {});
      connect(b.qp, a, 1, 1, {});
    }
    receive(world, 1, 0, 100);
    world.post(a, send(world, 3, 0, 100));
    world.quiet();
    assert.equal([seen(a), seen(b), sent(world)], [['3 SUCCESS'], ['1 SUCCESS'], 0n]);
  }));

test('a message for an earlier life of the target is refused', () =>
  between((world) => {
    const { a, b } = world;
    world.post(a, send(world, 1, 0, 100));
    b.qp.modify({ qpState: QpState.RESET });
    connect(b.qp, a, 0xfffff8, 0xfffff0, {});
    receive(world, 1, 0, 100);
    world.pair.settle();
    assert.is(a.context.counters().localRequests, 0n, 'it went by packets');
    world.quiet();
    assert.equal([seen(a), seen(b)], [['1 SUCCESS'], ['1 SUCCESS']]);
  }));

test('a target without room for its completion executes nothing', () =>
  between(
    (world) => {
      const { a, b } = world;
      for (let index = 0; index < 6; index++) receive(world, index, 0, 100);
      for (let index = 0; index < 6; index++) world.post(a, send(world, index, 0, 100));
      world.quiet();
      assert.is(b.qp.state, QpState.ERR);
      assert.is(a.context.counters().localRequests, 4n);
      assert.equal(seen(a).length, 4);
    },
    { cqe: 4, attributes: { retryCnt: 1 } },
  ));

test('a key that is gone when the target reads: LOC_PROT_ERR, as over the wire', () =>
  between((world) => {
    const { a, b } = world;
    const mr = a.pd.regMr(a.context.alloc(4096), 0);
    const list = [{ addr: mr.addr, length: 1000, lkey: mr.lkey }];
    receive(world, 1, 0, 1000);
    world.post(a, { ...send(world, 1, 0, 0), sgList: list });
    mr.dereg();
    world.quiet();
    assert.equal([seen(a), seen(b)], [['1 LOC_PROT_ERR'], []]);
  }));

test('a queue pair with path wire takes and sends no messages', () =>
  between((world) => {
    const { a, b } = world;
    b.qp.modify({ qpState: QpState.RESET });
    connect(b.qp, a, 0xfffff8, 0xfffff0, { oneDevice: 'wire' });
    receive(world, 1, 0, 100);
    world.post(a, send(world, 1, 0, 100));
    world.quiet();
    assert.equal([seen(a), a.context.counters().localRequests], [['1 SUCCESS'], 0n]);
  }));

test('SQD drains when messages are answered', () =>
  between((world) => {
    const { a } = world;
    receive(world, 1, 0, 100);
    world.post(a, send(world, 1, 0, 100));
    a.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
    world.post(a, send(world, 2, 0, 100));
    world.quiet();
    assert.equal(seen(a), ['1 SUCCESS']);
    receive(world, 2, 0, 100);
    a.qp.modify({ qpState: QpState.RTS });
    world.quiet();
    assert.equal([seen(a), sent(world)], [['2 SUCCESS'], 0n]);
  }));

test('WRITE with immediate data: refused keys are the responder’s matter', () =>
  between((world) => {
    const { a, b } = world;
    receive(world, 1, 0, 0);
    const request = { ...send(world, 1, 5, 3000), opcode: RDMA_WRITE_WITH_IMM, immData: 77 };
    world.post(a, { ...request, rdma: world.to(b, 40) });
    world.quiet();
    assert.equal(b.buffer.slice(40, 3040), a.buffer.slice(5, 3005));
    assert.equal([seen(a), sent(world)], [['1 SUCCESS'], 0n]);
    const before = b.buffer.slice();
    receive(world, 2, 50_000, 4000);
    world.post(a, { ...request, rdma: { ...world.to(b, 40), rkey: 1 } });
    world.quiet();
    assert.equal(seen(a), ['1 REM_ACCESS_ERR']);
    assert.equal(b.buffer, before, 'no byte is placed');
  }));

test('WRITE with immediate data: the pieces of several SGEs follow each other at the target', () =>
  between((world) => {
    const { a, b } = world;
    const pieces = [
      [10, 100],
      [500, 1],
      [900, 300],
      [2000, 77],
    ] as const;
    receive(world, 1, 0, 0);
    world.post(a, {
      wrId: 1,
      opcode: RDMA_WRITE_WITH_IMM,
      sendFlags: SIGNALED,
      sgList: pieces.map(([from, length]) => world.sge(a, from, length)),
      immData: 5,
      rdma: world.to(b, 100),
    });
    world.quiet();
    assert.equal([seen(a), sent(world)], [['1 SUCCESS'], 0n]);
    const all = pieces.flatMap(([from, length]) => [...a.buffer.subarray(from, from + length)]);
    assert.equal([...b.buffer.subarray(100, 100 + all.length)], all);
    assert.equal([b.buffer[99], b.buffer[100 + all.length]], [0, 0]);
    const [wc] = b.cq.poll(1);
    assert.equal([wc?.immData, wc?.byteLen], [5, all.length]);
  }));

test('a WRITE with immediate data needs REMOTE_WRITE of the queue pair, as over the wire', () =>
  between((world) => {
    const { a, b } = world;
    b.qp.modify({ qpAccessFlags: AccessFlag.REMOTE_READ });
    receive(world, 1, 0, 0);
    const request = { ...send(world, 1, 5, 300), opcode: RDMA_WRITE_WITH_IMM, immData: 7 };
    world.post(a, { ...request, rdma: world.to(b, 40) });
    world.quiet();
    assert.equal(seen(a), ['1 REM_INV_REQ_ERR']);
    assert.equal(b.buffer.slice(0, 400), new Uint8Array(400));
  }));

const RETRY_ONCE: PairOptions = { attributes: { retryCnt: 1 } };
/** More messages than this are more than one call of an engine copies. */
const CALL_BYTES = 2 ** 25;

/** The state of the message that was posted `back` before the next one. */
function stateOf({ channel }: World, back: number): number {
  return channel.message(channel.head - back).state;
}

function setState({ channel }: World, back: number, state: number): void {
  channel.message(channel.head - back).state = state;
}

test('a message without the solicited flag rings no queue that waits for such only', () =>
  between(async (world) => {
    const { a, b } = world;
    const rings: number[] = [];
    const { device } = b.context;
    const inner = device.events!;
    device.events = {
      ...inner,
      completion: (cq) => {
        rings.push(cq);
        inner.completion(cq);
      },
    };
    receive(world, 1, 0, 100);
    receive(world, 2, 0, 100);
    b.cq.reqNotify(true);
    world.post(a, send(world, 1, 0, 100));
    world.quiet();
    assert.equal([rings, seen(b)], [[], ['1 SUCCESS']]);
    world.post(a, { ...send(world, 2, 0, 100), sendFlags: SIGNALED | SendFlag.SOLICITED });
    world.quiet();
    assert.equal([rings, seen(b)], [[b.cq.handle], ['2 SUCCESS']]);
  }));

test('a call takes so much and no more; what it leaves is taken, and answered, afterwards', () =>
  between(
    (world) => {
      const { a, b } = world;
      const length = CALL_BYTES / 4;
      for (let wrId = 1; wrId <= 6; wrId++) receive(world, wrId, 0, length);
      for (let wrId = 1; wrId <= 6; wrId++) world.post(a, send(world, wrId, 0, length));
      b.context.device.poll();
      assert.is(seen(b).length, 4, 'one call');
      a.context.device.poll();
      assert.is(seen(a).length, 4, 'their answers');
      world.pair.settle();
      assert.equal(
        [seen(a), seen(b)],
        [
          ['5 SUCCESS', '6 SUCCESS'],
          ['5 SUCCESS', '6 SUCCESS'],
        ],
      );
      assert.is(sent(world), 0n);
    },
    { bytes: CALL_BYTES / 4, device: { memoryBytes: 64 * 2 ** 20 } },
  ));

test('while a message is being executed nothing goes by packets, whatever was refused', () =>
  between((world) => {
    const { a, b } = world;
    world.post(a, send(world, 1, 0, 100), send(world, 2, 0, 100));
    setState(world, 2, LocalMessageState.REFUSED);
    setState(world, 1, LocalMessageState.TAKEN);
    world.post(a, send(world, 3, 0, 100));
    world.pair.settle();
    assert.equal([seen(a), sent(world)], [[], 0n]);
    setState(world, 1, LocalMessageState.REFUSED);
    for (let wrId = 1; wrId <= 3; wrId++) receive(world, wrId, 0, 100);
    world.quiet();
    assert.equal(seen(a), ['1 SUCCESS', '2 SUCCESS', '3 SUCCESS']);
    assert.equal(seen(b), ['1 SUCCESS', '2 SUCCESS', '3 SUCCESS']);
  }));

test('each message that is executed gives all retries to the next one', () =>
  between((world) => {
    const { a } = world;
    const { clock } = world.pair;
    for (let wrId = 1; wrId <= 3; wrId++) {
      world.post(a, send(world, wrId, 0, 100));
      setState(world, 1, LocalMessageState.TAKEN);
      const { timeouts } = a.context.counters();
      while (a.context.counters().timeouts === timeouts) clock.step();
      assert.is(a.qp.state, QpState.RTS, `message ${wrId}`);
      setState(world, 1, LocalMessageState.DONE);
      const completed: string[] = [];
      for (; completed.length === 0; completed.push(...seen(a))) clock.step();
      assert.equal(completed, [`${wrId} SUCCESS`]);
    }
  }, RETRY_ONCE));

test('messages that are posted meanwhile do not put off the timer of the first', () =>
  between((world) => {
    const { a } = world;
    const { clock } = world.pair;
    world.post(a, send(world, 1, 0, 100));
    const first = world.channel.message(world.channel.head - 1);
    assert.is(first.state, LocalMessageState.POSTED);
    for (let wrId = 2; wrId <= 12; wrId++) {
      clock.advance(1000);
      world.post(a, send(world, wrId, 0, 100));
    }
    assert.is(first.state, LocalMessageState.WITHDRAWN);
  }));

test('a message of a context that is not the peer’s is refused, whatever it says', () =>
  between(
    async (world) => {
      const { a, b, pair } = world;
      const { device } = a.context;
      const third = await openDevice({
        threadShare: a.context.share(),
        link: new WireLink(Endpoint.parse('127.0.0.1', 4793), 'none'),
        clock: pair.clock,
      });
      receive(world, 1, 0, 100);
      world.post(a, send(world, 1, 0, 100));
      const genuine = world.channel.message(world.channel.head - 1);
      const forged = new LocalChannel(device.arena, 1, 2);
      const message = forged.message(0) as unknown as { [name: string]: unknown };
      for (const name of Object.keys(LocalMessageLayout.fields)) {
        message[name] = (genuine as unknown as { [name: string]: unknown })[name];
      }
      genuine.state = LocalMessageState.WITHDRAWN;
      forged.head = 1;
      forged.announce();
      b.context.device.poll();
      assert.equal([seen(b), message['state']], [[], LocalMessageState.REFUSED]);
      await third.close();
    },
    { device: { threadsMax: 3 } },
  ));

test('bytes that were placed before a piece is refused are placed again by packets', () =>
  between((world) => {
    const { a, b } = world;
    const pieces = a.pd.regMr(null, 0, AccessFlag.LOCAL_WRITE | AccessFlag.ZERO_BASED);
    pieces.setLayoutSg(0, [world.sge(a, 8192, 200), world.sge(a, 9000, 200)]);
    receive(world, 1, 0, 4096);
    world.post(a, {
      ...send(world, 1, 0, 1000),
      sgList: [world.sge(a, 0, 1000), { addr: 0n, length: 400, lkey: pieces.lkey }],
    });
    world.quiet();
    assert.equal([seen(a), seen(b)], [['1 SUCCESS'], ['1 SUCCESS']]);
    assert.equal(b.buffer.slice(0, 1000), a.buffer.slice(0, 1000));
    assert.equal(b.buffer.slice(1200, 1400), a.buffer.slice(9000, 9200));
  }));

test('a message that its target executes while the queue pair ends is withdrawn', () =>
  between((world) => {
    for (const state of [QpState.ERR, QpState.RESET]) {
      const { a, b } = world;
      world.post(a, send(world, 1, 0, 100));
      setState(world, 1, LocalMessageState.TAKEN);
      a.qp.modify({ qpState: state });
      assert.is(stateOf(world, 1), LocalMessageState.WITHDRAWN);
      for (const side of [a, b]) side.qp.modify({ qpState: QpState.RESET });
      connect(a.qp, b, 1, 1, {});
      connect(b.qp, a, 1, 1, {});
      seen(a);
    }
  }));

test('a target with a completion queue that has ended executes nothing', () =>
  between(
    (world) => {
      const { a, b } = world;
      const [from, to] = [a, b].map(({ pd, cq }) => pd.createQp({ sendCq: cq, recvCq: cq }));
      connect(from!, { ...b, qp: to! }, 1, 2, {});
      connect(to!, { ...a, qp: from! }, 2, 1, { attributes: { retryCnt: 1 } });
      for (let index = 0; index < 6; index++) receive(world, index, 0, 100);
      for (let index = 0; index < 6; index++) world.post(a, send(world, index, 0, 100));
      world.quiet();
      assert.is(b.qp.state, QpState.ERR);
      const executed = a.context.counters().localRequests;
      // Its places are free, and it is dead all the same.
      seen(b);
      to!.postRecv({ wrId: 9, sgList: [world.sge(b, 0, 100)] });
      from!.postSend(asPosted(send(world, 9, 0, 100)));
      world.quiet();
      assert.is(a.context.counters().localRequests, executed);
      assert.is(to!.state, QpState.ERR);
    },
    { cqe: 4, attributes: { retryCnt: 1 } },
  ));

test('local work that waits for its fence ends the turn, and holds what is behind it', () =>
  between((world) => {
    const { a, b } = world;
    const { memory, address } = a.context.device.arena;
    const arena = structAt(memory, ArenaLayout, address);
    const slot = structAt(memory, ContextSlotLayout, arena.contextSlots + CONTEXT_SLOT_SIZE);
    const mr = a.pd.regMr(a.buffer, AccessFlag.LOCAL_WRITE, { invalidatable: true });
    receive(world, 2, 0, 100);
    // The other engine is in a call that it began before.
    slot.activity = 2 * arena.epoch + 1;
    const opcode = WrOpcode.LOCAL_INV;
    world.post(a, { wrId: 1, opcode, sendFlags: SIGNALED, invalidateRkey: mr.lkey });
    world.post(a, send(world, 2, 0, 100));
    assert.equal([seen(a), sent(world)], [[], 0n]);
    slot.activity &= ~1;
    world.quiet();
    assert.equal([seen(a), seen(b)], [['1 SUCCESS', '2 SUCCESS'], ['2 SUCCESS']]);
  }));

test('a message that is refused is not overtaken by the next one of its run', () =>
  between((world) => {
    const { a, b, channel } = world;
    for (let index = 0; index < 2; index++) receive(world, index, index * 100, 100);
    world.post(a, send(world, 1, 0, 100), send(world, 2, 500, 100));
    // The target is at work on something else when it takes the first one, and not any more when
    // the source publishes the second one.
    const { memory } = b.context.device.arena;
    const struct = structAt(memory, QueuePairLayout, b.qp.handle);
    channel.head--;
    struct.heldJobs++;
    b.cq.poll(1);
    assert.is(channel.message(channel.head - 1).state, LocalMessageState.REFUSED);
    struct.heldJobs--;
    channel.head++;
    channel.announce();
    b.cq.poll(1);
    world.quiet();
    assert.equal(
      [seen(a), seen(b)],
      [
        ['1 SUCCESS', '2 SUCCESS'],
        ['0 SUCCESS', '1 SUCCESS'],
      ],
    );
    assert.equal(b.buffer.slice(0, 100), a.buffer.slice(0, 100));
    assert.equal(b.buffer.slice(100, 200), a.buffer.slice(500, 600));
  }));

test('a channel whose messages were all withdrawn takes the next ones', () =>
  between((world) => {
    const { a, b, channel } = world;
    const { entries } = channel;
    for (let index = 0; index < entries; index++) {
      receive(world, index, 0, 100);
      world.post(a, send(world, index, 0, 100));
    }
    const oldest = channel.message(channel.head - entries);
    for (let turn = 0; turn < 20 && oldest.state === LocalMessageState.POSTED; turn++) {
      world.pair.clock.step();
    }
    assert.is(oldest.state, LocalMessageState.WITHDRAWN);
    world.quiet();
    assert.is(seen(a).length, entries);
    assert.is(a.context.counters().localRequests, 0n);
    const packets = sent(world);
    for (let index = 0; index < 3; index++) {
      receive(world, index, 0, 100);
      world.post(a, send(world, index, 0, 100));
      world.quiet();
    }
    assert.equal([sent(world), a.context.counters().localRequests], [packets, 3n]);
    assert.is(seen(b).length, entries + 3);
  }));

test('short bytes whose second piece was out of reach for a moment are gathered anew', () =>
  between(
    (world) => {
      const { a, b } = world;
      // Each place of the send queue has had pieces behind the second one.
      const pieces = [0, 600, 700, 800].map((from) => world.sge(a, from, 30));
      for (let index = 0; index < 4; index++) {
        receive(world, index, 0, 200);
        world.post(a, { opcode: SEND, sgList: pieces });
        world.quiet();
      }
      assert.is(seen(b).length, 4);
      const other = a.context.allocPd();
      const mr = a.pd.regMr(a.buffer, AccessFlag.LOCAL_WRITE);
      for (let index = 0; index < 2; index++) receive(world, index, index * 100, 100);
      mr.rereg(ReregMrFlag.CHANGE_PD, other);
      const second = { addr: mr.addr + 300n, length: 40, lkey: mr.lkey };
      const sgList = [world.sge(a, 200, 50), second];
      world.post(a, send(world, 1, 0, 100), { wrId: 2, opcode: SEND, sendFlags: SIGNALED, sgList });
      mr.rereg(ReregMrFlag.CHANGE_PD, a.pd);
      world.quiet();
      assert.equal(
        [seen(a), seen(b)],
        [
          ['1 SUCCESS', '2 SUCCESS'],
          ['0 SUCCESS', '1 SUCCESS'],
        ],
      );
      assert.equal(b.buffer.slice(100, 150), a.buffer.slice(200, 250));
      assert.equal(b.buffer.slice(150, 190), a.buffer.slice(300, 340));
    },
    { qp: { cap: { maxSendWr: 4, maxSendSge: 4 } } },
  ));

/** Whatever another member of the arena writes there. */
for (let seed = 1; seed <= 6; seed++) {
  test(`channels that lie: no trap, and every request completes (seed ${seed})`, () =>
    between(async (world) => {
      const random = new Random(seed);
      const { a, b, channel } = world;
      const word = (): number => [0, 1, random.below(2 ** 32), 0xffffffff][random.below(4)]!;
      let posted = 0;
      for (let turn = 0; turn < 200 && a.qp.state === QpState.RTS; turn++) {
        receive(world, turn, random.below(60_000), 2000);
        world.post(a, send(world, turn, 0, [0, 10, 300, 2000][random.below(4)]!));
        posted++;
        const names = ['state', 'sgeCount', 'length', 'pd', 'targetQpn', 'sourceQpn', 'run'];
        const name = names[random.below(names.length)]!;
        if (random.below(2) === 0) {
          const message = channel.message(random.below(channel.entries)) as unknown as {
            [name: string]: number;
          };
          message[name] = name === 'state' ? random.below(8) : word();
        }
        if (random.below(20) === 0) channel.head = word();
        if (random.below(20) === 0) channel.tail = word();
        world.quiet(1);
      }
      // A message that was executed twice has taken a receive request of another one.
      for (let turn = 0; turn < 50; turn++) receive(world, 1000 + turn, 0, 2000);
      world.quiet();
      assert.is(seen(a).length, posted);
      assert.ok(b.qp.state === QpState.RTS || b.qp.state === QpState.ERR);
    }));
}

test.run();
