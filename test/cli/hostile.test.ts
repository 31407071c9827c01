/** Clients that a test makes by hand: what they may not say, and what they may not keep. */
import { chmod, mkdir, readdir, writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ExchangeAuth } from '../../host/cli/file-transfer/exchange-key.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/hostile');

/** A request in order, with changes. */
function requestLine(changes: object = {}): string {
  const put = {
    transfer: '0'.repeat(32),
    name: 'file',
    size: 1000,
    mtimeNs: '1',
    pieceBytes: 65536,
    qpn: 77,
    psn: 1,
    port: 40000,
    packetSizeMax: 4160,
    receiveBufferBytes: 212992,
    reorderPackets: 0,
    ...changes,
  };
  return JSON.stringify({ verbena: 1, put });
}

/** Says `line` to a server; the first line that it answers, and the connection. */
async function say(
  port: number,
  line: string,
  from = '127.0.0.1',
): Promise<{ answer: string; socket: Socket }> {
  const socket = connect({ port, host: '127.0.0.1', localAddress: from });
  socket.on('error', () => undefined);
  socket.write(line);
  let answer = '';
  socket.setEncoding('utf8').on('data', (text: string) => (answer += text));
  while (!answer.includes('\n') && !socket.closed) {
    await Promise.race([once(socket, 'data'), once(socket, 'close')]);
  }
  return { answer: answer.split('\n', 1)[0]!, socket };
}

async function refusalOf(port: number, line: string): Promise<string> {
  const { answer, socket } = await say(port, line);
  socket.destroy();
  const { refused } = JSON.parse(answer) as { refused?: { code: string; message: string } };
  return `${refused?.code}: ${refused?.message}`;
}

test('names that are no file names are refused, and so is what is no request', () =>
  Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const { server, port } = await space.serve(space.path('in'));
    const wrong = ['', '.', '..', '../x', 'a/b', 'a\\b', 'a\0b', 'a\nb', '\ud800', 'x.part'];
    for (const name of [...wrong, 'x.part.journal', 'x.JOURNAL', 'é'.repeat(125)]) {
      const answer = await refusalOf(port, `${requestLine({ name })}\n`);
      assert.match(answer, 'EINVAL: a file cannot be put as', JSON.stringify(name));
    }
    for (const [changes, field] of [
      [{ size: -1 }, 'size'],
      [{ size: 1e300 }, 'size'],
      [{ size: '1000' }, 'size'],
      [{ pieceBytes: 1 }, 'pieceBytes'],
      [{ pieceBytes: 2 ** 40 }, 'pieceBytes'],
      [{ qpn: 2 ** 24 }, 'qpn'],
      [{ psn: 0.5 }, 'psn'],
      [{ port: 0 }, 'port'],
      [{ transfer: 'x' }, 'transfer'],
      [{ mtimeNs: 'soon' }, 'mtimeNs'],
      [{ name: 7 }, 'name'],
      [{ name: 'x'.repeat(2000) }, 'name'],
    ] as const) {
      assert.match(
        await refusalOf(port, `${requestLine(changes)}\n`),
        `EPROTO: the field "${field}"`,
      );
    }
    assert.match(await refusalOf(port, `${requestLine({ size: 2 ** 50 })}\n`), 'EMSGSIZE');
    assert.match(await refusalOf(port, 'GET / HTTP/1.1\n'), 'EPROTO');
    assert.match(await refusalOf(port, '[]\n'), 'EPROTO');
    assert.match(await refusalOf(port, '{"verbena":1,"put":null}\n'), 'EPROTO');
    assert.match(
      await refusalOf(port, 'x'.repeat(9000)),
      'EPROTO: the client sends a line of more than 8192 bytes',
    );
    assert.equal(await readdir(space.path('in')), []);
    // And still serves.
    const file = await space.file('good', 1000);
    assert.is((await space.run('put', file, `127.0.0.1:${port}`)).code, 0);
    assert.match(server.stderr, 'verbena serve: refused 127.0.0.1: ');
  }));

test('a full server, and a name that another client is putting, are refused and then free', () =>
  Workspace.use(async (space) => {
    const { server, port } = await space.serve(space.directory, '--max-clients', 1);
    const address = `127.0.0.1:${port}`;
    const file = await space.file('other', 1000);
    // Takes its place, and says nothing more.
    const { answer, socket } = await say(port, `${requestLine()}\n`);
    assert.match(answer, '"slots":');
    const full = await space.run('put', file, address);
    assert.is(full.code, 1);
    assert.match(full.stderr, /^verbena put: .* it serves 1 at once [^\n]*\(EAGAIN\)\n$/);
    const same = await space.file('file', 1000);
    const busy = await space.run('put', same, address);
    assert.is(busy.code, 1);
    assert.match(busy.stderr, /^verbena put: another client is putting file [^\n]*\(EBUSY\)\n$/);
    socket.destroy();
    await server.printed(
      'stderr',
      /file from 127.0.0.1 is not complete: the client closed the connection/,
    );
    assert.is((await space.run('put', file, address)).code, 0);
  }));

