/** Clients and servers that a test makes by hand: what they may not say, and may not keep. */
import { chmod, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { UdpLink, connect, listen, openDevice, type Context } from '../../host/index.js';
import { FILE_SERVICE } from '../../host/transfer/channel.js';
import type { Message } from '../../host/transfer/messages.js';
import { printed } from '../support/hook.js';
import { Workspace } from '../support/processes.js';
import { PutClient, refusedGreeting, request } from '../support/put-client.js';
import { eventually, settle } from '../support/receiver.js';

const test = suite('cli/hostile');
const HOST = '127.0.0.1';
/** Of all clients at this address. */
let device: Context;
test.before(
  printed(async () => {
    device = await openDevice({ address: HOST, port: 0 });
  }),
);
test.after.each(() => PutClient.closeAll());
test.after(() => device.close());

/** Answer of the server to one message of a new connection. */
async function answerTo(port: number, message: Message): Promise<string> {
  const client = await PutClient.open({ host: HOST, port }, device);
  const answer = await client.answer(message);
  await client.close();
  return answer;
}

test('names that are no file names are refused, and so is what is no request', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const { server, port } = await space.serve(space.path('in'));
    const paths = ['', '.', '..', '../x', 'a/b', 'a\\b', 'x.part'];
    const invisible = ['\0', '\n', '\x85', '\u200b', '\u00ad', '\u061c', '\u202e', '\u2028'];
    for (const name of [
      ...paths,
      ...invisible.map((one) => `a${one}b`),
      'a\u{e0041}',
      'x.part.journal',
      'x.JOURNAL',
      'é'.repeat(125),
    ]) {
      const answer = await answerTo(port, request({ name }));
      assert.match(answer, 'EINVAL a file cannot be put as', JSON.stringify(name));
    }
    for (const changes of [{ size: 2n ** 62n }, { pieceBytes: 1 }, { pieceBytes: 2 ** 31 }]) {
      assert.match(await answerTo(port, request(changes)), 'EPROTO');
    }
    assert.match(await answerTo(port, request({ size: 2n ** 40n })), 'EMSGSIZE');
    const sha256 = new Uint8Array(32);
    for (const message of [
      { kind: 'END', sha256 },
      { kind: 'DONE', sha256 },
      { kind: 'ABANDON' },
      { kind: 'PIECE', slot: 0, index: 0, length: 1000, crc: 0, early: 0 },
    ] as const) {
      assert.is(await answerTo(port, message), '', 'the connection ends');
    }
    assert.equal(await readdir(space.path('in')), []);
    // And still serves.
    const file = await space.file('good', 1000);
    assert.is((await space.run('put', file, `${HOST}:${port}`)).code, 0);
    assert.match(server.stderr, 'verbena serve: refused 127.0.0.1: ');
    assert.match(server.stderr, String.raw`"a\u202eb"`, 'escaped');
    assert.match(server.stderr, /^[\n\x20-\x7eé]+$/);
  }));

test('a client of another version and another program are refused in words', () =>
  Workspace.use(async (space) => {
    const { port } = await space.serve(space.directory);
    const refused = (text: string): Promise<string> =>
      refusedGreeting({ host: HOST, port }, text, device);
    for (const [version, older] of [
      [1, 'client'],
      [5, 'server'],
    ] as const) {
      const sentence =
        `EPROTO the client has version ${version} of the conversation of put and serve, the server ` +
        `has version 4; upgrade verbena at the ${older}`;
      assert.ok((await refused(`verbena put ${version}`)).includes(sentence), sentence);
    }
    assert.match(await refused('nvme'), /EPROTO the client does not run verbena put; check/);
  }));

