/** Either side is killed in the middle (SIGKILL: it has no last word), and nothing is lost. */
import { readFileSync } from 'node:fs';
import { mkdir, readFile, readdir } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace, freePort } from '../support/processes.js';
import { eventually } from '../support/receiver.js';
import type { PutReport } from '../../host/cli/put/put.js';

const test = suite('cli/killed');

const SIZE = 4_000_000;
const PIECES = Math.ceil(SIZE / 65536);
/** Slow enough to be killed in the middle. */
const SLOW = ['--piece-bytes', '64k', '--loss', 10];

test('a killed client that starts again sends only what is missing', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const { server, address } = await space.serve(space.path('in'));
    const file = await space.file('file', SIZE);
    const first = space.start('put', file, address, ...SLOW);
    await first.printed('stderr', /[5-9]0 %/);
    first.kill('SIGKILL');
    // The server has not noticed yet.
    const put = await space.run('put', file, address, '--piece-bytes', '64k', '--json');
    assert.is(put.code, 0, put.stderr);
    const { pieces, piecesSent, piecesSkipped } = JSON.parse(put.stdout) as PutReport;
    assert.is(pieces, PIECES);
    assert.ok(piecesSkipped >= PIECES * 0.4, `${piecesSkipped} were there`);
    assert.is(piecesSent, PIECES - piecesSkipped);
    assert.match(put.stderr, /going on from an earlier run/);
    assert.match(server.stderr, /is not complete: [^;]+; \d+ of 62 pieces are kept/);
    assert.ok((await readFile(file)).equals(await readFile(space.path('in', 'file'))));
    assert.equal(await readdir(space.path('in')), ['file']);
  }));

test('a killed server that starts again is found by the client, which goes on', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const port = await freePort();
    const { server, address } = await space.serve(space.path('in'), '--port', port);
    const file = await space.file('file', SIZE);
    const put = space.start('put', file, address, ...SLOW, '--json', '--retries', 8);
    await put.printed('stderr', /[5-9]0 %/);
    // Pieces count after their sync, on a disk that other processes use as well: a header, and half
    // of the pieces.
    const journal = space.path('in', 'file.part.journal');
    const isJournalled = (): boolean =>
      readFileSync(journal, 'latin1').split('\n').length > 1 + PIECES / 2;
    await eventually(isJournalled, 20_000);
    server.kill('SIGKILL');
    await server.ended;
    const again = await space.serve(space.path('in'), '--port', port);
    const { code, stdout, stderr } = await put.ended;
    assert.is(code, 0, stderr);
    assert.match(stderr, /connection lost .*; trying again/);
    const report = JSON.parse(stdout) as PutReport;
    assert.ok(report.reconnects > 0);
    // Pieces synced before the kill did not travel again.
    assert.match(again.server.stdout, /goes on with file: \d+ pieces are here/);
    assert.ok(report.piecesSent < PIECES + PIECES / 2);
    assert.ok((await readFile(file)).equals(await readFile(space.path('in', 'file'))));
  }));

test('a client whose server does not come back gives up and says what to do', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const { server, address } = await space.serve(space.path('in'));
    const file = await space.file('file', SIZE);
    const put = space.start('put', file, address, ...SLOW, '--retries', 1);
    await put.printed('stderr', /[3-9]0 %/);
    server.kill('SIGKILL');
    const { code, stderr } = await put.ended;
    assert.is(code, 1);
    assert.match(stderr, /is lost after 1 retry without progress .* put it again to go on/);
  }));

test('a server that ends by ctrl-C keeps what arrived', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const { server, address } = await space.serve(space.path('in'));
    const file = await space.file('file', SIZE);
    const put = space.start('put', file, address, ...SLOW, '--retries', 0);
    await put.printed('stderr', /[3-9]0 %/);
    server.kill('SIGINT');
    assert.is((await server.ended).code, 0);
    assert.match(
      server.stderr,
      /file from 127.0.0.1 is not complete: the server is closing; \d+ of 62/,
    );
    assert.is((await put.ended).code, 1);
  }));

test.run();