test('a client that says more than its line loses the connection', () =>
  Workspace.use(async (space) => {
    const { server, port } = await space.serve(space.directory);
    const { socket } = await say(port, `${requestLine()}\n`);
    socket.write('and another thing');
    await once(socket, 'close');
    await server.printed('stderr', /file from 127.0.0.1 is not complete/);
  }));

test('a silent client gives its place to another address, and one without a piece leaves no file', () =>
  Workspace.use(async (space) => {
    const directory = space.path('in');
    await mkdir(directory);
    const { server, port } = await space.serve(directory, '--max-clients', 3);
    const silent = [];
    for (const name of ['a', 'b', 'c']) {
      silent.push(await say(port, `${requestLine({ name, transfer: name.repeat(32) })}\n`));
    }
    const own = await say(port, `${requestLine({ name: 'd' })}\n`);
    assert.match(own.answer, 'EAGAIN', 'its own source has them');
    await new Promise((resolve) => setTimeout(resolve, 2500));
    const other = await say(port, `${requestLine({ name: 'd' })}\n`, '127.0.0.31');
    assert.match(other.answer, '"slots":');
    await server.printed('stderr', /made no progress, and another client needs its place/);
    for (const { socket } of [...silent, own, other]) socket.destroy();
    await server.printed(
      'stderr',
      /d from 127.0.0.31 is not complete: the client closed the connection/,
    );
    for (let turn = 0; turn < 200 && (await readdir(directory)).length > 0; turn++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert.equal(await readdir(directory), []);
  }));

test('connections of one source leave others, and a server with a key wants its proof', () =>
  Workspace.use(async (space) => {
    const key = 'a key of enough letters';
    await writeFile(space.path('key'), `${key}\n`, { mode: 0o600 });
    const words = ['--max-clients', 1, '--token-file', space.path('key')];
    const { port } = await space.serve(space.directory, ...words);
    const address = `127.0.0.1:${port}`;
    const slow = Array.from({ length: 30 }, () => connect({ port, host: '127.0.0.1' }));
    let ended = 0;
    for (const socket of slow) socket.on('error', () => {}).on('close', () => ended++);
    for (let turn = 0; turn < 200 && ended < 13; turn++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    assert.is(ended, 13, 'more than 16 and one client');
    for (const socket of slow) socket.destroy();
    const file = await space.file('other', 1000);
    const run = (...more: string[]) => space.run('put', file, address, ...more);
    assert.match((await run()).stderr, /the server wants its key: [^\n]* \(EACCES\)\n$/);
    assert.match(
      (await run('--token', `${key}!`)).stderr,
      /another key \([^)]*--token\): [^\n]* \(EACCES\)/,
    );
    assert.is((await run('--token', key)).code, 0);
    // The hello of a replayed connection: its tag is of other nonces.
    const replay = connect({ port, host: '127.0.0.1' });
    const { request } = new ExchangeAuth({ psk: Buffer.from(key) });
    replay.write(`${JSON.stringify({ verbena: 1, ...request })}\n`);
    assert.match(String((await once(replay, 'data'))[0]), /"nonce":"[0-9a-f]{64}"/);
    replay.write(`${'0'.repeat(64)} {"verbena":1,"put":{}}\n`);
    assert.match(String((await once(replay, 'data'))[0]), /"code":"EACCES".*did not prove the key/);
    replay.destroy();
    assert.match((await run('--token', 'short')).stderr, /16 to 256 characters, not 5/);
    await chmod(space.path('key'), 0o644);
    assert.match((await run('--token-file', space.path('key'))).stderr, /chmod 600/);
    const { port: open } = await space.serve(space.directory);
    const without = await space.run('put', file, `127.0.0.1:${open}`, '--token', key);
    assert.match(without.stderr, /the server has no key/);
  }));

test('a server that does not know the key is no server', () =>
  Workspace.use(async (space) => {
    const file = await space.file('file', 1000);
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => {
        socket.write(`${JSON.stringify({ verbena: 1, nonce: '0'.repeat(64), encrypt: false })}\n`);
        socket.once('data', () => {
          socket.write(`${JSON.stringify({ verbena: 1, done: true, sha256: '0'.repeat(64) })}\n`);
        });
      });
    });
    server.listen({ host: '127.0.0.1', port: 0, exclusive: true });
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const words = ['--token', 'a key of enough letters'];
    const { code, stderr } = await space.run('put', file, `127.0.0.1:${port}`, ...words);
    server.close();
    assert.is(code, 1);
    assert.match(stderr, /did not prove the key/);
  }));

test.run();
