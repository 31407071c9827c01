/** Where the fields lie that processes and threads read in shared memory: releases differ. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { DURABLE_RING_BYTES, DurableRing } from '../../host/device/durable/durable-ring.js';
import { EngineMemory } from '../../host/engine/memory.js';
import { Endpoint } from '../../host/link/endpoint.js';
import { AREA_BYTES, Area } from '../../host/rds/sharing/area.js';
import { AuthKind, SharedState } from '../../host/rds/sharing/shared-state.js';
import { NodeMemory } from '../../host/shmem/node-memory.js';
import { Header, HeapTable, tableBytes } from '../../host/verbs/heap/heap-table.js';
import { openDevice } from '../../host/index.js';
import { freshName } from '../support/member.js';

const test = suite('where fields lie in shared memory');
const PEER = Endpoint.parse('10.0.0.9', 4791);

test('the ring between an engine and a store', async () => {
  assert.is(DURABLE_RING_BYTES, 64 + 1024 * 32);
  const memory = new EngineMemory(new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }));
  const words = new Uint32Array(memory.buffer, 64, DURABLE_RING_BYTES / 4);
  const ring = new DurableRing(memory, 64);
  ring.push({ queuePair: 0xa0, job: 0xa1, serial: 0xa2 }, 0xa3, 0xa4);
  ring.push({ queuePair: 0xb0, job: 0xb1, serial: 0xb2 }, 0xb3, 0xb4);
  assert.equal([...words.subarray(16, 24)], [0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0, 0, 0]);
  assert.equal([...words.subarray(24, 32)], [0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0, 0, 0]);
  assert.equal([...words.subarray(0, 9)], [2, 0, 0, 0, 0, 0, 0, 0, 0]);
  ring.finish(1);
  assert.equal([...words.subarray(0, 9)], [2, 1, 0, 0, 0, 0, 0, 0, 0]);
  ring.collect(() => undefined);
  assert.equal([...words.subarray(0, 9)], [2, 1, 1, 0, 0, 0, 0, 0, 0]);
  ring.fail(2);
  assert.equal([...words.subarray(0, 9)], [2, 2, 1, 1, 0, 0, 0, 0, 1]);
  const comes = ring.workComes();
  assert.equal([...words.subarray(0, 9)], [2, 2, 1, 1, 0, 0, 3, 1, 1]);
  ring.stop();
  assert.not(await comes);
  assert.equal([...words.subarray(0, 9)], [2, 2, 1, 1, 1, 1, 3, 0, 1]);
});

test('the message queues of a process and the owner of its node', () => {
  const ringsAt = (512 + 1024) * 80 + 2 * 2 ** 20 + 4 * 2 ** 20;
  const ringBytes = 64 + 2048 * 32;
  assert.is(AREA_BYTES, ringsAt + 2 * ringBytes);
  const memory = new Uint8Array(new SharedArrayBuffer(AREA_BYTES));
  const area = new Area(memory);
  for (const [entries, at, bytesAt, headroom] of [
    [area.sends, 0, 1536 * 80, 0],
    [area.receives, 512 * 80, 1536 * 80 + 2 * 2 ** 20, 48],
  ] as const) {
    entries.own();
    const fresh = { port: 7, peer: PEER, peerPort: 8, connectionIndex: 2, sequence: 9 };
    entries.put(fresh, [Uint8Array.of(1)], 1);
    const index = entries.put(fresh, [Uint8Array.of(2, 3)], 2)!;
    entries.setState(index, 1);
    entries.number(index, 2, 77, { connectionIndex: 1, sequence: 76 });
    const view = new DataView(memory.buffer, at + index * 80, 80);
    const word = (offset: number): number => view.getInt32(offset, true);
    assert.equal([word(0), word(4)], [1, 7]);
    assert.equal(memory.slice(view.byteOffset + 8, view.byteOffset + 24), PEER.gid.bytes);
    assert.equal([word(24), word(28), word(32), word(36)], [4791, 8, 64, 2]);
    const number = (offset: number): bigint => view.getBigInt64(offset, true);
    assert.equal([number(40), number(48), number(64), number(72)], [2n, 77n, 76n, 0n]);
    assert.equal([word(56), word(60)], [2, 1]);
    assert.equal([...memory.subarray(bytesAt + 64 + headroom, bytesAt + 66 + headroom)], [2, 3]);
  }
  for (const [ring, at] of [
    [area.toOwner, ringsAt],
    [area.fromOwner, ringsAt + ringBytes],
  ] as const) {
    const words = new Int32Array(memory.buffer, at, 4);
    ring.reset();
    assert.equal([...words], [0, 0, 1, 0]);
    for (const value of [5, 6]) {
      ring.place!.writeUInt8(value, 0);
      ring.commit();
    }
    assert.equal([...words], [2, 0, 0, 0]);
    assert.equal([memory[at + 64], memory[at + 64 + 32]], [5, 6]);
    ring.drain((record) => record.readUInt8(0) === 6);
    assert.equal([...words], [2, 1, 0, 0]);
  }
});

test('the state of a node that processes share', async () => {
  const context = await openDevice({ name: freshName(), port: 0 });
  try {
    let memory: Uint8Array = new Uint8Array(0);
    const alloc = context.alloc.bind(context);
    context.alloc = (length) => (memory = alloc(length));
    let draw = 0xa0;
    const state = SharedState.join(context, () => draw++, AuthKind.ENCRYPTED);
    assert.is(memory.length, 64 + 65536 + 1024 * 512);
    state.owner = 4;
    const { slot } = context.device;
    assert.ok(state.takePort(300));
    const view = new DataView(memory.buffer, memory.byteOffset, memory.length);
    const word = (at: number): number => view.getUint32(at, true);
    assert.equal([word(0), word(4), word(8), word(12)], [0x56524453, 0xa0, 5, 2]);
    assert.is(view.getUint32(16), 0xa1);
    assert.equal(state.secret.bytes, memory.slice(16, 32));
    assert.equal([memory[64 + 299], memory[64 + 300], memory[64 + 301]], [0, slot + 1, 0]);
    state.path(Endpoint.parse('10.0.0.8', 4791), 1);
    const path = state.path(PEER, 6)!;
    path.kind = 'linux';
    path.incarnation = 0xc0;
    path.generation = 11;
    path.peerGeneration = 12;
    path.renewals = 13;
    const connection = path.connection(1);
    connection.next = 1000;
    connection.begin(500);
    connection.received(502);
    const at = 64 + 65536 + 512;
    assert.equal([word(at), word(at + 4), word(at + 8), word(at + 12)], [1, 4791, 6, 2]);
    assert.equal(memory.slice(at + 16, at + 32), PEER.gid.bytes);
    assert.equal(
      [32, 36, 40, 44].map((of) => word(at + of)),
      [0xc0, 11, 12, 13],
    );
    const record = at + 64 + 144;
    assert.is(view.getBigInt64(record, true), 1000n);
    assert.is(view.getBigInt64(record + 8, true), 500n);
    assert.is(word(record + 16 + 4 * (502 >> 5)), 1 << (502 & 31));
  } finally {
    await context.close();
  }
});

test('the table of a heap', () => {
  assert.is(tableBytes(3), 4 * (64 + 256 * 4 + 3 + 3 * 1024));
  const words = new Int32Array(new SharedArrayBuffer(64 + tableBytes(3)));
  const table = new HeapTable(words, 64, 3);
  const fields = [
    'GROWN',
    'BUDGET',
    'QUOTA',
    'PRIORITY',
    'MINIMUM',
    'PRESSURE',
    'LACKING',
  ] as const;
  fields.forEach((field, index) => table.set(Header[field], 10 + index));
  table.setFree(2, 99);
  table.setQuotaOf(5, 4096);
  table.setSpan(1, 21);
  table.setUnit(4, 31);
  assert.equal([Header.MAGIC, Header.LOCK], [0, 1]);
  assert.equal([...words.subarray(16 + 2, 16 + 9)], [10, 11, 12, 13, 14, 15, 16]);
  assert.is(words[16 + 16 + 2], 99);
  assert.is(table.member(5), 16 + 64 + 5 * 4);
  assert.equal([...words.subarray(table.member(5), table.member(6))], [0, 0, 4096, 0]);
  assert.is(words[16 + 64 + 1024 + 1], 21);
  assert.is(words[16 + 64 + 1024 + 3 + 4], 31);
  assert.is(table.data, 65536);
});

test('the table of the PEs of a machine', async () => {
  const context = await openDevice({ name: freshName(), port: 0 });
  const pd = context.allocPd();
  try {
    const table = context.alloc(4096 + 3 * 64);
    const words = new Int32Array(table.buffer, table.byteOffset, 1024);
    const options = { index: 1, count: 3, size: 64 } as Parameters<typeof NodeMemory.of>[3];
    const node = NodeMemory.of(context, pd, { key: 1, address: table.byteOffset }, options);
    assert.is(node.base(2), table.byteOffset + 4096 + 128);
    words.set([1, 1, 77], 4);
    assert.is(node.slot(1), 1);
    assert.ok(node.hasFailed(1));
    words[6] = 0;
    assert.not(node.hasFailed(1));
    node.leave();
    assert.equal([...words.subarray(4, 8)], [2, 1, 0, 0]);
    assert.ok(node.isDone(1));
  } finally {
    await context.close();
  }
});

test('the handle of a shared domain', async () => {
  const context = await openDevice({ name: freshName(), port: 0 });
  const pd = context.allocPd();
  try {
    const handle = pd.allocShpd(7);
    assert.is(handle.length, 32);
    const view = new DataView(handle.buffer, handle.byteOffset);
    assert.is(view.getBigUint64(0, true), context.device.shared!.deviceId);
    assert.not(view.getBigUint64(8, true) === 0n);
    assert.is(view.getUint32(16, true), pd.handle);
    assert.is(view.getUint32(20, true), 0x64706873);
    assert.is(view.getBigUint64(24, true), 0n);
  } finally {
    await context.close();
  }
});

test.run();
