/** `verbena put` into `verbena serve`: two processes, a real wire, real files. */
import { readFile, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { createHash } from 'node:crypto';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace, freePort, noise } from '../support/processes.js';
import { longOnly, sample } from '../support/sample.js';
import type { PutReport } from '../../host/cli/put/put.js';

/** A transfer that takes a second and more: long enough to change something meanwhile. */
const LARGE = 16_000_000;
const SLOW = ['--piece-bytes', '64k', '--loss', 30] as const;
const test = suite('cli/transfer');
const longTest = longOnly(test);

/** The file is there, byte for byte, and nothing else. */
async function assertArrived(space: Workspace, source: string, name: string): Promise<void> {
  const [sent, arrived] = [await readFile(source), await readFile(space.path('in', name))];
  assert.ok(sent.equals(arrived), `${name}: ${arrived.length} of ${sent.length} bytes, or others`);
  assert.equal(
    (await readdir(space.path('in'))).filter((entry) => entry.startsWith(name)),
    [name],
  );
}

async function makeIn(space: Workspace): Promise<string> {
  const { mkdir } = await import('node:fs/promises');
  await mkdir(space.path('in'));
  return space.path('in');
}

test('a file arrives whole, and both sides say so', () =>
  Workspace.use(async (space) => {
    const { server, address } = await space.serve(await makeIn(space));
    const file = await space.file('a file.bin', 3_500_001);
    const put = await space.run('put', file, address);
    assert.is(put.code, 0, put.stderr);
    const sha256 = createHash('sha256')
      .update(await readFile(file))
      .digest('hex');
    assert.match(put.stdout, `a file.bin is on ${address}: 3.5 MB in`);
    assert.match(put.stdout, sha256);
    assert.match(put.stderr, 'verbena put: 100 %');
    await server.printed('stdout', new RegExp(`received a file.bin from 127.0.0.1: .*${sha256}`));
    await assertArrived(space, file, 'a file.bin');
    server.kill('SIGINT');
    assert.is((await server.ended).code, 0, 'ctrl-C ends a server cleanly');
  }));

test('files of awkward lengths arrive: empty, one byte, around a piece', () =>
  Workspace.use(async (space) => {
    const { address } = await space.serve(await makeIn(space));
    for (const size of sample([0, 65537], [0, 1, 65535, 65536, 65537, 4 * 65536])) {
      const file = await space.file(`length-${size}`, size);
      const put = await space.run('put', file, address, '--piece-bytes', '64k', '--json');
      assert.is(put.code, 0, put.stderr);
      const report = JSON.parse(put.stdout) as PutReport;
      assert.is(report.bytes, size);
      assert.is(report.piecesSent, Math.ceil(size / 65536));
      await assertArrived(space, file, `length-${size}`);
    }
  }));

test('a file replaces an older one of its name in one step', () =>
  Workspace.use(async (space) => {
    const { address } = await space.serve(await makeIn(space));
    await writeFile(space.path('in', 'x'), 'what was there before');
    const file = await space.file('x', 100_000);
    assert.is((await space.run('put', file, address)).code, 0);
    await assertArrived(space, file, 'x');
  }));

longTest('two clients at once both arrive, and a window of one slot is enough', () =>
  Workspace.use(async (space) => {
    const { address } = await space.serve(await makeIn(space), '--window-bytes', '64k');
    const files = [await space.file('one', 1_500_000, 5), await space.file('two', 1_400_000, 6)];
    const puts = await Promise.all(
      files.map((file) => space.run('put', file, address, '--piece-bytes', '64k')),
    );
    for (const put of puts) assert.is(put.code, 0, put.stderr);
    await assertArrived(space, files[0]!, 'one');
    await assertArrived(space, files[1]!, 'two');
  }),
);

longTest('a transfer works over IPv6', () =>
  Workspace.use(async (space) => {
    const { port } = await space.serve(await makeIn(space), '--bind', '::1');
    const file = await space.file('six', 300_000);
    const put = await space.run('put', file, `[::1]:${port}`);
    assert.is(put.code, 0, put.stderr);
    await assertArrived(space, file, 'six');
  }),
);

