/** Parsing of text from people and peers (addresses, names), and formatting of output. */
import { stat } from 'node:fs/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { checkFileName } from '../../../host/transfer/file-name.js';
import { formatBytes, formatCount, formatRate } from '../../../host/cli/base/format.js';
import { printLine, reportFailure } from '../../../host/cli/base/report.js';
import { formatServerAddress, parseServerAddress } from '../../../host/cli/base/server-address.js';
import { findTourFile } from '../../../host/cli/tour/tour-file.js';
import { fileRefusal } from '../../../host/errors/file-refusal.js';
import { localAddressTowards } from '../../../host/link/interface.js';
import { RefusalError } from '../../../host/index.js';
import { Workspace } from '../../support/processes.js';
import { expectMisuse } from '../../support/refusal.js';

test('addresses of servers', () => {
  const cases: [text: string, host: string, port: number, again?: string][] = [
    ['a.example', 'a.example', 4791, 'a.example:4791'],
    ['127.0.0.1:1', '127.0.0.1', 1],
    ['[::1]:65535', '::1', 65535],
    ['[fe80::1%eth0]', 'fe80::1%eth0', 4791, '[fe80::1%eth0]:4791'],
    ['::1', '::1', 4791, '[::1]:4791'],
  ];
  for (const [text, host, port, again] of cases) {
    const address = parseServerAddress(text);
    assert.equal(address, { host, port });
    assert.is(formatServerAddress(address), again ?? text);
  }
  for (const text of ['', ':1', 'a:0', 'a:65536', 'a:b', 'a:1:2', '[a]:1', '[::1', 'a b', '[]']) {
    expectMisuse(() => parseServerAddress(text));
  }
});

test('our address towards a server is the one that the system would use', async () => {
  assert.is(await localAddressTowards('127.0.0.1'), '127.0.0.1');
  assert.is(await localAddressTowards('::1'), '::1');
});

test('ordinary names are fine, up to the last byte', () => {
  for (const name of ['a', 'a.hidden', 'a b.tar.gz', 'part', 'x.parts', '名前', 'x'.repeat(242)]) {
    checkFileName(name);
  }
  for (const name of [
    'x'.repeat(243),
    'a\u007f',
    '..',
    'A.PART',
    '.bashrc',
    'a\u009b',
    'a\u0085b',
    'a\u2028b',
    'a\u202eb',
    'a\u2066b',
    'a\u200eb',
    'a\u061cb',
    'a\u200bb',
    'a\u00adb',
    'a\u{e0041}b',
  ]) {
    assert.throws(
      () => checkFileName(name),
      (error: Error) => error instanceof RefusalError,
    );
  }
});

test('numbers as people read them', () => {
  assert.is(formatBytes(0), '0 bytes');
  assert.is(formatBytes(1), '1 byte');
  assert.is(formatBytes(999), '999 bytes');
  assert.is(formatBytes(98_932_688), '98.9 MB');
  assert.is(formatBytes(2 ** 40), '1.1 TB');
  assert.is(formatRate(5e6, 2), '2.5 MB/s');
  assert.is(formatRate(5, 0), '0.0 MB/s');
  assert.is(formatCount(1, 'packet'), '1 packet');
  assert.is(formatCount(0n, 'packet'), '0 packets');
});

test('where the node binary is small, the tour strings installed files together', () =>
  Workspace.use(async (space) => {
    const small = await space.file('node', 1000);
    const { path, what } = await findTourFile(space.directory, small);
    assert.match(what, /^\d+ installed files in a row$/);
    assert.ok((await stat(path)).size >= 50e6);
  }));

test("a peer's failure text does not control the terminal", () => {
  const { write } = process.stderr;
  let text = '';
  process.stderr.write = (chunk) => (text += String(chunk)) !== '';
  try {
    reportFailure(
      'put',
      new RefusalError('EIO', 'full\n\x1b]0;\x07\x7f\x9b2J\u202e\u2028\u{e0041}'),
    );
  } finally {
    process.stderr.write = write;
  }
  const escaped = '\\u001b]0;\\u0007\\u007f\\u009b2J\\u202e\\u2028\\udb40\\udc41';
  assert.is(text, `verbena put: full ${escaped} (EIO)\n`);
});

test('what is printed for programs stays JSON when invisible characters are escaped', async () => {
  const { write } = process.stdout;
  let text = '';
  process.stdout.write = (chunk) => (text += String(chunk)) !== '';
  const name = 'a\u202eb\u{e0041}\x7f"\\';
  try {
    await printLine(JSON.stringify({ name }));
  } finally {
    process.stdout.write = write;
  }
  assert.match(text, /^[\x20-\x7e]*\n$/);
  assert.equal(JSON.parse(text), { name });
});

test('a refusal of the file system has its errno and a sentence, and no path', () => {
  const cases: [code: string, errno: number, refusal: string][] = [
    ['EROFS', -30, 'the file system is mounted read-only (EROFS)'],
    ['ENOTDIR', -20, 'not a directory (ENOTDIR)'],
    ['ENXIO', -6, 'no such device or address (EIO)'],
  ];
  for (const [code, errno, refusal] of cases) {
    const message = `${code}: whatever, open '/home/me/secret'`;
    const error = Object.assign(new Error(message), { code, errno, syscall: 'open' });
    assert.is(fileRefusal('cannot write x', error).message, `cannot write x: ${refusal}`);
  }
});

test.run();
