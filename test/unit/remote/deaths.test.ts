/** Peers that die, stop or restart: the survivor detects it within seconds. */
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  RemoteError,
  UdpLink,
  connect,
  faultLink,
  openDevice,
  share,
  type RdmaUrl,
} from '../../../host/index.js';
import { Workspace, freePort, type Program } from '../../support/processes.js';
import { longOnly, sample } from '../../support/sample.js';

const test = suite('unit/remote/deaths');
const longTest = longOnly(test);
const ADDRESS = '127.0.142.1';
const PEER = fileURLToPath(new URL('../../support/remote-peer.js', import.meta.url));
/** Detection takes 3 s; the rest is for a busy machine. */
const LIMIT_MILLIS = 30_000;

function start(space: Workspace, ...words: string[]): Program {
  return space.startProcess(process.execPath, [PEER, ...words]);
}

async function serve(space: Workspace, ...words: string[]): Promise<readonly [Program, RdmaUrl]> {
  const server = start(space, 'share', ADDRESS, ...words);
  const [, url] = await server.printed('stdout', /url (\S+)/);
  return [server, url as RdmaUrl];
}

/** Each has processes of its own; they wait at the same time. */
const SIGNALS = ['SIGKILL', 'SIGSTOP'] as const;
const ENDS = [
  ['SIGKILL', 'idle'],
  ['SIGSTOP', 'busy'],
  ['SIGSTOP', 'idle'],
  ['SIGKILL', 'busy'],
] as const;

test('a client, idle or busy, detects the end of its server by SIGKILL and by SIGSTOP', () =>
  Workspace.use(async (space) => {
    const end = async (signal: NodeJS.Signals, how: string): Promise<void> => {
      const [server, url] = await serve(space);
      const client = start(space, 'connect', url, how);
      await client.printed('stdout', /connected/);
      await server.printed('stdout', /client connected/);
      server.kill(signal);
      await client.printed('stdout', /closed: .*(ECONNRESET|ETIMEDOUT)/, LIMIT_MILLIS);
      if (how === 'busy') await client.printed('stdout', /all 8 rejected/);
      assert.is((await client.ended).code, 0);
    };
    const ends = ENDS.slice(0, sample(2, ENDS.length));
    await Promise.all(ends.map(([signal, how]) => end(signal, how)));
  }));

longTest('close and destroy of a peer that is dead end within seconds', () =>
  Workspace.use(async (space) => {
    const end = async (verb: 'close' | 'destroy'): Promise<void> => {
      const [server, url] = await serve(space);
      const remote = await connect(url, { timeout: LIMIT_MILLIS, keepAliveMillis: 0 });
      server.kill('SIGSTOP');
      const begun = performance.now();
      await remote[verb]();
      const millis = performance.now() - begun;
      // 0.5 s for the goodbye, 1.25 s for the DREQ; the rest is for a busy machine.
      assert.ok(millis < 15_000, `${verb} took ${millis} ms`);
    };
    await Promise.all([end('close'), end('destroy')]);
  }),
);

test('a server detects the end of a client and serves the next one', () =>
  Workspace.use(async (space) => {
    const end = async (signal: NodeJS.Signals): Promise<void> => {
      const [server, url] = await serve(space);
      const client = start(space, 'connect', url, 'busy');
      await client.printed('stdout', /connected/);
      client.kill(signal);
      await server.printed('stdout', /client closed: ECONNRESET/, LIMIT_MILLIS);
      const remote = await connect(url, { timeout: LIMIT_MILLIS });
      await remote.memory['table']!.write(0, Uint8Array.of(1));
      await remote.close();
      await server.printed('stdout', /client closed: orderly/);
    };
    await Promise.all(SIGNALS.slice(0, sample(1, SIGNALS.length)).map(end));
  }));

test('calls of a server to a client that was killed reject', () =>
  Workspace.use(async (space) => {
    const server = await share(`rdma://${ADDRESS}:0`, { table: 65536 });
    const iterator = server[Symbol.asyncIterator]();
    const peer = start(space, 'connect', server.url, 'idle');
    const client = (await iterator.next()).value!;
    await peer.printed('stdout', /connected/);
    peer.kill('SIGKILL');
    const sent = client.send(new Uint8Array(100_000)).then(
      () => 'sent',
      (error: Error) => error.name,
    );
    assert.is(await sent, 'RemoteError');
    assert.is((await client.closed)?.name, 'RemoteError');
    await server.close();
  }));

test('a partition ends the connection on both sides, and all calls that wait', async () => {
  const keepAliveMillis = 1000;
  const server = await share(`rdma://${ADDRESS}:0`, { table: 65536 }, { keepAliveMillis });
  const link = faultLink(new UdpLink({ address: '127.0.142.2', port: 0 }), {});
  const context = await openDevice({ link });
  const remote = await connect(server.url, { context, keepAliveMillis, timeout: 20_000 });
  const [client] = server.clients;
  await remote.memory['table']!.write(0, Uint8Array.of(1));
  link.partition();
  const calls = [
    remote.send(new Uint8Array(300_000)),
    remote.memory['table']!.read(0, 65536),
    remote.memory['table']!.fetchAdd(0, 1n),
  ];
  const begin = performance.now();
  const ends = await Promise.allSettled(calls);
  for (const end of ends) {
    assert.is(end.status, 'rejected');
    const { reason } = end as PromiseRejectedResult;
    assert.instance(reason, RemoteError);
    assert.match((reason as Error).message, /the peer (does not answer|has ended)|ended first/);
  }
  assert.match(
    (await remote.closed)?.message ?? '',
    /the peer (does not answer|has ended)|ended first/,
  );
  // Its packets still arrive, but none of the client's.
  assert.instance(await client!.closed, RemoteError);
  assert.ok(performance.now() - begin < LIMIT_MILLIS, `${performance.now() - begin} ms`);
  await remote.close();
  await context.close();
  await server.close();
});

longTest('with reconnect a client finds a server that was killed and started again', () =>
  Workspace.use(async (space) => {
    const [port, udp] = [await freePort(ADDRESS), await freePort(ADDRESS)];
    const [server, url] = await serve(space, `${port}`, `${udp}`);
    const client = start(space, 'connect', url, 'reconnect');
    await client.printed('stdout', /connected/);
    server.kill('SIGKILL');
    await client.printed('stdout', /a call rejected/, LIMIT_MILLIS);
    const [next] = await serve(space, `${port}`, `${udp}`);
    await client.printed('stdout', /connected again/, 2 * LIMIT_MILLIS);
    await next.printed('stdout', /client connected/);
  }),
);

test.run();