test('a file that was changed since is sent anew, and the old part is discarded aloud', () =>
  Workspace.use(async (space) => {
    const { server, address } = await space.serve(await makeIn(space));
    const file = await space.file('y', LARGE);
    const slow = space.start('put', file, address, ...SLOW);
    await slow.printed('stderr', /[3-9]0 %/);
    slow.kill('SIGKILL');
    await server.printed('stderr', /y from 127.0.0.1 is not complete: [^;]+; \d+ of 245 pieces/);
    await writeFile(file, noise(LARGE, 99));
    await utimes(file, new Date(), new Date(Date.now() + 5000));
    const put = await space.run('put', file, address, '--piece-bytes', '64k', '--json');
    assert.is(put.code, 0, put.stderr);
    assert.match(put.stderr, "the server's part of y is discarded: the file has changed since");
    assert.is((JSON.parse(put.stdout) as PutReport).piecesSkipped, 0);
    await assertArrived(space, file, 'y');
  }));

longTest('a file that changes during its transfer is refused, and leaves no piece', () =>
  Workspace.use(async (space) => {
    const { address } = await space.serve(await makeIn(space));
    const file = await space.file('z', LARGE);
    const others = noise(LARGE - 1, 7);
    const put = space.start('put', file, address, ...SLOW);
    await put.printed('stderr', /[2-9]0 %/);
    await writeFile(file, others);
    const { code, stderr } = await put.ended;
    assert.is(code, 1);
    assert.match(stderr, /verbena put: .*z changed while it was sent/);
    assert.equal(await readdir(space.path('in')), []);
  }),
);

longTest(
  'a part that is removed during its transfer is reported with the remedy, and no piece is kept',
  () =>
    Workspace.use(async (space) => {
      const { server, address } = await space.serve(await makeIn(space));
      const file = await space.file('v', LARGE);
      const put = space.start('put', file, address, ...SLOW);
      await put.printed('stderr', /[2-9]0 %/);
      await rm(space.path('in', 'v.part'));
      const { code, stderr } = await put.ended;
      assert.is(code, 1);
      assert.match(
        stderr,
        /put: the server: a program removed v.part during .*; put the file again/,
      );
      await server.printed(
        'stderr',
        /v from 127.0.0.1 is not complete: .*put the file again \(ENOENT\)\n/,
      );
      assert.equal(await readdir(space.path('in')), []);
    }),
);

test('the interrupted client says how to go on, and does go on', () =>
  Workspace.use(async (space) => {
    const { address } = await space.serve(await makeIn(space));
    const file = await space.file('w', LARGE);
    const first = space.start('put', file, address, ...SLOW);
    await first.printed('stderr', /[4-9]0 %/);
    first.kill('SIGINT');
    const { code, stderr } = await first.ended;
    assert.is(code, 130);
    assert.match(stderr, `interrupted; to go on: verbena put ${file} ${address}`);
    const again = await space.run('put', file, address, '--piece-bytes', '64k', '--json');
    assert.is(again.code, 0, again.stderr);
    assert.ok((JSON.parse(again.stdout) as PutReport).piecesSkipped > 0);
    await assertArrived(space, file, 'w');
    assert.is((await stat(space.path('in', 'w'))).size, LARGE);
  }));

longTest('a room whose signalling server is absent is named by put and by serve', () =>
  Workspace.use(async (space) => {
    const room = `ws://127.0.0.1:${await freePort()}/rooms#x`;
    const directory = await makeIn(space);
    const server = space.start('serve', '--dir', directory, '--room', room);
    const sentence = `the server at ${room.replace('#x', '')}: `;
    await server.printed('stderr', /no member can find this server: [^\n]*ECONNREFUSED/);
    assert.ok(server.stderr.includes(sentence), server.stderr);
    const put = await space.run('put', await space.file('file', 1000), room);
    assert.is(put.code, 1);
    assert.match(put.stderr, /^verbena put: [^\n]*\(ECONNREFUSED\)\n$/);
    assert.ok(put.stderr.includes(sentence), put.stderr);
  }),
);

test.run();
