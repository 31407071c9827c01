/** Attacks on `verbena serve`, as a process. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdir, readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import { Workspace, type Program } from '../support/processes.js';
import type { Attack } from './attack.js';

interface Served {
  readonly space: Workspace;
  readonly server: Program;
  readonly directory: string;
  readonly host: string;
  readonly port: number;
}

/** `verbena serve` at `host`; ended when `work` has. */
async function withServer(
  host: string,
  words: readonly string[],
  work: (served: Served) => Promise<number>,
): Promise<number> {
  let count = 0;
  await Workspace.use(async (space) => {
    const directory = space.path('in');
    await mkdir(directory);
    const { server, port } = await space.serve(directory, '--bind', host, ...words);
    count = await work({ space, server, directory, host, port });
  });
  return count;
}

/** A request in order, with changes. */
function requestLine(changes: object = {}): string {
  const put = {
    transfer: '0'.repeat(32),
    ...{ name: 'file', size: 1000, mtimeNs: '1', pieceBytes: 65536 },
    ...{ qpn: 77, psn: 1, port: 40000, packetSizeMax: 4160 },
    ...{ receiveBufferBytes: 212992, reorderPackets: 0, ...changes },
  };
  return `${JSON.stringify({ verbena: 1, put })}\n`;
}

/** Sends `text` from an address; the connection, and its first line (after 3 s: an empty one). */
async function say(
  { host, port }: Pick<Served, 'host' | 'port'>,
  localAddress: string,
  text: string,
): Promise<{ socket: Socket; line: string }> {
  const socket = connect({ host, port, localAddress });
  let heard = '';
  socket.on('error', () => {});
  socket.setEncoding('utf8').on('data', (chunk: string) => (heard += chunk));
  socket.write(text);
  for (let turn = 0; turn < 300 && !heard.includes('\n') && !socket.closed; turn++) await sleep(10);
  return { socket, line: heard.split('\n', 1)[0]! };
}

/** Does an honest client at `from` put a file? Rejects otherwise. */
async function put(
  { space, host, port, directory }: Served,
  from: string,
  ...words: string[]
): Promise<void> {
  const file = await space.file('honest', 100_000);
  const began = performance.now();
  const ended = await space.run('put', file, `${host}:${port}`, '--bind', from, ...words);
  assert.is(ended.code, 0, ended.stderr);
  const seconds = (performance.now() - began) / 1000;
  assert.ok(seconds < 10, `an honest client took ${seconds.toFixed(1)} s`);
  assert.is((await readFile(`${directory}/honest`)).compare(await readFile(file)), 0);
}

/** The address that packets of this machine leave from: no loopback one. */
async function outgoing(): Promise<string> {
  const socket = createSocket('udp4');
  socket.connect(9, '192.0.2.1');
  await once(socket, 'connect');
  const { address } = socket.address();
  socket.close();
  return address;
}

