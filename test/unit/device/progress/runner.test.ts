/** Report of a runner's last turn, for a thread that must know whether it may sleep. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  DURABLE_TABLE_BYTES,
  DurableTable,
} from '../../../../host/device/durable/durable-exchange.js';
import { DURABLE_RING_BYTES, DurableRing } from '../../../../host/device/durable/durable-ring.js';
import { Runner } from '../../../../host/device/progress/runner.js';
import {
  PlacementType,
  SendFlag,
  WcStatus,
  WrOpcode,
  type Endpoint,
  type Link,
  type LinkMemory,
  type LinkReceiver,
  type PacketBatch,
} from '../../../../host/index.js';
import type { UdpBatchLink } from '../../../../host/link/udp/udp-batch.js';
import { FLUSH_ACCESS, HandStore } from '../../../support/durable.js';
import { makePair, type Pair } from '../../../support/pair.js';

const BYTES = 4096;

/** A link whose packets go to the receiver of the test. */
function diverted(link: Link, receiver: LinkReceiver): Link {
  return new Proxy(link, {
    get(target, name) {
      if (name === 'open') {
        return (_: LinkReceiver, memory?: LinkMemory) => target.open(receiver, memory);
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? (value as () => unknown).bind(target) : value;
    },
  });
}

interface World {
  readonly pair: Pair;
  readonly runner: Runner;
  /** Of what the runner has handed to a store. */
  readonly ring: DurableRing;
  /** Posts a FLUSH, or a WRITE, and hands its packets at b to the runner. */
  ask(placement: number): void;
}

async function use(body: (world: World) => void): Promise<void> {
  const arrived: { bytes: Uint8Array; source: Endpoint }[] = [];
  const receiver: LinkReceiver = {
    packet: (bytes, source) => arrived.push({ bytes: bytes.slice(), source }),
    flush: () => undefined,
    failed: () => assert.unreachable(),
  };
  let linkOfB: Link | undefined;
  const pair = await makePair({
    attributes: { qpAccessFlags: FLUSH_ACCESS },
    wrap: (link, side) => (side === 'a' ? link : diverted((linkOfB = link), receiver)),
  });
  try {
    const { a, b, clock } = pair;
    const { arena, engine } = b.context.device;
    const { buffer } = await HandStore.keep(b.context, BYTES);
    const mr = b.pd.regMr(buffer, FLUSH_ACCESS);
    const ringAt = arena.heap.alloc(DURABLE_RING_BYTES);
    const tableAt = arena.heap.alloc(DURABLE_TABLE_BYTES);
    new DurableTable(arena.memory, tableAt).take(buffer.byteOffset, BYTES, ringAt);
    const batching = {
      send: (batch: PacketBatch) => linkOfB!.send(batch),
      poll: () => 0,
      setPeerSegments: () => undefined,
    };
    const runner = new Runner(
      arena.memory,
      arena.exports,
      engine.context,
      batching as unknown as UdpBatchLink,
      clock,
      tableAt,
      arena.address,
      { datagram: () => undefined },
    );
    const ask = (placement: number): void => {
      const where = { remoteAddr: mr.addr, rkey: mr.rkey };
      const sgList = [{ addr: a.mr.addr, length: 64, lkey: a.mr.lkey }];
      a.qp.postSend({
        sendFlags: SendFlag.SIGNALED,
        ...(placement === 0
          ? { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: where }
          : { opcode: WrOpcode.FLUSH, flush: { ...where, length: 64, type: placement } }),
      });
      pair.settle();
      assert.ok(arrived.length > 0, 'b gets something');
      for (const { bytes, source } of arrived.splice(0)) runner.packet(bytes, source);
      runner.flush();
    };
    const ring = new DurableRing(arena.memory, ringAt);
    body({ pair, runner, ring, ask });
  } finally {
    await pair.close();
  }
}

function completed({ pair }: World, count: number): void {
  pair.settle();
  const all = pair.a.cq.poll(16);
  assert.equal(
    all.map(({ status }) => status),
    Array.from({ length: count }, () => WcStatus.SUCCESS),
  );
}

test('a turn in which a FLUSH goes to a store, or comes back, is one of a store', () =>
  use((world) => {
    const { runner, ring, ask } = world;
    runner.turn();
    assert.not(runner.stores, 'nothing came');
    ask(PlacementType.PERSISTENT);
    assert.ok(runner.stores, 'it was handed to the store');
    runner.turn();
    assert.not(runner.stores, 'the store is at work, and has finished nothing');
    ring.finish(ring.take()!.end);
    runner.turn();
    assert.ok(runner.stores, 'it was taken back');
    completed(world, 1);
    runner.turn();
    assert.not(runner.stores);
  }));

test('a turn beside a store at work is not', () =>
  use((world) => {
    const { runner, ring, ask } = world;
    ask(PlacementType.PERSISTENT);
    runner.turn();
    ask(PlacementType.GLOBAL);
    assert.not(runner.stores, 'a FLUSH that needs no store');
    runner.turn();
    ask(0);
    assert.not(runner.stores, 'a WRITE');
    ring.finish(ring.take()!.end);
    runner.turn();
    completed(world, 3);
  }));

test.run();
