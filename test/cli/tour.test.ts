/** `verbena tour` (`npm start`): two processes, one file, and what is printed about it. */
import { createSocket } from 'node:dgram';
import { readFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { readPcap } from '../../host/index.js';
import { icrcMatches } from '../support/icrc.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/tour');

test('a file goes from one process into the other; the capture has every packet', () =>
  Workspace.use(async (space) => {
    const file = await space.file('file', 1_500_000);
    const pcap = space.path('tour.pcap');
    const { code, stdout, stderr } = await space.run('tour', file, '--pcap', pcap);
    assert.is(code, 0, stderr);
    assert.match(stdout, /Every byte is there: 1\.5 MB in [\d.]+ s, [\d.]+ MB\/s/);
    assert.match(stdout, /\d+ packets went, \d+ came back, \d+ had to be sent again/);
    assert.match(stdout, 'What to try next:');
    const bytes = await readFile(pcap);
    // Where 4791 is taken the tour says so, and takes other ports.
    if (/taken/.test(stderr)) return;
    const capture = [...readPcap(bytes)];
    const sources = new Set(capture.map(({ source }) => `${source}`));
    assert.equal([...sources].sort(), ['127.0.0.1:4791', '127.0.0.2:4791']);
    assert.ok(capture.length > 1_500_000 / 4096);
    for (const packet of capture) assert.ok(icrcMatches(bytes, packet), `${packet.frameNumber}`);
    const decoded = await space.run('decode', pcap);
    assert.is(decoded.stdout.match(/\[ICRC ok\]$/gm)?.length, capture.length);
  }));

test('an empty file and a bad wire are fine, too', () =>
  Workspace.use(async (space) => {
    const empty = await space.file('empty', 0);
    assert.is((await space.run('tour', empty)).code, 0);
    const file = await space.file('file', 300_000);
    const bad = await space.run('tour', file, '--loss', 5, '--reorder', 5, '--seed', 3, '--json');
    assert.is(bad.code, 0, bad.stderr);
    const report = JSON.parse(bad.stdout) as { verified: boolean; bytes: number };
    assert.ok(report.verified);
    assert.is(report.bytes, 300_000);
  }));

test('with the port in use, the tour names its holder and goes on with another port', () =>
  Workspace.use(async (space) => {
    const socket = createSocket('udp4');
    await new Promise<void>((resolve) => {
      // Another process may hold it already, which is as good.
      socket.once('error', () => resolve());
      socket.bind({ address: '127.0.0.1', port: 4791, exclusive: true }, resolve);
    });
    const file = await space.file('file', 100_000);
    const { code, stderr } = await space.run('tour', file);
    socket.close();
    assert.is(code, 0, stderr);
    assert.match(stderr, /port 4791 on 127.0.0.1 is taken .*; going on with a free port/);
  }));

test('a bad path is one line', () =>
  Workspace.use(async (space) => {
    const { code, stderr } = await space.run('tour', space.path('no'));
    assert.is(code, 1);
    assert.match(stderr, /^verbena tour: cannot read .*ENOENT[^\n]*\n$/);
  }));

test.run();
