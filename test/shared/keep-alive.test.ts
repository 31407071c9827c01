/** Idle connections with a killed or stopped peer: real processes, the real clock. */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { connect, listen, openDevice, type RdmaConnection } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';

/** A busy machine may run a process only after some hundred milliseconds. */
const LIMIT_MILLIS = 800;
const SERVICE = 7021;
/** Tolerance for the scheduler of a busy machine; below the keep-alive of 20 s that is replaced. */
const SLACK_MILLIS = 10_000;

/** A process with a device of its own at `address`, and a function that ends it. */
async function withMember(address: string, work: (member: Member) => Promise<void>): Promise<void> {
  const member = await Member.open({ name: freshName(), address });
  try {
    await work(member);
  } finally {
    member.kill('SIGKILL');
    await member.ended;
  }
}

/** A server here, and a connected, idle client in another process. */
async function withClient(
  [address, from]: readonly [string, string],
  keepAliveMillis: number,
  work: (client: Member, connection: RdmaConnection) => Promise<void>,
): Promise<void> {
  const context = await openDevice({ address, port: 0 });
  try {
    const listener = await listen({ address, port: SERVICE }, { context });
    const first = listener.connections({ keepAliveMillis }).next();
    await withMember(from, async (client) => {
      await client.run(
        async ({ verbena, context: own }, target, udpPort) => {
          const options = { context: own, udpPort, keepAliveMillis: 0 };
          await verbena.connect(target, options);
        },
        { address, port: SERVICE },
        context.local.port,
      );
      const { value } = await first;
      await work(client, value as RdmaConnection);
    });
  } finally {
    await context.close();
  }
}

/** Milliseconds until the connection ends; Infinity: not within `millis`. */
async function endOf({ disconnected }: RdmaConnection, millis: number): Promise<number> {
  const began = performance.now();
  const over = disconnected.then(() => performance.now() - began);
  return Promise.race([over, sleep(millis, Infinity, { ref: false })]);
}

test('the server detects the death of an idle client', () =>
  withClient(['127.1.31.1', '127.1.31.2'], LIMIT_MILLIS, async (client, connection) => {
    assert.is(await endOf(connection, 3 * LIMIT_MILLIS), Infinity, 'an idle client is connected');
    connection.qp.postRecv({ wrId: 5n, sgList: [] });
    client.kill();
    await client.ended;
    const taken = await endOf(connection, LIMIT_MILLIS + SLACK_MILLIS);
    assert.ok(taken > LIMIT_MILLIS / 2 && taken < Infinity, `over after ${taken} ms`);
    const [flushed] = connection.recvCq.poll(1);
    assert.is(flushed?.wrId, 5n, 'its receive is flushed');
  }));

test('an idle client detects the death of its server', () =>
  withMember('127.1.31.3', async (server) => {
    await server.run(
      async ({ verbena, context }, address, port) => {
        const listener = await verbena.listen({ address, port }, { context });
        void listener.connections({ keepAliveMillis: 0 }).next();
      },
      '127.1.31.3',
      SERVICE,
    );
    const context = await openDevice({ address: '127.1.31.4', port: 0 });
    try {
      const target = { address: '127.1.31.3', port: SERVICE };
      const connection = await connect(target, { context, keepAliveMillis: LIMIT_MILLIS });
      assert.is(await endOf(connection, 2 * LIMIT_MILLIS), Infinity);
      server.kill();
      await server.ended;
      const taken = await endOf(connection, LIMIT_MILLIS + SLACK_MILLIS);
      assert.ok(taken < Infinity, `over after ${taken} ms`);
    } finally {
      await context.close();
    }
  }));

test('a peer that is stopped for less than the limit stays connected', () =>
  withClient(['127.1.31.5', '127.1.31.6'], 4 * LIMIT_MILLIS, async (client, connection) => {
    client.kill('SIGSTOP');
    const stopped = await endOf(connection, 2 * LIMIT_MILLIS);
    client.kill('SIGCONT');
    assert.is(stopped, Infinity);
    assert.is(await endOf(connection, 4 * LIMIT_MILLIS), Infinity);
  }));

test('with keepAliveMillis 0 no probe is sent, and a stopped peer stays connected', () =>
  withClient(['127.1.31.7', '127.1.31.8'], 0, async (client, connection) => {
    const { sentPkts } = connection.context.counters();
    client.kill('SIGSTOP');
    const stopped = await endOf(connection, 3 * LIMIT_MILLIS);
    client.kill('SIGCONT');
    assert.is(stopped, Infinity);
    assert.is(connection.context.counters().sentPkts, sentPkts, 'sent packets');
  }));

test('a peer with an event loop blocked for less than the limit stays connected', () =>
  withClient(['127.1.31.9', '127.1.31.10'], 4 * LIMIT_MILLIS, async (client, connection) => {
    const busy = client.run((_, millis) => {
      for (const end = performance.now() + millis; performance.now() < end;);
    }, 2 * LIMIT_MILLIS);
    assert.is(await endOf(connection, 6 * LIMIT_MILLIS), Infinity);
    await busy;
  }));

test.run();
