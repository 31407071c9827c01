import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MESSAGE_BYTES_MAX,
  decodeMessage,
  encodeMessage,
  type Message,
} from '../../../../host/cli/file-transfer/messages.js';
import { PieceSet } from '../../../../host/cli/file-transfer/piece-set.js';
import { noise } from '../../../support/processes.js';

const sha256 = Uint8Array.from(noise(32));

const MESSAGES: readonly Message[] = [
  { kind: 'PIECE', slot: 65535, index: 0xfffffffe, length: 1048576, crc: 0x80000001 },
  { kind: 'END', sha256 },
  { kind: 'ABANDON' },
  { kind: 'ALIVE' },
  { kind: 'WRITTEN', slot: 7, index: 12 },
  { kind: 'DONE', sha256 },
  { kind: 'FAILED', code: 'ENOSPC', sentence: 'kein Platz: größer als 1 TB' },
];

test('what is said is understood', () => {
  for (const message of MESSAGES) {
    const bytes = encodeMessage(message);
    assert.ok(bytes.length <= MESSAGE_BYTES_MAX);
    assert.equal(decodeMessage(bytes), message);
  }
});

test('PIECE has the bytes that the diagram has', () => {
  const bytes = encodeMessage({ kind: 'PIECE', slot: 1, index: 2, length: 3, crc: 0x01020304 });
  assert.is(Buffer.from(bytes).toString('hex'), '01000001000000020000000301020304');
});

test('a long sentence is cut at a character', () => {
  const bytes = encodeMessage({ kind: 'FAILED', code: 'EIO', sentence: 'ß'.repeat(500) });
  assert.ok(bytes.length <= MESSAGE_BYTES_MAX);
  const message = decodeMessage(bytes);
  assert.ok(message?.kind === 'FAILED' && /^ß+$/.test(message.sentence));
});

test('any other bytes are no message, and nothing is thrown', () => {
  for (const message of MESSAGES) {
    const bytes = encodeMessage(message);
    if (message.kind === 'FAILED') continue;
    assert.is(decodeMessage(bytes.subarray(0, -1)), undefined, message.kind);
  }
  for (let seed = 1; seed < 2000; seed++) {
    const bytes = noise(seed % 300, seed);
    bytes[0] = seed % 20;
    decodeMessage(bytes);
  }
});

test('a set of pieces is the text that it was', () => {
  const set = new PieceSet(11);
  assert.is(set.toText(), '');
  for (const index of [0, 10, 3, 3, 11, -1]) set.add(index);
  assert.is(set.size, 3);
  assert.is(set.toText(), Buffer.of(0b1001, 0b100).toString('base64'));
  const copy = PieceSet.fromText(set.toText(), 11);
  assert.is(copy?.size, 3);
  assert.ok(copy?.has(10) && !copy.has(9));
  assert.is(PieceSet.fromText(Buffer.of(0, 0b1000).toString('base64'), 11), undefined);
  assert.is(PieceSet.fromText('AA==', 11), undefined);
});

test.run();
