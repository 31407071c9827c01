import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { RefusalError } from '../../../host/index.js';
import {
  MESSAGE_BYTES_MAX,
  decodeMessage,
  encodeMessage,
  failedMessage,
  refusalOfText,
  type Message,
} from '../../../host/transfer/messages.js';
import { PieceSet } from '../../../host/transfer/piece-set.js';
import { noise } from '../../support/processes.js';

const sha256 = Uint8Array.from(noise(32));

const MESSAGES: readonly Message[] = [
  { kind: 'PIECE', slot: 65535, index: 0xfffffffe, length: 1048576, crc: 0x80000001, early: 65536 },
  { kind: 'END', sha256 },
  { kind: 'ABANDON' },
  { kind: 'ALIVE' },
  { kind: 'WRITTEN', slot: 7, index: 12 },
  { kind: 'DONE', sha256 },
  { kind: 'FAILED', text: 'ENOSPC kein Platz: größer als 1 TB' },
  {
    ...{ kind: 'PUT', pieceBytes: 65536, size: 2n ** 53n, mtimeNs: 5n, name: 'größer' },
    transfer: sha256.subarray(0, 16),
  },
  {
    ...{ kind: 'READY', slots: 8, rkey: 0xfffffffe, addr: 2n ** 63n, note: '' },
    ...{ have: 3, bitsRkey: 7, bitsAddr: 9n },
  },
];

test('an encoded message is decoded', () => {
  for (const message of MESSAGES) {
    const bytes = encodeMessage(message);
    assert.ok(bytes.length <= MESSAGE_BYTES_MAX);
    assert.equal(decodeMessage(bytes), message);
  }
});

test('PIECE has the bytes that the diagram has', () => {
  const bytes = encodeMessage({
    kind: 'PIECE',
    slot: 1,
    index: 2,
    length: 3,
    crc: 0x01020304,
    early: 5,
  });
  assert.is(Buffer.from(bytes).toString('hex'), '0100000100000002000000030102030400000005');
});

test('a long sentence is cut at a character', () => {
  const bytes = encodeMessage({ kind: 'FAILED', text: `EIO ${'ß'.repeat(500)}` });
  assert.ok(bytes.length <= MESSAGE_BYTES_MAX);
  const message = decodeMessage(bytes);
  assert.ok(message?.kind === 'FAILED' && /^EIO ß+$/.test(message.text));
});

test('an error is the code and the sentence that it was, and a hostile text is an error', () => {
  const error = new RefusalError('EBUSY', 'the port is taken');
  const message = failedMessage(error);
  assert.equal(message, { kind: 'FAILED', text: 'EBUSY the port is taken' });
  assert.is(refusalOfText('EBUSY the port is taken').message, error.message);
  for (const text of ['', 'no', 'x y', 'EBUSY']) assert.is(refusalOfText(text).code, 'EPROTO');
});

test('any other bytes are no message, and nothing is thrown', () => {
  for (const message of MESSAGES) {
    const bytes = encodeMessage(message);
    if (['FAILED', 'PUT'].includes(message.kind)) continue;
    assert.is(decodeMessage(bytes.subarray(0, -1)), undefined, message.kind);
  }
  assert.is(decodeMessage(Uint8Array.of(18, 0, 0, 0, 0xff)), undefined, 'no UTF-8');
  for (let seed = 1; seed < 2000; seed++) {
    const bytes = noise(seed % 300, seed);
    bytes[0] = seed % 20;
    decodeMessage(bytes);
  }
});

test('a set of pieces is the bits that it was; bits beyond its end do not count', () => {
  const set = new PieceSet(11);
  for (const index of [0, 10, 3, 3, 11, -1]) set.add(index);
  assert.is(set.size, 3);
  assert.equal(set.bits, Uint8Array.of(0b1001, 0b100));
  const copy = PieceSet.of(Uint8Array.of(0b1001, 0b1111100), 11);
  assert.is(copy.size, 3);
  assert.ok(copy.has(10) && !copy.has(9) && !copy.has(11));
});

test.run();
