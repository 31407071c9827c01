/**
 * Devices, nodes and sockets of `node:cluster` workers: sockets that the host creates belong to the
 * worker's process. This process is the primary; it sees every address that a worker delegates.
 */
import cluster from 'node:cluster';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { rds, type Context } from '../../host/index.js';
import type { Link } from '../../host/link/link.js';
import { askNodes } from '../../host/rds/info-server.js';
import { Member, freshName, type MemberWorld } from '../support/member.js';
import { cliPath, freePort } from '../support/processes.js';
import { longOnly } from '../support/sample.js';
import { until } from '../support/until.js';

const longTest = longOnly(test);
const COUNT = 50;
const WAIT_MILLIS = 30_000;

async function withWorkers(count: number, work: (...workers: Member[]) => Promise<void>) {
  const started = Array.from({ length: count }, () => Member.startWorker());
  const workers = await Promise.all(started);
  try {
    await work(...workers);
  } finally {
    for (const worker of workers) worker.kill();
    await Promise.all(workers.map(({ ended }) => ended));
  }
}

/** State of the functions below in a worker. */
interface Kept {
  link: Link;
  sockets: Socket[];
  heard: number[];
  socket: rds.RdsSocket;
}
type There = Omit<MemberWorld, 'kept'> & { readonly kept: unknown };

test('a link of a worker has a socket of its own, and receives its packets', () =>
  withWorkers(1, async (worker) => {
    const port = await worker.run(async ({ kept, load }: There) => {
      const own = kept as Kept;
      const { UdpLink } = (await load('build/host/link/udp/udp.js')) as {
        UdpLink: new (options: object) => Link;
      };
      own.heard = [0];
      own.link = new UdpLink({ address: '127.0.0.1', port: 0 });
      const packet = (): void => void own.heard[0]!++;
      return (await own.link.open({ packet, flush() {}, failed() {} })).local.port;
    });
    const socket = createSocket('udp4');
    for (let index = 0; index < COUNT; index++) socket.send('datagram', port, '127.0.0.1');
    const heard = (): Promise<number> => worker.run(({ kept }: There) => (kept as Kept).heard[0]!);
    await until(async () => (await heard()) === COUNT, WAIT_MILLIS, `${COUNT} packets at the link`);
    socket.close();
    await worker.run(({ kept }: There) => (kept as Kept).link.close());
    assert.is(worker.listensOfPrimary, 0);
  }));

for (const progress of ['inline', 'thread'] as const) {
  test(`a device of a worker, ${progress}, delegates nothing to the primary`, () =>
    withWorkers(1, async (worker) => {
      await worker.run(
        async ({ verbena }, wanted) => {
          const context = await verbena.openDevice({ address: '127.0.0.1', port: 0, ...wanted });
          await context.close();
        },
        { progress },
      );
      assert.is(worker.listensOfPrimary, 0);
    }));
}

/** Binds a socket of `verbena/dgram` as an application does, and counts received datagrams. */
async function bindSocket({ kept, load }: There, exclusive = false): Promise<number> {
  const own = kept as Kept;
  const dgram = (await load('build/host/dgram/index.js')) as typeof import('node:dgram');
  const socket = dgram.createSocket('udp4');
  own.sockets ??= [];
  own.heard ??= [];
  const index = own.sockets.push(socket) - 1;
  own.heard[index] = 0;
  socket.on('message', () => void own.heard[index]!++);
  const place = { port: 0, address: '127.0.0.1', exclusive };
  await new Promise<void>((resolve) => socket.bind(place, resolve));
  return socket.address().port;
}

function sendFrom(there: There, index: number, address: string, port: number, count: number) {
  const { sockets } = there.kept as Kept;
  for (let sent = 0; sent < count; sent++) sockets[index]!.send('mine', port, address);
}

test("the offload of workers leaves the application's own datagrams to it", async () => {
  const peer = createSocket('udp4');
  // A socket on the port of nodes that never answers: a query to it stays for five seconds.
  const silent = createSocket('udp4');
  try {
    peer.bind({ port: 0, address: '127.0.0.1', exclusive: true });
    silent.bind({ port: 4791, address: '127.0.48.3', exclusive: true });
    await Promise.all([once(peer, 'listening'), once(silent, 'listening')]);
    let arrived = 0;
    peer.on('message', (text) => void (arrived += String(text) === 'mine' ? 1 : 0));
    const { port } = peer.address();
    await withWorkers(2, async (one, other) => {
      // Sockets that workers share have UDP only; of others the offload asks the peer.
      await one.run(bindSocket);
      await one.run(bindSocket, true);
      const asked = once(silent, 'message');
      await one.run(sendFrom, 1, '127.0.48.3', 9, 1);
      await asked;
      await other.run(bindSocket);
      const second = await other.run(bindSocket);
      await other.run(sendFrom, 1, '127.0.0.1', port, COUNT);
      await until(() => arrived === COUNT, WAIT_MILLIS, `${COUNT} datagrams of the worker`);
      for (let index = 0; index < COUNT; index++) peer.send('back', second, '127.0.0.1');
      const heard = () => other.run(({ kept }: There) => (kept as Kept).heard[1]!);
      await until(
        async () => (await heard()) === COUNT,
        WAIT_MILLIS,
        `${COUNT} datagrams at the worker`,
      );
      // One for each socket that the application has bound for all workers.
      assert.equal([one.listensOfPrimary, other.listensOfPrimary], [1, 2]);
    });
  } finally {
    peer.close();
    silent.close();
  }
});

