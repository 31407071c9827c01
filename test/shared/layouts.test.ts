/**
 * Layouts of one process, by their keys, at the queue pairs of another that has the same protection
 * domain: real processes.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MrSetLayoutFlag,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  openDevice,
  type Context,
  type LayoutMemoryRegion,
  type QueuePair,
  type SendWorkRequest,
} from '../../host/index.js';
import { Member, freshName, withMembers } from '../support/member.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import { Client, type Line } from '../support/traffic.js';
import { Random } from '../simulation/random.js';

const at = (address: string) => ({ name: freshName(), address, memoryBytes: 16 * 2 ** 20 });
const SHARE_KEY = 0x1a70;
const ROWS = 512;
const ROW_BYTES = 512;

/** Of a layout in another process: what is needed to name it. */
interface Named {
  readonly key: number;
  readonly length: number;
}

/** A matrix of 512 x 64 doubles and its column 3, in A; B shares A's domain. Returns the key. */
async function shareColumn(a: Member, b: Member): Promise<Named> {
  const made = await a.run(
    ({ context, verbena, pair, kept }, share, rows, rowBytes) => {
      const pd = context.allocPd();
      const memory = context.alloc(rows * rowBytes);
      const mr = pd.regMr(memory, pair.ALL_ACCESS);
      const matrix = new Float64Array(memory.buffer, memory.byteOffset, memory.length >> 3);
      for (let index = 0; index < matrix.length; index++) matrix[index] = index;
      const layout = pd.regMr(null, 0, pair.ALL_ACCESS | verbena.AccessFlag.ZERO_BASED);
      const column = (index: number) => ({
        firstDatum: { addr: Number(mr.addr) + index * 8, length: 8, lkey: mr.lkey },
        dims: [{ offsetStride: rowBytes, datumCount: rows }],
      });
      layout.setLayoutInterleaved(0, [column(3)]);
      Object.assign(kept, { pd, memory, mr, layout, column });
      const shpd = pd.allocShpd(share, context.alloc(64));
      return { shpd: shpd.byteOffset, key: layout.rkey, length: layout.length };
    },
    SHARE_KEY,
    ROWS,
    ROW_BYTES,
  );
  await b.run(
    ({ context, kept }, shpd, share) => {
      Object.assign(kept, { pd: context.sharePd(context.attach(shpd, 64), share) });
    },
    made.shpd,
    SHARE_KEY,
  );
  return made;
}

/** Moves `length` bytes between the client's memory and the memory of the key. */
async function move(
  client: Client,
  line: Line,
  opcode: number,
  { key, length }: Named,
): Promise<number> {
  line.qp.postSend({
    opcode,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: client.mr.addr, length, lkey: client.mr.lkey }],
    rdma: { remoteAddr: 0, rkey: key },
  });
  return (await line.cq.wait())[0]!.status;
}

async function withClient(
  address: string,
  work: (client: Client, a: Member, b: Member) => Promise<void>,
): Promise<void> {
  await withMembers(2, at(address), async (a, b) => {
    const client = new Client(await openDevice({ address: '127.1.8.250', port: 0 }));
    try {
      await work(client, a, b);
    } finally {
      await client.context.close();
    }
  });
}

const doubles = (bytes: Uint8Array): Float64Array =>
  new Float64Array(bytes.buffer, bytes.byteOffset, ROWS);

test('a peer reads and writes a column of one process at a queue pair of another', async () => {
  await withClient('127.1.8.1', async (client, a, b) => {
    const column = await shareColumn(a, b);
    const line = await client.connect(b);
    assert.is(await move(client, line, WrOpcode.RDMA_READ, column), WcStatus.SUCCESS);
    const seen = doubles(client.buffer);
    for (let row = 0; row < ROWS; row++) assert.is(seen[row], row * 64 + 3);
    for (let row = 0; row < ROWS; row++) seen[row] = -row;
    assert.is(await move(client, line, WrOpcode.RDMA_WRITE, column), WcStatus.SUCCESS);
    const sums = await a.run(({ kept }) => {
      const { buffer, byteOffset, length } = kept.memory;
      const matrix = new Float64Array(buffer, byteOffset, length >> 3);
      let column = 0;
      let others = 0;
      matrix.forEach((value, index) => {
        if (index % 64 === 3) column += value;
        else if (value === index) others++;
      });
      return { column, others };
    });
    assert.equal(sums, { column: (-511 * 512) / 2, others: 512 * 63 });
  });
});

