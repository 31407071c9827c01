/** Attacks on limits: a hostile peer, or hostile host, takes as much as it gets. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as assert from 'uvu/assert';
import {
  ConnectError,
  QpType,
  RejectReason,
  connect,
  openDevice,
  type RdmaConnection,
} from '../../host/index.js';
import { freshName, Member } from '../support/member.js';
import { root } from '../support/paths.js';
import type { Attack } from './attack.js';

const SERVICE = 7477;
const SHARE = 48;
const DESCRIPTORS = 192;

/** Runs a command of `verbena` that may open few files: `ready` in its output, then `work`. */
async function withFewDescriptors(
  args: readonly string[],
  ready: RegExp,
  work: (match: RegExpExecArray) => Promise<void>,
): Promise<void> {
  const command = [`--nofile=${DESCRIPTORS}`, process.execPath, 'build/verbena.js', ...args];
  const child = spawn('prlimit', command, {
    cwd: fileURLToPath(root),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => (printed += text));
  }
  try {
    let match = ready.exec(printed);
    for (let turn = 0; turn < 300 && !match; turn++) {
      await sleep(50);
      match = ready.exec(printed);
    }
    assert.ok(match, printed);
    await work(match!);
    assert.is(child.exitCode, null, `it ended: ${printed}`);
  } finally {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }
}

/** The first line of the answer to a GET, or ''. */
async function visit(host: string, port: number, from: string): Promise<string> {
  const socket = connectTcp({ host, port, localAddress: from });
  let heard = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => (heard += chunk));
  socket.on('error', () => {});
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}:${port}\r\nConnection: close\r\n\r\n`);
  await Promise.race([once(socket, 'close'), sleep(3000)]);
  socket.destroy();
  return heard.split('\r\n')[0]!;
}

export const EXHAUSTION_ATTACKS: readonly Attack[] = [
  {
    name: 'a peer that takes all connections it gets leaves some to other addresses',
    position: 'peer',
    unit: 'connections',
    async run() {
      const address = '127.1.31.1';
      const options = { queuePairsMax: 64, completionQueuesMax: 128 };
      const server = await Member.open({ name: freshName(), address, ...options });
      const hostile = await openDevice({ address: '127.1.31.2', port: 0 });
      const honest = await openDevice({ address: '127.1.31.3', port: 0 });
      try {
        await server.run(
          async ({ verbena, context }, at, port, share) => {
            const listener = await verbena.listen({ address: at, port }, { context });
            void (async () => {
              const how = { connectionsPerSource: share };
              for await (const connection of listener.connections(how)) {
                void connection.disconnected.then(() => connection.close());
              }
            })();
          },
          address,
          SERVICE,
          SHARE,
        );
        const target = { address, port: SERVICE };
        const held: RdmaConnection[] = [];
        let [asked, refused] = [0, 0];
        for (; asked < 4 * SHARE; asked++) {
          try {
            held.push(await connect(target, { context: hostile }));
          } catch (error) {
            assert.is((error as ConnectError).reason, RejectReason.NO_RESOURCES);
            refused++;
          }
        }
        assert.is(held.length, SHARE, 'connections of the attacker');
        assert.is(refused, asked - SHARE);
        for (let turn = 0; turn < 4; turn++) {
          await (await connect(target, { context: honest })).close();
        }
        return asked;
      } finally {
        await hostile.close();
        await honest.close();
        server.kill();
        await server.ended;
      }
    },
  },
  {
    name: 'a demo with 192 descriptors outlives 300 connections, and serves when they are gone',
    position: 'any host',
    unit: 'connections',
    async run() {
      const count = 300;
      const host = '127.1.31.4';
      const args = ['demo', '--bind', host, '--port', '0'];
      await withFewDescriptors(args, /open http:\S+:(\d+)\//, async (match) => {
        const port = Number(match[1]);
        const sockets: Socket[] = [];
        for (let index = 0; index < count; index++) {
          const localAddress = `127.1.31.${10 + (index % 40)}`;
          const socket = connectTcp({ host, port, localAddress });
          socket.on('error', () => {});
          sockets.push(socket);
        }
        await sleep(2000);
        for (const socket of sockets) socket.destroy();
        await sleep(1000);
        assert.match(await visit(host, port, '127.1.31.5'), /^HTTP\/1\.1 200 /);
      });
      return count;
    },
  },
  {
    name: 'a device whose every kind of object is taken refuses the next one, and serves its peers',
    position: 'peer',
    unit: 'objects',
    async run() {
      const address = '127.1.31.6';
      const server = await Member.open({
        ...{ name: freshName(), address, memoryBytes: 2 ** 24, localMemoryBytes: 2 ** 24 },
        ...{ regionsMax: 64, queuePairsMax: 32, completionQueuesMax: 32, addressHandlesMax: 32 },
        ...{ protectionDomainsMax: 16, sharedReceiveQueuesMax: 16 },
      });
      const client = await openDevice({ address: '127.1.31.7', port: 0 });
      try {
        const taken = await server.run(
          async ({ verbena, context }, at, port, type) => {
            const listener = await verbena.listen({ address: at, port }, { context });
            void (async () => {
              for await (const connection of listener.connections()) {
                void connection.disconnected.then(() => connection.close());
              }
            })();
            const pd = context.allocPd();
            const memory = context.alloc(4096);
            const cq = context.createCq(16);
            const makers: (() => unknown)[] = [
              () => pd.regMr(memory, 1),
              () => pd.createQp({ qpType: type, sendCq: cq, recvCq: cq }),
              () => context.createCq(1),
              () => context.allocPd(),
              () => pd.createSrq({ maxWr: 1 }),
              () => pd.allocMw(verbena.MwType.TYPE_1),
              () => context.alloc(65536),
            ];
            const made: { dereg?(): void; destroy?(): void; dealloc?(): void }[] = [];
            for (const make of makers) {
              for (let left = 5000; ; left--) {
                if (left === 0) throw new Error(`no limit: ${String(make)}`);
                try {
                  made.push(make() as object);
                } catch (error) {
                  if ((error as { code?: string }).code !== 'ENOMEM') throw error;
                  break;
                }
              }
            }
            const count = made.length;
            for (const one of made.reverse()) {
              if (one instanceof Uint8Array) context.free(one);
              else if (one.dereg) one.dereg();
              else if (one.destroy) one.destroy();
              else one.dealloc!();
            }
            return count;
          },
          address,
          SERVICE,
          QpType.RC as number,
        );
        await (await connect({ address, port: SERVICE }, { context: client })).close();
        return taken;
      } finally {
        await client.close();
        server.kill();
        await server.ended;
      }
    },
  },
];
