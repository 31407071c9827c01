/** Ranks of launchers, and the few words of Redis. */
import { createServer, type Socket } from 'node:net';
import { once } from 'node:events';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { clean, jobOf } from '../../../host/shmem/job.js';
import { RedisClient } from '../../../host/shmem/redis.js';

test('rank, size and job come from the environment of each launcher', () => {
  const own = {
    VERBENA_SHMEM_RANK: '1',
    VERBENA_SHMEM_SIZE: '4',
    VERBENA_SHMEM_LOCAL_SIZE: '4',
    VERBENA_SHMEM_JOB: 'a/b',
  };
  assert.equal(jobOf(own), { id: 'a/b', rank: 1, size: 4, localSize: 4 });
  const mpi = {
    OMPI_COMM_WORLD_RANK: '3',
    OMPI_COMM_WORLD_SIZE: '8',
    OMPI_COMM_WORLD_LOCAL_SIZE: '4',
    PMIX_NAMESPACE: '12345',
    SLURM_PROCID: '7',
  };
  assert.equal(jobOf(mpi), { id: '12345', rank: 3, size: 8, localSize: 4 });
  const slurm = { SLURM_PROCID: '2', SLURM_NTASKS: '3', SLURM_JOB_ID: '9', SLURM_STEP_ID: '0' };
  assert.equal(jobOf(slurm), { id: '9.0', rank: 2, size: 3, localSize: undefined });
  const pmi = { PMI_RANK: '0', PMI_SIZE: '2', PMI_ID: '5' };
  assert.equal(jobOf(pmi), { id: '5', rank: 0, size: 2, localSize: undefined });
});

test('each job has a name of its own, which a device can have', () => {
  const long = 'x'.repeat(200);
  const ids = ['a-b', 'a/b', 'a b', `${long}1`, `${long}2`, `1${long}`, 'prterun-host-7@1', ''];
  const names = ids.map(clean);
  assert.is(new Set(names).size, ids.length);
  for (const name of names.slice(0, -1)) assert.match(name, /^[A-Za-z0-9._-]{1,64}$/);
  assert.is(names[0], 'a-b');
});

test('an environment without a launcher, or with wrong numbers, is refused', () => {
  assert.throws(() => jobOf({}), /no launcher started this process: use "verbena shmem run/);
  assert.throws(
    () => jobOf({ PMI_RANK: '2', PMI_SIZE: '2' }),
    /PMI_SIZE: must be above the rank 2/,
  );
  assert.throws(() => jobOf({ PMI_RANK: 'x', PMI_SIZE: '2' }), /PMI_RANK: must be a whole number/);
});

/** A server that sends these bytes for each request, one piece at a time. */
async function withServer(
  pieces: readonly string[],
  use: (client: RedisClient) => Promise<void>,
  timeoutMillis = 5000,
): Promise<void> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('data', async () => {
      for (const piece of pieces) {
        socket.write(piece);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    });
  });
  server.listen({ host: '127.0.0.1', port: 0, exclusive: true });
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const client = await RedisClient.open(`redis://127.0.0.1:${port}`, timeoutMillis);
  try {
    await use(client);
  } finally {
    client.close();
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

const failure = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'resolved',
    (error: Error) => error.message,
  );

test('replies arrive in pieces, and in order', async () => {
  await withServer(['+O', 'K\r\n$5\r\nhel', 'lo\r\n$-1', '\r\n:7\r\n'], async (client) => {
    const replies = ['SET', 'GET', 'GET', 'INCR'].map((word) => client.command(word, 'key'));
    assert.equal(await Promise.all(replies), ['OK', 'hello', undefined, '7']);
  });
});

test('an error of the server, rubbish and a closed connection are refusals', async () => {
  await withServer(['-NOAUTH no\r\n'], async (client) => {
    assert.match(await failure(client.command('GET', 'a')), /the Redis server: NOAUTH no/);
  });
  await withServer(['HTTP/1.1 400\r\n'], async (client) => {
    assert.match(await failure(client.command('GET', 'a')), /which is no reply/);
    assert.match(await failure(client.command('GET', 'a')), /ECONNRESET/);
  });
  await withServer(['$99999999\r\n'], async (client) => {
    assert.match(await failure(client.command('GET', 'a')), /a reply of 99999999 bytes/);
  });
  const silent = async (client: RedisClient): Promise<void> => {
    assert.match(await failure(client.command('GET', 'a')), /no reply came in 50 ms/);
  };
  await withServer([], silent, 50);
  assert.match(await failure(RedisClient.open('http://a', 10)), /must begin with redis:/);
  assert.match(await failure(RedisClient.open('redis://127.0.0.1:1', 500)), /ECONNREFUSED/);
});

test.run();
