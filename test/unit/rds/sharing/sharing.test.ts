/** Shared memory of the processes of one node: queues, and the numbers on which order depends. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../../../host/link/endpoint.js';
import {
  AREA_BYTES,
  Area,
  Places,
  ReceiveState,
  SendState,
} from '../../../../host/rds/sharing/area.js';
import { ReceivedSequences } from '../../../../host/rds/protocol/received-sequences.js';
import { AHEAD_MAX, connectionRecord } from '../../../../host/rds/sharing/shared-state.js';
import { Random } from '../../../simulation/random.js';

const PEER = Endpoint.parse('10.0.0.9', 4791);
const fresh = { port: 7, peer: PEER, peerPort: 8, connectionIndex: 0, sequence: 0 };

function areaOf(): { memory: Uint8Array; area: Area } {
  const memory = new Uint8Array(new SharedArrayBuffer(AREA_BYTES));
  const area = new Area(memory);
  area.sends.own();
  area.receives.own();
  return { memory, area };
}

function bookOf() {
  return connectionRecord(new Uint8Array(new SharedArrayBuffer(144)));
}

const header = (sequence: number, flags = 0) => ({
  sequence,
  ack: 0,
  length: 1,
  sourcePort: 1,
  destinationPort: 1,
  flags,
  credit: 0,
  extensions: {},
});

test('another process finds what lies in an area, oldest first, and goes on from there', () => {
  const { memory, area } = areaOf();
  const put = (text: string): number => {
    const bytes = Buffer.from(text);
    return area.sends.put(fresh, [bytes.subarray(0, 1), bytes.subarray(1)], bytes.length)!;
  };
  const entries = ['first', 'second', 'third', 'unfinished'].map(put);
  for (const index of entries.slice(0, 3)) area.sends.setState(index, SendState.QUEUED);
  area.sends.giveBack(entries[0]!);
  area.sends.number(entries[1]!, 2, 77, { connectionIndex: 1, sequence: 76 });
  const other = new Area(memory);
  other.sends.own();
  const found = other.sends.inState(SendState.QUEUED).map(([, entry]) => entry);
  assert.equal(
    found.map(({ bytes }) => `${Buffer.from(bytes)}`),
    ['second', 'third'],
  );
  const { port, peer, peerPort, connectionIndex, sequence, after } = found[0]!;
  assert.equal(
    { port, peer, peerPort, connectionIndex, sequence, after },
    { ...fresh, connectionIndex: 2, sequence: 77, after: { connectionIndex: 1, sequence: 76 } },
  );
  for (const text of ['fourth', 'fifth!']) {
    const index = other.sends.put(fresh, [Buffer.from(text)], 6)!;
    other.sends.setState(index, SendState.QUEUED);
  }
  const texts = other.sends
    .inState(SendState.QUEUED)
    .map(([, { bytes }]) => `${Buffer.from(bytes)}`);
  assert.equal(texts, ['second', 'third', 'fourth', 'fifth!']);
});

test('an area serves requests until it is full, and all of them again after release', () => {
  const { area } = areaOf();
  const message = new Uint8Array(1 << 20);
  for (let round = 0; round < 3; round++) {
    const taken: number[] = [];
    for (let index = 0; index !== (undefined as unknown);) {
      index = area.sends.put(fresh, [message], message.length)!;
      if (index === undefined) break;
      taken.push(index);
    }
    assert.is(taken.length, 2);
    assert.is(area.sends.crowd, 1);
    for (const index of taken) area.sends.giveBack(index);
    assert.is(area.sends.crowd, 0);
  }
});

test('whatever another process writes over an area is no entry, or one that lies in it', () => {
  const { memory, area } = areaOf();
  const random = new Random(11);
  const words = new Int32Array(memory.buffer, 0, 1536 * 20);
  for (let round = 0; round < 40; round++) {
    for (let at = 0; at < words.length; at++) {
      const draw = random.below(4);
      words[at] = draw === 0 ? random.below(2 ** 32) | 0 : draw === 1 ? random.below(5) : 0;
    }
    for (const [entries, state] of [
      [area.sends, SendState.QUEUED],
      [area.receives, ReceiveState.FULL],
    ] as const) {
      for (const [, { bytes, port, peerPort, connectionIndex, sequence }] of entries.inState(
        state,
      )) {
        assert.ok(bytes.byteOffset + bytes.length <= memory.length);
        assert.ok(port < 65536 && peerPort < 65536 && connectionIndex <= 3 && sequence >= 0);
      }
      entries.own();
      const index = entries.put(fresh, [new Uint8Array(10)], 10);
      if (index !== undefined) entries.giveBack(index);
    }
  }
  assert.is(area.sends.read(-1), undefined);
  assert.is(area.sends.read(1 << 20), undefined);
  assert.is(area.sends.read(NaN), undefined);
});

test('a slot has one owner at a time', () => {
  const places = new Places(64 * 40);
  const random = new Random(3);
  const owner = new Int32Array(40);
  const taken: [start: number, length: number][] = [];
  for (let step = 1; step < 2000; step++) {
    if (random.below(2) === 0 && taken.length > 0) {
      const [start, length] = taken.splice(random.below(taken.length), 1)[0]!;
      places.giveBack(start, length);
      owner.fill(0, start / 64, start / 64 + Math.ceil(length / 64));
      continue;
    }
    const length = 1 + random.below(64 * 6);
    const start = places.take(length);
    const grains = Math.ceil(length / 64);
    if (start === undefined) {
      const isFree = owner.some(
        (_, at) =>
          owner.subarray(at, at + grains).length === grains &&
          owner.subarray(at, at + grains).every((one) => one === 0),
      );
      assert.not.ok(isFree);
      continue;
    }
    const part = owner.subarray(start / 64, start / 64 + grains);
    assert.ok(part.every((one) => one === 0));
    part.fill(step);
    taken.push([start, length]);
  }
  for (const [start, length] of taken) places.giveBack(start, length);
  assert.is(places.used, 0);
  assert.is(places.take(64 * 40), 0);
});

test('safe messages are acknowledged, and the next reader of the record sees them', () => {
  const record = bookOf();
  const receivedSequences = new ReceivedSequences(record);
  for (const sequence of [100, 101, 102, 103])
    assert.ok(receivedSequences.take(header(sequence), true));
  assert.is(receivedSequences.safe, 99);
  assert.not.ok(receivedSequences.keep(102));
  assert.is(receivedSequences.safe, 99);
  assert.not.ok(receivedSequences.keep(100));
  assert.is(receivedSequences.safe, 100);
  // The process dies: to the next one everything from 101 on is sent again.
  const next = new ReceivedSequences(record);
  assert.equal(
    [100, 101, 102].map((sequence) => next.has(sequence)),
    [true, false, true],
  );
  assert.ok(next.isInTurn(header(101), true) && next.take(header(101), true));
  assert.ok(next.keep(101));
  assert.not.ok(next.take(header(102), true));
  assert.ok(next.isInTurn(header(103), true) && next.take(header(103), true));
  assert.is(next.safe, 102);
});

test('an abandoned message is not waited for, and one too far ahead is retransmitted', () => {
  const record = bookOf();
  const receivedSequences = new ReceivedSequences(record);
  assert.ok(receivedSequences.take(header(10), true));
  receivedSequences.keep(10);
  assert.not.ok(receivedSequences.isInTurn(header(13), true) && !receivedSequences.isFresh);
  receivedSequences.isFresh = true;
  assert.ok(receivedSequences.take(header(20), true));
  receivedSequences.keep(20);
  assert.is(receivedSequences.safe, 20);
  // 21 is never kept.
  for (let sequence = 21; sequence <= 21 + AHEAD_MAX; sequence++) {
    assert.ok(receivedSequences.isInTurn(header(sequence), true));
    receivedSequences.take(header(sequence), true);
    if (sequence > 21) receivedSequences.keep(sequence);
  }
  assert.not.ok(receivedSequences.isInTurn(header(22 + AHEAD_MAX), true));
  assert.is(receivedSequences.safe, 20);
  receivedSequences.keep(21);
  assert.is(receivedSequences.safe, 21 + AHEAD_MAX);
  assert.ok(receivedSequences.isInTurn(header(22 + AHEAD_MAX), true));
});

test('a record that was left between two stores is mended', () => {
  const memory = new Uint8Array(new SharedArrayBuffer(144));
  const record = connectionRecord(memory);
  record.received(5);
  record.received(6);
  // The number moved on to 7, and the bit of 6 still stands.
  new Int32Array(memory.buffer, 16)[0] = 1 << 6;
  connectionRecord(memory).mend();
  for (let sequence = 7; sequence < 6 + 1024; sequence++) record.received(sequence);
  assert.is(record.expected, 6 + 1024);
  assert.not.ok(record.has(6 + 1024));
});

test.run();