test('a node in a worker answers queries itself, until the worker ends', async () => {
  const former = process.env['XDG_RUNTIME_DIR'];
  const folder = mkdtempSync(join(tmpdir(), 'verbena-cluster-'));
  process.env['XDG_RUNTIME_DIR'] = folder;
  try {
    await withWorkers(2, async (one, other) => {
      for (const [index, worker] of [one, other].entries()) {
        await worker.run(
          async ({ verbena, load }: There, address: string) => {
            const context = await verbena.openDevice({ address, port: 0 });
            const { publishNode } = (await load('build/host/rds/info-server.js')) as {
              publishNode: (node: rds.RdsNode) => void;
            };
            publishNode(verbena.rds.RdsNode.of(context));
          },
          `127.0.47.${index + 1}`,
        );
      }
      await until(
        async () => (await askNodes('info')).length === 2,
        WAIT_MILLIS,
        'two nodes that answer',
      );
      one.kill();
      await one.ended;
      assert.equal(
        (await askNodes('info')).map(({ node }) => node.split(':')[0]),
        ['127.0.47.2'],
      );
      assert.equal([one.listensOfPrimary, other.listensOfPrimary], [0, 0]);
    });
  } finally {
    if (former === undefined) delete process.env['XDG_RUNTIME_DIR'];
    else process.env['XDG_RUNTIME_DIR'] = former;
    rmSync(folder, { recursive: true });
  }
});

/** Opens the shared device, and a socket on its node that collects received messages. */
async function enter({ kept, verbena }: There, options: object, port: number): Promise<void> {
  const own = kept as Kept;
  const context: Context = await verbena.openDevice(options);
  const { rds: calls } = verbena;
  own.socket = calls.socket(calls.AF_INET_OFFLOAD, calls.SOCK_DGRAM, 0, context);
  own.socket.bind({ port });
  own.heard = [];
  void (async () => {
    for (let one = await own.socket.recv(); one; one = await own.socket.recv()) {
      own.heard.push(Buffer.from(one.data).readUInt32BE());
    }
  })();
}

longTest('workers share a node, and after a kill another worker takes over its transport', () =>
  withWorkers(3, async (...workers) => {
    const address = '127.1.48.1';
    const options = { name: freshName(), address, memoryBytes: 96 * 2 ** 20 };
    for (const [index, worker] of workers.entries()) await worker.run(enter, options, index + 1);
    const [first, second, third] = workers as [Member, Member, Member];
    const send = (worker: Member, number: number): Promise<void> =>
      worker.run(
        async ({ kept }: There, to, value) => {
          const message = Buffer.alloc(100);
          message.writeUInt32BE(value);
          await (kept as Kept).socket.send(to, message);
        },
        { address, port: 3 },
        number,
      );
    for (let number = 0; number < 20; number++) await send(number % 2 ? first : second, number);
    const heard = () => third.run(({ kept }: There) => (kept as Kept).heard.length);
    await until(async () => (await heard()) === 20, WAIT_MILLIS, 'twenty messages');
    first.kill();
    await first.ended;
    for (let number = 20; number < 40; number++) await send(second, number);
    await until(async () => (await heard()) === 40, WAIT_MILLIS, 'forty messages');
    for (const worker of workers) assert.is(worker.listensOfPrimary, 0);
  }),
);

test("the demo's relay and server in a worker belong to the worker", () =>
  withWorkers(1, async (worker) => {
    const port = await freePort();
    await worker.run(async ({ load }: There, at) => {
      const { Relay } = (await load('build/host/demo/relay.js')) as {
        Relay: { open(address: string): Promise<{ close(): void }> };
      };
      const relay = await Relay.open('127.0.0.1');
      relay.close();
      const { DemoServer } = (await load('build/host/demo/server.js')) as {
        DemoServer: { open(options: object): Promise<{ close(): Promise<void> }> };
      };
      const server = await DemoServer.open({ port: at, bind: '127.0.0.1' });
      await server.close();
    }, port);
    assert.is(worker.listensOfPrimary, 0);
  }));

for (const words of [
  ['serve', '--bind', '127.0.0.1', '--port', '0', '--dir'],
  ['pingpong', '--bind', '127.0.0.1', '--port'],
  ['rds-stress', '-r', '127.0.0.1', '-p'],
]) {
  test(`verbena ${words[0]} in a worker listens by itself`, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'verbena-cluster-'));
    const last = words.at(-1) === '--dir' ? folder : String(await freePort());
    cluster.setupPrimary({ exec: cliPath, args: [...words, last], execArgv: [], silent: true });
    const { process: child } = cluster.fork();
    try {
      let listens = 0;
      let printed = '';
      child.on('internalMessage', ({ act }: { act?: string }) => {
        if (act === 'queryServer') listens++;
      });
      for (const stream of [child.stdout!, child.stderr!]) {
        stream.on('data', (text: Buffer) => (printed += text.toString()));
      }
      await until(
        () => /waiting|serving|listening|local address/i.test(printed) || child.exitCode !== null,
        WAIT_MILLIS,
        `words: ${printed}`,
      );
      assert.is(child.exitCode, null, printed);
      assert.is(listens, 0, printed);
    } finally {
      child.kill('SIGKILL');
      await once(child, 'exit');
      cluster.setupPrimary({ silent: false });
      rmSync(folder, { recursive: true });
    }
  });
}

test.run();