test('one process sends what the layout of another names', async () => {
  await withClient('127.1.8.2', async (client, a, b) => {
    const { key, length } = await shareColumn(a, b);
    const line = await client.connect(b);
    const status = await b.run(
      async ({ kept, verbena }, lkey, bytes, to) => {
        kept.qp.postSend({
          opcode: verbena.WrOpcode.RDMA_WRITE,
          sendFlags: verbena.SendFlag.SIGNALED,
          sgList: [{ addr: 0, length: bytes, lkey }],
          rdma: { remoteAddr: to.addr, rkey: to.rkey },
        });
        return (await kept.cq.wait())[0]!.status;
      },
      key,
      length,
      { addr: Number(client.mr.addr), rkey: client.mr.rkey },
    );
    assert.is(status, WcStatus.SUCCESS);
    assert.is(doubles(client.buffer)[ROWS - 1], (ROWS - 1) * 64 + 3);
    assert.ok(line.qp.qpNum > 0);
  });
});

test('a layout that is bound anew changes for all processes, under its next key', async () => {
  await withClient('127.1.8.3', async (client, a, b) => {
    const old = await shareColumn(a, b);
    const line = await client.connect(b);
    const rebind = (index: number, flags: number): Promise<Named> =>
      a.run(
        ({ kept }, column, how) => {
          const { layout, column: make } = kept as unknown as {
            layout: LayoutMemoryRegion;
            column: (index: number) => never;
          };
          layout.setLayoutInterleaved(how, [make(column)]);
          return { key: layout.rkey, length: layout.length };
        },
        index,
        flags,
      );
    const next = await rebind(5, 0);
    assert.is.not(next.key, old.key);
    assert.is(await move(client, line, WrOpcode.RDMA_READ, next), WcStatus.SUCCESS);
    assert.is(doubles(client.buffer)[1], 64 + 5);
    const same = await rebind(7, MrSetLayoutFlag.AVOID_INVALIDATION);
    assert.is(same.key, next.key);
    assert.is(await move(client, line, WrOpcode.RDMA_READ, same), WcStatus.SUCCESS);
    assert.is(doubles(client.buffer)[1], 64 + 7);
    assert.is(await move(client, line, WrOpcode.RDMA_READ, old), WcStatus.REM_ACCESS_ERR);
  });
});

test('a peer invalidates the layout of one process at a queue pair of another', async () => {
  await withClient('127.1.8.4', async (client, a, b) => {
    const { key } = await shareColumn(a, b);
    const line = await client.connect(b);
    await b.run(({ kept }) => {
      kept.qp.postRecv({ sgList: [{ addr: kept.mr.addr, length: 64, lkey: kept.mr.lkey }] });
    });
    line.qp.postSend({
      opcode: WrOpcode.SEND_WITH_INV,
      sendFlags: SendFlag.SIGNALED,
      invalidateRkey: key,
      sgList: [{ addr: client.mr.addr, length: 8, lkey: client.mr.lkey }],
    });
    assert.is((await line.cq.wait())[0]!.status, WcStatus.SUCCESS);
    const rebound = await a.run(({ kept }) => {
      const { layout, column } = kept as unknown as {
        layout: LayoutMemoryRegion;
        column: (index: number) => never;
      };
      const before = layout.bound;
      layout.setLayoutInterleaved(0, [column(9)]);
      return { before, key: layout.rkey, length: layout.length };
    });
    assert.is(rebound.before, false);
    assert.is(await move(client, line, WrOpcode.RDMA_READ, rebound), WcStatus.SUCCESS);
    assert.is(doubles(client.buffer)[1], 64 + 9);
    // Region and layout go, and so does all memory of programs.
    const held = await a.run(({ kept, context }) => {
      const { layout } = kept as unknown as { layout: LayoutMemoryRegion };
      const { userHeap } = context.device.arena;
      layout.dereg();
      const free = userHeap.bytesFree;
      const again = kept.pd.regMr(null, 0, layout.access);
      again.dereg();
      return userHeap.bytesFree - free;
    });
    assert.is(held, 0);
    assert.is(await move(client, line, WrOpcode.RDMA_READ, rebound), WcStatus.REM_ACCESS_ERR);
  });
});

