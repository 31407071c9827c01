/** Processes that share a node of reliable datagrams whose connections are authenticated. */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { rds, type Context } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';
import { checkTags, openTapped } from '../support/tags.js';

const [ADDRESS, PEER] = ['127.0.116.8', '127.0.116.9'];
const PORT = 4000;
const KEY = 7;
const OTHER_KEY = 8;
const LIMIT_MILLIS = 30_000;
const MEMORY_BYTES = 96 * 2 ** 20;

type There = { kept: unknown; context: Context; verbena: typeof import('../../host/index.js') };

/** A bound socket of a node with that key (0: none); or the code of what is thrown. */
function open({ kept, context, verbena }: There, port: number, key: number, encrypt = false) {
  const { rds: calls } = verbena;
  try {
    const auth = key === 0 ? {} : { auth: { psk: new Uint8Array(32).fill(key), encrypt } };
    calls.RdsNode.of(context, { heartbeatMicros: 1_000_000, ...auth });
  } catch (error) {
    return (error as { code: string }).code;
  }
  const socket = calls.socket(calls.AF_INET_OFFLOAD, calls.SOCK_DGRAM, 0, context);
  socket.bind({ port });
  (kept as { socket: rds.RdsSocket }).socket = socket;
  return socket.node.isOwner ? 'carries' : 'follows';
}

/** Undefined: it was sent; otherwise the error. */
async function send({ kept }: { kept: unknown }, to: rds.RdsAddress): Promise<string | undefined> {
  const { socket } = kept as { socket: rds.RdsSocket };
  return socket.send(to, Buffer.from('hello')).then(
    () => undefined,
    (error: { code: string; message: string }) => `${error.code} ${error.message}`,
  );
}

test('all processes have the key or none does; a denied process gets the reason; the next owner goes on', async () => {
  const { context: peer, sent } = await openTapped(PEER, { memoryBytes: MEMORY_BYTES });
  const members = await Promise.all(Array.from({ length: 3 }, () => Member.start()));
  const [transport, remoteProcess, stranger] = members as [Member, Member, Member];
  try {
    const options = { name: freshName(), address: ADDRESS, memoryBytes: MEMORY_BYTES };
    for (const member of members) {
      await member.run(async (world, wanted) => {
        world.context = await world.verbena.openDevice(wanted);
      }, options);
    }
    assert.is(await transport.run(open, 1, KEY), 'carries');
    assert.is(await stranger.run(open, 3, 0), 'EACCES');
    assert.is(await stranger.run(open, 3, KEY, true), 'EACCES');
    assert.is(await remoteProcess.run(open, 2, KEY), 'follows');
    // It was refused, and may come in with the key.
    assert.is(await stranger.run(open, 3, KEY), 'follows');

    const node = rds.RdsNode.of(peer, { auth: { psk: new Uint8Array(32).fill(OTHER_KEY) } });
    const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, peer);
    socket.bind({ port: PORT });
    const to = socket.getsockname()!;
    assert.match(
      (await remoteProcess.run(send, to)) ?? 'sent',
      /^EACCES .*the same pre-shared key/,
    );
    node.setAuth({ psk: new Uint8Array(32).fill(KEY) });
    await arrives(remoteProcess, to, socket);
    transport.kill();
    await transport.ended;
    await arrives(remoteProcess, to, socket);
    checkTags(sent);
  } finally {
    for (const member of members) member.kill();
    await Promise.all(members.map(({ ended }) => ended));
    await peer.close();
  }
});

/** Sends until one arrives; what is not sent is denied, or has no path yet. */
async function arrives(from: Member, to: rds.RdsAddress, socket: rds.RdsSocket): Promise<void> {
  const end = performance.now() + LIMIT_MILLIS;
  for (
    let error = await from.run(send, to);
    error !== undefined;
    error = await from.run(send, to)
  ) {
    assert.ok(performance.now() < end, error);
    assert.match(error, /^(EACCES|EFAULT) /);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const late = sleep(LIMIT_MILLIS, undefined, { ref: false });
  const message = await Promise.race([socket.recv(), late]);
  assert.ok(message, `a message was sent, and did not arrive within ${LIMIT_MILLIS / 1000} s`);
  assert.is(Buffer.from(message.data).toString(), 'hello');
}

test.run();