export const FILE_SERVER_ATTACKS: readonly Attack[] = [
  {
    name: '8 clients that say nothing after their request keep no other address from serve',
    position: 'any host',
    unit: 'connections',
    run: () =>
      withServer('127.1.22.1', [], async (served) => {
        const said = [];
        for (let index = 0; index < 8; index++) {
          const transfer = `${index}`.repeat(32);
          const line = requestLine({ name: `silent-${index}`, transfer });
          said.push(await say(served, '127.1.22.2', line));
        }
        await sleep(2500);
        await put(served, '127.1.22.3');
        for (const { socket } of said) socket.destroy();
        return said.length;
      }),
  },
  {
    name: '150 slow connections keep no client from serve',
    position: 'any host',
    unit: 'connections',
    run: () =>
      withServer('127.1.22.4', [], async (served) => {
        const sockets: Socket[] = [];
        let isOver = false;
        const keep = async (index: number): Promise<void> => {
          while (!isOver) {
            const { host, port } = served;
            const localAddress = `127.1.23.${(index % 15) + 1}`;
            const socket = connect({ host, port, localAddress });
            socket.on('error', () => {});
            sockets.push(socket);
            socket.write('{');
            await Promise.race([once(socket, 'close').catch(() => {}), sleep(4000)]);
            socket.destroy();
          }
        };
        const keeping = Array.from({ length: 150 }, (_, index) => keep(index));
        await sleep(1000);
        await put(served, '127.1.22.5');
        isOver = true;
        for (const socket of sockets) socket.destroy();
        await Promise.all(keeping);
        return sockets.length;
      }),
  },
  {
    name: 'serve replaces no hidden file, and none outside of its directory',
    position: 'any host',
    unit: 'requests',
    run: () =>
      withServer('127.1.22.6', [], async (served) => {
        await writeFile(`${served.directory}/.bashrc`, 'mine');
        const names = ['.bashrc', '.ssh', '.x', '../x', 'a/b', 'x\u009b2J', 'a\u202egpj.exe', '.'];
        for (const name of names) {
          const { socket, line } = await say(served, '127.1.22.7', requestLine({ name }));
          socket.destroy();
          assert.match(line, '"code":"EINVAL"', JSON.stringify(name));
        }
        const file = await served.space.file('.bashrc', 100);
        const where = `${served.host}:${served.port}`;
        const ended = await served.space.run('put', file, where, '--bind', '127.1.22.7');
        assert.is(ended.code, 1);
        assert.equal(await readdir(served.directory), ['.bashrc']);
        assert.is(await readFile(`${served.directory}/.bashrc`, 'utf8'), 'mine');
        await put(served, '127.1.22.7');
        assert.is((await stat(`${served.directory}/honest`)).mode & 0o777, 0o600);
        return names.length + 1;
      }),
  },
  {
    name: '400 names that nothing follows leave no file with serve',
    position: 'any host',
    unit: 'requests',
    run: () =>
      withServer('127.1.22.8', [], async (served) => {
        for (let index = 0; index < 400; index++) {
          const name = `name-${index}`;
          const { socket } = await say(served, '127.1.22.9', requestLine({ name }));
          socket.destroy();
          await once(socket, 'close').catch(() => {});
        }
        await sleep(1000);
        assert.equal((await readdir(served.directory)).slice(0, 5), []);
        await put(served, '127.1.22.9');
        return 400;
      }),
  },
  {
    name: 'files of one client fill the quota of serve, and no more',
    position: 'any host',
    unit: 'files',
    run: () =>
      withServer('127.1.22.10', ['--quota', '1M'], async (served) => {
        const where = `${served.host}:${served.port}`;
        const codes = [];
        for (let index = 0; index < 5; index++) {
          const file = await served.space.file(`big-${index}`, 300_000);
          codes.push((await served.space.run('put', file, where, '--bind', '127.1.22.11')).code);
        }
        assert.equal(codes, [0, 0, 0, 1, 1]);
        return codes.length;
      }),
  },
  {
    name: 'serve at an address of the network takes nothing without its key, nor a replayed proof',
    position: 'any host',
    unit: 'requests',
    async run() {
      const host = await outgoing();
      return withServer(host, [], async (served) => {
        const { space, server, port } = served;
        const [, token] = await server.printed('stdout', /--token (\S+)/, 3000);
        const file = await space.file('honest', 1000);
        const without = await space.run('put', file, `${host}:${port}`, '--local-port', 0);
        assert.match(without.stderr, 'wants its key');
        const wrong = await space.run('put', file, `${host}:${port}`, '--token', 'x'.repeat(24));
        assert.match(wrong.stderr, 'another key');
        assert.match((await say(served, host, requestLine())).line, '"code":"EACCES"');
        // The proof of another connection, with the same nonce of the client.
        const heard: string[] = [];
        const spy = await relay(served, heard);
        const through = space.run('put', file, `${host}:${spy.port}`, '--token', token!);
        await through;
        spy.close();
        const [hello, request] = heard.filter((line) => line !== '');
        assert.ok(hello!.includes('"nonce"') && /^[0-9a-f]{64} /.test(request!), 'two lines');
        const replay = await say(served, host, `${hello}\n`);
        replay.socket.removeAllListeners('data');
        const answer = once(replay.socket, 'data');
        replay.socket.write(`${request}\n`);
        assert.match(String((await answer)[0]), 'the client did not prove the key');
        assert.equal(await readdir(served.directory), []);
        await put(served, host, '--token', token!);
        return 4;
      });
    },
  },
];

/** Reads along on a connection to the server, and loses what it answers to the request. */
async function relay(
  { host, port }: Served,
  heard: string[],
): Promise<{ port: number; close: () => void }> {
  const { createServer } = await import('node:net');
  const server = createServer((client) => {
    const onward = connect({ host, port });
    client.on('error', () => {});
    onward.on('error', () => {});
    client.on('data', (data) => {
      heard.push(...String(data).split('\n'));
      // The proof is overheard, and its connection cut.
      if (/^[0-9a-f]{64} /.test(String(data))) {
        onward.destroy();
        client.destroy();
      } else onward.write(data);
    });
    onward.on('data', (data) => client.write(data));
  });
  server.listen({ host, port: 0, exclusive: true });
  await once(server, 'listening');
  return { port: (server.address() as { port: number }).port, close: () => server.close() };
}