test('pieces out of range, a slot that is not free and a second request end the session', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const { port } = await space.serve(space.path('in'));
    const piece = { kind: 'PIECE', slot: 0, index: 0, length: 1000, crc: 1, early: 0 } as const;
    for (const [message, answer] of [
      [{ ...piece, slot: 9 }, /EPROTO piece 0 of 1000 bytes in slot 9 is out of range/],
      [{ ...piece, index: 1 }, /EPROTO piece 1 .* is out of range/],
      [{ ...piece, length: 1001 }, /EPROTO piece 0 of 1001 .* is out of range/],
      [{ ...piece, early: 1001 }, /EPROTO piece 0 .* is out of range/],
      [{ ...piece, early: 2 ** 32 - 1 }, /EPROTO piece 0 .* is out of range/],
      // The early region of a client that wrote nothing has zeros.
      [{ ...piece, early: 1000 }, /EIO the CRC-32 of piece 0 differs/],
      [piece, /EIO the CRC-32 of piece 0 differs/],
      [{ kind: 'END', sha256: new Uint8Array(32) }, /EPROTO the file is incomplete: 1 pieces/],
    ] as const) {
      const client = await PutClient.open({ host: HOST, port }, device);
      assert.is(await client.answer(request()), 'READY');
      client.say(message);
      await eventually(() => client.heard.length > 1);
      const [, failed] = client.heard;
      assert.match(failed?.kind === 'FAILED' ? failed.text : '', answer);
      await client.close();
    }
    const client = await PutClient.open({ host: HOST, port }, device);
    assert.is(await client.answer(request()), 'READY');
    client.say(request({ name: 'second' }));
    await eventually(() => client.isOver);
    assert.ok(client.isOver);
    await settle(200);
    assert.equal(await readdir(space.path('in')), []);
  }));

test('a full server, and a name that another client is putting, are refused and then free', () =>
  Workspace.use(async (space) => {
    const { server, port } = await space.serve(space.directory, '--max-clients', 1);
    const address = `${HOST}:${port}`;
    const file = await space.file('other', 1000);
    // Takes its place, and says nothing more.
    const client = await PutClient.open({ host: HOST, port }, device);
    assert.is(await client.answer(request()), 'READY');
    const full = await space.run('put', file, address);
    assert.is(full.code, 1);
    assert.match(full.stderr, /^verbena put: .* it serves 1 at once [^\n]*\(EAGAIN\)\n$/);
    const same = await space.file('file', 1000);
    // A client that says nothing is taken for a killed one until the keep-alive decides.
    const alive = setInterval(() => client.say({ kind: 'ALIVE' }), 300);
    const busy = await space.run('put', same, address).finally(() => clearInterval(alive));
    assert.is(busy.code, 1);
    assert.match(busy.stderr, /^verbena put: another client is putting file [^\n]*\(EBUSY\)\n$/);
    await client.close();
    await server.printed('stderr', /file from 127.0.0.1 is not complete: the connection to the/);
    assert.is((await space.run('put', file, address)).code, 0);
  }));

