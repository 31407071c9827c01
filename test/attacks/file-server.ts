/** Attacks on `verbena serve`, as a process. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdir, readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import { openDevice } from '../../host/index.js';
import { Workspace, type Program } from '../support/processes.js';
import { PutClient, request } from '../support/put-client.js';
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
        const clients: PutClient[] = [];
        for (let index = 0; index < 8; index++) {
          const client = await PutClient.open(served, '127.1.22.2');
          assert.is(await client.answer(request({ name: `silent-${index}` }, index)), 'READY');
          clients.push(client);
        }
        await sleep(2500);
        await put(served, '127.1.22.3');
        for (const client of clients) await client.close();
        return clients.length;
      }),
  },
  {
    name: '300 connections without a request keep no client from serve',
    position: 'any host',
    unit: 'connections',
    run: () =>
      withServer('127.1.22.4', [], async (served) => {
        const clients: PutClient[] = [];
        const devices = [];
        // A source may have 16 of them.
        for (let index = 0; index < 20; index++) {
          const context = await openDevice({ address: `127.1.23.${index + 1}`, port: 0 });
          devices.push(context);
          for (let count = 0; count < 15; count++) {
            clients.push(await PutClient.open(served, context));
          }
        }
        await put(served, '127.1.22.5');
        for (const client of clients) await client.close();
        for (const context of devices) await context.close();
        return clients.length;
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
          const client = await PutClient.open(served, '127.1.22.7');
          assert.match(await client.answer(request({ name })), /^EINVAL /, JSON.stringify(name));
          await client.close();
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
        const context = await openDevice({ address: '127.1.22.9', port: 0 });
        for (let index = 0; index < 400; index++) {
          const client = await PutClient.open(served, context);
          await client.answer(request({ name: `name-${index}` }));
          await client.close();
        }
        await context.close();
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
    name: 'serve at an address of the network takes nothing without its key',
    position: 'any host',
    unit: 'requests',
    async run() {
      const host = await outgoing();
      return withServer(host, [], async (served) => {
        const { space, server, port } = served;
        const [, token] = await server.printed('stdout', /--token (\S+)/, 3000);
        const file = await space.file('honest', 1000);
        const without = await space.run('put', file, `${host}:${port}`, '--local-port', 0);
        assert.match(without.stderr, 'wants a pre-shared key');
        const wrong = await space.run('put', file, `${host}:${port}`, '--token', 'x'.repeat(24));
        assert.match(wrong.stderr, 'does not have the first key');
        const refused = await PutClient.open(served, host).catch((error: Error) => error);
        assert.match(String(refused), '(EACCES)');
        assert.equal(await readdir(served.directory), []);
        await put(served, host, '--token', token!);
        return 3;
      });
    },
  },
];
