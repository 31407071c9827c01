import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  CLOSED_LINE,
  formatJournalEntry,
  formatJournalHeader,
  parseJournal,
} from '../../../host/transfer/journal.js';

const version = { name: 'é "x"\\', size: 10_000_000, mtimeNs: '17', pieceBytes: 65536 };
const entries = [
  { index: 3, crc: 0 },
  { index: 152, crc: 0xffffffff },
  { index: 0, crc: 0x1234 },
];
const whole = Buffer.from(formatJournalHeader(version) + entries.map(formatJournalEntry).join(''));

test('a written journal is parsed back', () => {
  const journal = { version, entries, validBytes: whole.length };
  assert.equal(parseJournal(whole), { ...journal, isClosed: false });
  const closed = Buffer.concat([whole, Buffer.from(CLOSED_LINE)]);
  assert.equal(parseJournal(closed), { ...journal, isClosed: true });
  for (const more of [CLOSED_LINE, 'x', formatJournalEntry(entries[0]!)]) {
    const torn = Buffer.concat([closed, Buffer.from(more)]);
    assert.equal(parseJournal(torn), { ...journal, isClosed: false });
  }
  assert.is(parseJournal(closed.subarray(0, -1))?.isClosed, false);
});

test('a journal torn at any byte gives the lines that are whole', () => {
  const ends = [...whole.keys()].filter((at) => whole[at] === 10).map((at) => at + 1);
  for (let length = 0; length < whole.length; length++) {
    const journal = parseJournal(whole.subarray(0, length));
    const lines = ends.filter((end) => end <= length);
    if (lines.length === 0) {
      assert.is(journal, undefined);
    } else {
      assert.is(journal?.validBytes, lines.at(-1));
      assert.equal(journal?.entries, entries.slice(0, lines.length - 1));
    }
  }
});

test('a flipped bit ends the journal there, or makes it none', () => {
  for (let at = 0; at < whole.length; at++) {
    const bytes = Buffer.from(whole);
    bytes[at]! ^= 1 << (at % 8);
    const journal = parseJournal(bytes);
    for (const entry of journal?.entries ?? []) {
      assert.ok(entries.some(({ index, crc }) => index === entry.index && crc === entry.crc));
    }
  }
});

test('pieces that the file does not have, and other texts, do not count', () => {
  const beyond = formatJournalHeader(version) + formatJournalEntry({ index: 153, crc: 1 });
  assert.equal(parseJournal(Buffer.from(beyond))?.entries, []);
  for (const text of ['', '\n', 'x\n', 'null\n', '{}\n', '{"verbena":2}\n', '{"verbena":1}\n']) {
    assert.is(parseJournal(Buffer.from(text)), undefined, text);
  }
});

test.run();