test('a silent client gives its place to another address, and one without a piece leaves no file', () =>
  Workspace.use(async (space) => {
    const directory = space.path('in');
    await mkdir(directory);
    const { server, port } = await space.serve(directory, '--max-clients', 3);
    const place = { host: HOST, port };
    const silent: PutClient[] = [];
    for (const [index, name] of ['a', 'b', 'c'].entries()) {
      const client = await PutClient.open(place, device);
      assert.is(await client.answer(request({ name }, index)), 'READY');
      silent.push(client);
    }
    assert.match(await answerTo(port, request({ name: 'd' }, 3)), 'EAGAIN', 'its source has them');
    await new Promise((resolve) => setTimeout(resolve, 2500));
    const other = await PutClient.open(place, '127.0.0.31');
    assert.is(await other.answer(request({ name: 'd' }, 4)), 'READY');
    await server.printed('stderr', /made no progress, and another client needs its place/);
    for (const client of [...silent, other]) await client.close();
    await server.printed('stderr', /d from 127.0.0.31 is not complete: the connection to the/);
    for (let turn = 0; turn < 200 && (await readdir(directory)).length > 0; turn++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert.equal(await readdir(directory), []);
  }));

test('connections of one source are limited, and those without a request end', () =>
  Workspace.use(async (space) => {
    const { server, port } = await space.serve(space.directory);
    const place = { host: HOST, port };
    const served = await PutClient.open(place, device);
    assert.is(await served.answer(request()), 'READY');
    const opening = Array.from({ length: 16 }, () => PutClient.open(place, device));
    const clients = await Promise.all(opening);
    const refused = await PutClient.open(place, device).catch((error: Error) => error);
    assert.match(String(refused), 'enough connections of this source');
    await (await PutClient.open(place, '127.0.0.32')).close();
    await server.printed(
      'stderr',
      /no request from 127.0.0.1: it sent no request for 5 s\n/,
      10_000,
    );
    await eventually(() => clients.every(({ isOver }) => isOver));
    assert.ok(clients.every(({ isOver }) => isOver));
  }));

test('a server with a key wants its proof', () =>
  Workspace.use(async (space) => {
    const key = 'a key of enough letters';
    await writeFile(space.path('key'), `${key}\n`, { mode: 0o600 });
    const { port } = await space.serve(space.directory, '--token-file', space.path('key'));
    const file = await space.file('other', 1000);
    const run = (...more: string[]) => space.run('put', file, `${HOST}:${port}`, ...more);
    assert.match((await run()).stderr, /wants a pre-shared key: [^\n]* \(EACCES\)\n$/);
    assert.match((await run('--token', `${key}!`)).stderr, /not have the first key .*\(EACCES\)/);
    assert.is((await run('--token', key)).code, 0);
    assert.match((await run('--token', 'short')).stderr, /16 to 256 characters, not 5/);
    await chmod(space.path('key'), 0o644);
    assert.match((await run('--token-file', space.path('key'))).stderr, /chmod 600/);
  }));

test('a server that does not know the key, has another version or says nothing is refused', () =>
  Workspace.use(async (space) => {
    const file = await space.file('file', 1000);
    const context = await openDevice({ address: HOST, port: 0 });
    const { port } = context.local;
    try {
      const listener = await listen({ address: HOST, port: FILE_SERVICE }, { context });
      let greeting: string | undefined = 'verbena put 5';
      void (async () => {
        for await (const each of listener) {
          if (greeting === undefined) each.reject();
          else void each.accept({ privateData: Buffer.from(greeting) }).catch(() => undefined);
        }
      })();
      const put = (...words: string[]) => space.run('put', file, `${HOST}:${port}`, ...words);
      const key = ['--token', 'a key of enough letters'];
      assert.match((await put(...key)).stderr, /has no key: .*\(EACCES\)/);
      const at = `at ${HOST}:${port}`;
      const client = 'this client has version 4; upgrade verbena at this client';
      assert.match((await put()).stderr, `the server ${at} has version 5 of the conversation`);
      assert.match((await put()).stderr, `${client} (EPROTO)`);
      greeting = 'verbena put 1';
      assert.match((await put()).stderr, `; upgrade verbena at the server ${at} (EPROTO)`);
      greeting = undefined;
      assert.match(
        (await put()).stderr,
        `put: ${HOST}:${port} refuses with CONSUMER_DEFINED; check that "verbena serve" of this version`,
      );
      greeting = 'verbena put 4';
      const { code, stderr } = await put('--retries', '0');
      assert.is(code, 1);
      assert.match(
        stderr,
        /^verbena put: the server sent no reply for 12 s; check that it runs [^\n]*\n$/,
      );
    } finally {
      await context.close();
    }
  }));

test('a client that ends between request and answer has gone, and is not refused', () =>
  Workspace.use(async (space) => {
    const { server, port } = await space.serve(space.directory);
    const link = new UdpLink({ address: '127.0.0.33', port: 0 });
    const send = link.send.bind(link);
    // The REQ, and then silence: the server waits for an RTU.
    let isSilent = false;
    link.send = (batch) => {
      if (!isSilent) send(batch);
      isSilent = true;
    };
    const silent = await openDevice({ link });
    try {
      const privateData = Buffer.from('verbena put 4');
      const how = { context: silent, udpPort: port, privateData };
      await connect({ address: HOST, port: FILE_SERVICE }, how);
      await server.printed(
        'stderr',
        /no request from 127.0.0.33: the client left before its connection was complete\n/,
      );
    } finally {
      await silent.close();
    }
  }));

test('an error of the file system names no directory of the server', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const { port } = await space.serve(space.path('in'), '--quota', '1T');
    await rm(space.path('in'), { recursive: true });
    const answer = await answerTo(port, request());
    assert.is(answer, 'ENOENT the server failed: no such file or directory');
  }));

test.run();