test('the layouts of a process end with it, and their memory comes back', async () => {
  await withClient('127.1.8.5', async (client, a, b) => {
    const bytesFree = (): Promise<number> =>
      b.run(({ context }) => {
        context.device.shared!.members.look();
        return context.device.arena.userHeap.bytesFree;
      });
    const before = await bytesFree();
    const column = await shareColumn(a, b);
    const line = await client.connect(b);
    const own = await b.run(({ kept }) => kept.memory.length + 64);
    assert.is(await move(client, line, WrOpcode.RDMA_READ, column), WcStatus.SUCCESS);
    a.kill();
    await a.ended;
    for (let look = 0; (await bytesFree()) < before - own; look++) {
      assert.ok(look < 1000, 'what the dead one had comes back');
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assert.is(await move(client, line, WrOpcode.RDMA_READ, column), WcStatus.REM_ACCESS_ERR);
  });
});

/** Where each program lies, and how many bytes it has. */
type Places = readonly (readonly [address: number, bytes: number])[];

/** Layouts of every form on one region, and one on the others. */
function makeLayouts(context: Context): { layouts: LayoutMemoryRegion[]; programs: Places } {
  const { arena } = context.device;
  const heap = arena.userHeap;
  const pd = context.allocPd();
  const mr = pd.regMr(context.alloc(65536), ALL_ACCESS);
  const programs: [number, number][] = [];
  arena.userHeap = {
    get bytesFree() {
      return heap.bytesFree;
    },
    hold: undefined,
    free: (address: number) => heap.free(address),
    alloc(size: number) {
      const address = heap.alloc(size);
      programs.push([address, size]);
      return address;
    },
  } as never;
  const make = (): LayoutMemoryRegion => pd.regMr(null, 0, ALL_ACCESS | AccessFlag.ZERO_BASED);
  const addr = Number(mr.addr);
  const source = (from: number, length: number, numRepeated: number, ...counts: number[]) => ({
    firstDatum: { addr: addr + from, length, lkey: mr.lkey },
    numRepeated,
    dims: counts.map((datumCount, level) => ({ offsetStride: 24 * 6 ** level, datumCount })),
  });
  const [list, box, vertex, uneven, nested] = [make(), make(), make(), make(), make()];
  const pieces = Array.from({ length: 40 }, (_, index) => ({
    addr: addr + 37 * index * index,
    length: 1 + index * 3,
    lkey: mr.lkey,
  }));
  list.setLayoutSg(0, pieces);
  box.setLayoutInterleaved(0, [source(8, 8, 1, 5, 6, 7)]);
  vertex.setLayoutInterleaved(0, [source(0, 4, 3, 60), source(12, 3, 2, 40)]);
  const many = Array.from({ length: 33 }, (_, index) =>
    source(index * 7, 5, 1 + (index % 3), 3 + index),
  );
  uneven.setLayoutInterleaved(0, many);
  const inner = [list, box, vertex, uneven].flatMap(({ lkey }) => [
    { addr: 3, length: 100, lkey },
    { addr: 200, length: 50, lkey },
  ]);
  nested.setLayoutSg(0, inner);
  arena.userHeap = heap;
  return { layouts: [list, box, vertex, uneven, nested], programs };
}

/** Changes one word of a program. */
function spoil(words: Uint32Array, [start, size]: readonly [number, number], random: Random) {
  // Heads decide most.
  const word = random.below(random.below(2) === 0 ? Math.min(size, 192) >> 2 : size >> 2);
  const values = [0, 1, 0xffffffff, 0x80000000, random.below(64), random.below(2 ** 32)];
  words[(start >> 2) + word] = random.pick(values);
}

test('programs full of chance are walked nowhere but in the regions, and to an end', async () => {
  const options = at('127.1.8.6');
  const survivor = await openDevice(options);
  const scribbler = await openDevice(options);
  const client = new Client(await openDevice({ address: '127.1.8.250', port: 0 }));
  const random = new Random(23);
  try {
    const fences = [scribbler.alloc(4096)];
    const { layouts, programs } = makeLayouts(scribbler);
    fences.push(scribbler.alloc(2 ** 20));
    for (const fence of fences) fence.fill(0x5a);
    const pd = survivor.sharePd(layouts[0]!.pd.allocShpd(SHARE_KEY), SHARE_KEY);
    const cq = survivor.createCq(64);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const theirs = client.context.createCq(64);
    const peer = client.pd.createQp({ sendCq: theirs, recvCq: theirs });
    const join = (ours: QueuePair, context: Context, other: QueuePair): void => {
      ours.modify({ qpState: QpState.RESET });
      const side = { context, qp: other } as unknown as Side;
      connect(ours, side, 1, 1, { attributes: { timeout: 16 } });
    };
    const { bytes, words } = scribbler.device.arena.memory;
    const whole = programs.map(([start, size]) => bytes.slice(start, start + size));
    const tally = new Map<number, number>();
    const keys = layouts.map(({ rkey, length }) => ({ key: rkey, length }));
    for (let round = 0; round < 300; round++) {
      join(qp, client.context, peer);
      join(peer, survivor, qp);
      programs.forEach(([start], index) => bytes.set(whole[index]!, start));
      for (let count = round % 4; count > 0; count--) spoil(words, random.pick(programs), random);
      const { key, length } = random.pick(keys);
      const from = random.below(length);
      const size = 1 + random.below(length - from);
      const remote = round % 3 !== 0;
      const own = remote ? client.mr : { addr: from, lkey: key };
      const there = remote
        ? { remoteAddr: from, rkey: key }
        : { remoteAddr: client.mr.addr, rkey: client.mr.rkey };
      const request: SendWorkRequest = {
        opcode: random.pick([WrOpcode.RDMA_READ, WrOpcode.RDMA_WRITE]),
        sendFlags: SendFlag.SIGNALED,
        sgList: [{ addr: own.addr, length: size, lkey: own.lkey }],
        rdma: there,
      };
      (remote ? peer : qp).postSend(request);
      const { status } = (await (remote ? theirs : cq).wait())[0]!;
      tally.set(status, (tally.get(status) ?? 0) + 1);
      if (round % 4 === 0) {
        const what = `layout ${keys.findIndex((one) => one.key === key)}, ${size} bytes from ${from}`;
        assert.is(status, WcStatus.SUCCESS, `what is whole works: ${what}`);
      }
      cq.poll(64);
      theirs.poll(64);
    }
    const refused: number[] = [WcStatus.REM_ACCESS_ERR, WcStatus.LOC_PROT_ERR, WcStatus.REM_OP_ERR];
    for (const status of tally.keys()) {
      assert.ok(status === WcStatus.SUCCESS || refused.includes(status), `status ${status}`);
    }
    assert.ok([...tally.values()].length > 1, 'some are refused');
    for (const fence of fences) assert.ok(fence.every((byte) => byte === 0x5a));
    assert.is(survivor.failure, undefined, 'its engine goes on');
    programs.forEach(([start], index) => bytes.set(whole[index]!, start));
  } finally {
    await client.context.close();
    await scribbler.close();
    await survivor.close();
  }
});

test.run();
