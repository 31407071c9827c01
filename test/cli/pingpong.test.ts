/** `verbena pingpong` with itself, and with peers that say what they should not. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { decodeDestinations, encodeDestinations } from '../../host/cli/pingpong/exchange.js';
import { Gid } from '../../host/index.js';
import { Workspace, freePort } from '../support/processes.js';
import { sample } from '../support/sample.js';

const test = suite('cli/pingpong');
/** Of this file alone: packets go to and from UDP port 4791. */
const SERVER = '127.0.91.1';
const CLIENT = '127.0.91.2';
const GID = '00000000000000000000ffff7f005b02';

for (const service of sample(['ud', 'srq'], ['rc', 'uc', 'ud', 'srq'])) {
  test(`--${service}: both sides send and receive every message, and check it`, () =>
    Workspace.use(async (space) => {
      const port = await freePort(SERVER);
      const words = [`--${service}`, '-c', '-n', 50, '-s', 3000, '-p', port, '-r', 20];
      const server = space.start('pingpong', ...words, '--bind', SERVER);
      await server.printed('stdout', /local address/);
      const client = await space.run('pingpong', ...words, '--bind', CLIENT, '-e', SERVER);
      assert.is(client.stderr, '');
      assert.is(client.code, 0);
      const { code, stdout } = await server.ended;
      assert.is(code, 0);
      const sides = service === 'srq' ? 16 : 1;
      for (const text of [stdout, client.stdout]) {
        const lines = text.split('\n');
        const ends = lines.filter((line) =>
          /^ {2}(local|remote) address: +LID 0x0000, QPN 0x\w{6}, PSN 0x\w{6}, GID ::ffff:127/.test(
            line,
          ),
        );
        assert.is(ends.length, 2 * sides);
        assert.match(text, /^300000 bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit\/sec$/m);
        assert.match(text, /^50 iters in \d+\.\d\d seconds = \d+\.\d\d usec\/iter$/m);
      }
    }));
}

test('a server that was not told its address takes the one that the client came to', () =>
  Workspace.use(async (space) => {
    const port = await freePort(SERVER);
    const server = space.start('pingpong', '-n', 5, '-p', port, '--json');
    const words = ['-n', 5, '-p', port, '--bind', CLIENT, '--json', SERVER];
    let client = await space.run('pingpong', ...words);
    // Nothing is printed before the client comes: it may be early.
    for (let turn = 0; client.code !== 0 && turn < 20; turn++) {
      assert.match(client.stderr, 'no process listens');
      client = await space.run('pingpong', ...words);
    }
    const result = JSON.parse(client.stdout) as { iters: number; bytes: number };
    assert.equal([result.iters, result.bytes], [5, 40960]);
    assert.is((await server.ended).code, 0);
  }));

test('what is no LID:QPN:PSN:GID is refused with one line', () =>
  Workspace.use(async (space) => {
    const good = `0000:000011:000022:${GID}\0`;
    assert.equal(decodeDestinations(Buffer.from(good)), [
      { qpn: 0x11, psn: 0x22, gid: Gid.parse(CLIENT) },
    ]);
    const list = [{ qpn: 0x11, psn: 0x22, gid: Gid.parse(CLIENT) }];
    assert.is(encodeDestinations(list).toString('latin1'), good);
    const bad = ['x'.repeat(52), `${good.slice(0, -1)}x`, good.replace(':', '-')];
    for (const text of bad) {
      const port = await freePort(SERVER);
      const server = space.start('pingpong', '-p', port, '--bind', SERVER);
      await server.printed('stdout', /local address/);
      const socket = connect(port, SERVER);
      socket.on('error', () => undefined);
      socket.write(text);
      const { code, stderr } = await server.ended;
      assert.is(code, 1);
      assert.is(
        stderr,
        'verbena pingpong: invalid message from peer: expected LID:QPN:PSN:GID (EPROTO)\n',
      );
      socket.destroy();
    }
  }));

test('a peer without a GID, one that hangs up, and none at all: each has its sentence', () =>
  Workspace.use(async (space) => {
    const server = createServer();
    server.listen(0, SERVER);
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const against = async (behave: (socket: Socket) => void): Promise<string> => {
      server.once('connection', (socket) => {
        socket.on('error', () => undefined);
        // One that reads nothing does not notice the end.
        socket.resume();
        behave(socket);
      });
      const ended = await space.run('pingpong', '-p', port, '--bind', CLIENT, SERVER);
      assert.is(ended.code, 1);
      return ended.stderr;
    };
    const noGid = `0000:000011:000022:${'0'.repeat(32)}\0`;
    assert.match(await against((socket) => socket.write(noGid)), /no GID: start it with -g/);
    assert.match(await against((socket) => socket.end('0000:')), /the peer has disconnected/);
    server.close();
    const absent = await space.run('pingpong', '-p', port, '--bind', CLIENT, SERVER);
    assert.match(absent.stderr, `no process listens at ${SERVER}:${port}`);
    const both = await space.run('pingpong', '--rc', '--ud', SERVER);
    assert.is(both.code, 2);
    assert.match(both.stderr, '--ud: is not valid with --rc');
    const mtu = await space.run('pingpong', '-m', 1000, SERVER);
    assert.is(mtu.code, 2);
  }));

test.run();
