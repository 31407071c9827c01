/** DH-HMAC-CHAP between our initiator and our target: each queue, wrong secrets, limits. */
import * as assert from 'uvu/assert';
import {
  MisuseError,
  makeDhchapSecret,
  type ConnectNvmeOptions,
  type NvmeTargetDhchap,
} from '../../../host/index.js';
import { authenticateHost } from '../../../host/nvme/dhchap-host.js';
import { FailureLimit } from '../../../host/nvme/failure-limit.js';
import { parseDhchapSecret } from '../../../host/nvme/dhchap-secret.js';
import {
  DhchapFailure,
  buildFailure,
  buildNegotiate,
  buildReply,
} from '../../../host/nvme/dhchap-messages.js';
import { rawHost, type RawHost } from '../../support/nvme-authentication.js';
import { NQN, inNvmeWorld, rawQueue, type NvmeWorld } from '../../support/nvme-world.js';
import { expectRejected } from '../../support/refusal.js';
import { testsIn } from '../../support/tests-in.js';

const HOST_NQN = 'nqn.2026-01.dev.verbena:host';
const OTHER_NQN = 'nqn.2026-01.test:other';
const secret = makeDhchapSecret();
const controllerSecret = makeDhchapSecret('sha384');

function inWorld(
  work: (world: NvmeWorld) => Promise<void>,
  dhchap: Partial<NvmeTargetDhchap> = {},
): Promise<void> {
  const hosts = { [HOST_NQN]: { secret, controllerSecret } };
  return inNvmeWorld(
    {
      target: { dhchap: { hosts, ...dhchap } },
      host: { memoryBytes: 2 ** 28 },
    },
    work,
  );
}

const test = testsIn(inWorld);

async function works(world: NvmeWorld, options: Partial<ConnectNvmeOptions> = {}): Promise<void> {
  const volume = await world.connect({ dhchap: { secret }, ...options });
  const memory = world.host.alloc(4096);
  memory.fill(9);
  await volume.write(0, memory);
  memory.fill(0);
  await volume.read(0, memory);
  assert.ok(memory.every((byte) => byte === 9));
  await volume.close();
}

test('a host with the secret authenticates its admin queue and its I/O queue, one way and both', async (world) => {
  await works(world);
  await works(world, { dhchap: { secret, controllerSecret } });
  assert.is(world.target.stats.authenticated, 4);
  assert.is(world.target.stats.authenticationFailures, 0);
  const story = world.events.map(({ kind, qid }) => `${kind} ${qid}`);
  assert.equal(story.slice(0, 2), ['connected 0', 'connected 1']);
});

test('the target chooses hash and group; sha512 with ffdhe8192 fits its messages', () =>
  inWorld((world) => works(world), { hash: 'sha512', group: 'ffdhe8192' }));

test('a host without a secret, or with another one, is refused in a sentence', async (world) => {
  await expectRejected(world.connect(), 'EACCES', /asks .* for authentication: set dhchap/);
  const other = makeDhchapSecret();
  const wrong = { dhchap: { secret: other } };
  await expectRejected(world.connect(wrong), 'EACCES', /the controller refuses this host: FAILED/);
  assert.is(world.target.stats.authenticationFailures, 1);
  const { kind, hostNqn, reason } = world.events.find((event) => event.kind === 'refused')!;
  assert.equal([kind, hostNqn], ['refused', HOST_NQN]);
  assert.match(reason, 'the host does not have the secret');
  await works(world);
});

test('a host that the target does not know is refused at its Connect', async (world) => {
  const work = world.connect({ hostNqn: OTHER_NQN, dhchap: { secret } });
  await expectRejected(work, 'EACCES', /CONNECT_INVALID_HOST/);
  assert.match(world.events.at(-1)!.reason, `${OTHER_NQN} has no secret here`);
});

test('a target with another controller secret is refused by the host', async (world) => {
  const dhchap = { secret, controllerSecret: makeDhchapSecret() };
  await expectRejected(world.connect({ dhchap }), 'EACCES', /controller does not have its secret/);
  const { reason } = world.events.find(({ kind }) => kind === 'refused')!;
  assert.match(reason, 'the host refuses the controller: FAILED');
});

test('a target that does not ask is refused by a host with a secret, unless it is not required', () =>
  inNvmeWorld({}, async (world) => {
    await expectRejected(world.connect({ dhchap: { secret } }), 'EACCES', /does not ask/);
    await works(world, { dhchap: { secret, required: false } });
  }));

test('until a queue is authenticated each other command gets AUTHENTICATION_REQUIRED', async (world) => {
  const { ask, isAsked, send, receive, close } = await rawHost(world.host, HOST_NQN);
  assert.ok(isAsked);
  const before = async (): Promise<void> => {
    for (const name of ['PROPERTY_GET', 'PROPERTY_SET', 'IDENTIFY', 'KEEP_ALIVE'] as const) {
      assert.is((await ask(name, {})).status, 0x4191, name);
    }
  };
  await before();
  assert.is(await send(buildNegotiate(1)), 'SUCCESS');
  await before();
  assert.ok((await receive()) instanceof Uint8Array);
  await before();
  close();
});

/** Authenticates a raw queue, as our initiator does. */
function authenticate(host: RawHost, { qid = 0 } = {}): Promise<void> {
  const transport = {
    send: async (message: Uint8Array) => assert.is(await host.send(message), 'SUCCESS', `${qid}`),
    receive: async () => (await host.receive()) as Uint8Array,
  };
  const [own, sub] = [parseDhchapSecret(secret, 'secret'), NQN];
  const names = { hostNqn: HOST_NQN, subNqn: sub };
  return authenticateHost(transport, { ...names, secret: own, controllerSecret: undefined });
}

test('an I/O queue that is not authenticated does not take its number from one that is', async (world) => {
  const admin = await rawHost(world.host, HOST_NQN);
  await authenticate(admin);
  const enable = { attrib: 0, ofst: 0x14, value: 0x460001n };
  assert.is((await admin.ask('PROPERTY_SET', enable)).status, 0);
  assert.is((await admin.ask('SET_FEATURES', { fid: 7, value: 0 })).status, 0);
  const { cntlid } = admin;
  const hostile = await rawHost(world.host, HOST_NQN, { qid: 1, cntlid });
  assert.ok(hostile.isAsked);
  for (const name of ['READ', 'WRITE', 'FLUSH'] as const) {
    assert.is((await hostile.ask(name, { slba: 0n, nlb: 0 })).status, 0x4191, name);
  }
  const honest = await rawHost(world.host, HOST_NQN, { qid: 1, cntlid });
  await authenticate(honest, { qid: 1 });
  assert.is((await honest.ask('FLUSH', {})).status, 0x400b, 'namespace 0, but authenticated');
  assert.is((await hostile.ask('FLUSH', {})).status, 0x4191);
  await authenticate(hostile, { qid: 1 }).catch(() => {});
  assert.match(await hostile.ended, /disconnected/);
  assert.is((await honest.ask('FLUSH', {})).status, 0x400b);
  admin.close();
  assert.match(await honest.ended, /disconnected/);
});

test('messages of another protocol, without data, or too short to hold an answer are refused', async (world) => {
  const { send, receive, ask, close } = await rawHost(world.host, HOST_NQN);
  const message = buildNegotiate(1);
  const wrongs: readonly Readonly<Record<string, number>>[] = [
    { secp: 0xe8 },
    { spsp0: 0 },
    { spsp1: 2 },
    { length: 0 },
  ];
  for (const wrong of wrongs) {
    assert.is(await send(message, wrong), 'INVALID_FIELD', JSON.stringify(wrong));
  }
  assert.is(await send(new Uint8Array(1169)), 'INVALID_FIELD');
  assert.is(await send(message, { length: 80 }), 'DATA_SGL_LENGTH_INVALID');
  assert.is(await receive({ length: 1167 }), 'INVALID_FIELD');
  assert.is(await receive(), 'COMMAND_SEQUENCE_ERROR');
  const security = { secp: 0xe9, spsp0: 1, spsp1: 1, length: 4096 };
  assert.is((await ask('AUTHENTICATION_RECEIVE', security)).status, 0x4002);
  assert.is(await send(message), 'SUCCESS');
  assert.ok((await receive()) instanceof Uint8Array);
  close();
  const early = await rawQueue(world.host, 0);
  assert.is((await early.ask('AUTHENTICATION_RECEIVE', security)).status, 0x400c);
  early.queue.close('enough');
});

test('a failed authentication ends the queue after its FAILURE1, and after a FAILURE2', () =>
  inWorld(
    async (world) => {
      const wrong = await rawHost(world.host, HOST_NQN);
      await wrong.send(buildNegotiate(1));
      await wrong.receive();
      const value = new Uint8Array();
      const fields = { transaction: 1, sequence: 0, challenge: undefined, value };
      await wrong.send(buildReply({ ...fields, response: new Uint8Array(32) }));
      const failure = (await wrong.receive()) as Uint8Array;
      assert.equal([...failure.subarray(0, 8)], [0, 0xf1, 0, 0, 1, 0, 1, 1]);
      assert.match(await wrong.ended, /disconnected/);
      const leaving = await rawHost(world.host, HOST_NQN);
      await leaving.send(buildNegotiate(2));
      await leaving.receive();
      await leaving.send(buildFailure('FAILURE2', 2, DhchapFailure.FAILED));
      assert.match(await leaving.ended, /disconnected/);
      assert.is(world.target.stats.authenticationFailures, 2);
      assert.is(world.target.stats.controllers, 0);
    },
    { group: 'null' },
  ));

test('an authentication that is not complete in its time ends the queue', () =>
  inWorld(
    async (world) => {
      const silent = await rawHost(world.host, HOST_NQN);
      const unfinished = await rawHost(world.host, HOST_NQN);
      await unfinished.send(buildNegotiate(1));
      assert.match(await silent.ended, /disconnected/);
      assert.match(await unfinished.ended, /disconnected/);
      assert.is(world.target.stats.controllers, 0);
      assert.is(world.target.stats.authenticationFailures, 1, 'one had begun');
    },
    { timeoutMillis: 500 },
  ));

test('a source with 8 failed authentications is refused for the rest of 10 s', async (world) => {
  for (let count = 0; count < 8; count++) {
    const host = await rawHost(world.host, HOST_NQN);
    await host.send(buildNegotiate(count));
    await host.receive();
    await host.send(buildFailure('FAILURE2', count, DhchapFailure.FAILED));
    host.close();
  }
  await expectRejected(world.connect({ dhchap: { secret } }), 'ECONNREFUSED', /NO_RESOURCES/);
  assert.match(world.events.at(-1)!.reason, '8 authentications of its address failed');
});

test('the limit is that of one source, ends after 10 s, and remembers 4,096 sources', () => {
  const limit = new FailureLimit();
  const fail = (address: string, count: number, micros: number): void => {
    for (let index = 0; index < count; index++) limit.add(address, micros);
  };
  fail('192.0.2.1', 7, 0);
  assert.is(limit.reasonFor('192.0.2.1', 0), undefined);
  fail('192.0.2.1', 1, 9e6);
  assert.match(limit.reasonFor('192.0.2.1', 9e6)!, '8 authentications');
  assert.is(limit.reasonFor('192.0.2.2', 9e6), undefined);
  assert.is(limit.reasonFor('192.0.2.1', 10e6), undefined, 'its 10 s are over');
  fail('192.0.2.1', 1, 10e6);
  assert.is(limit.reasonFor('192.0.2.1', 10e6), undefined, 'counted anew');
  fail('192.0.2.1', 7, 11e6);
  assert.ok(limit.reasonFor('192.0.2.1', 19e6));
  fail('2001:db8:1:2::3', 8, 10e6);
  assert.ok(limit.reasonFor('2001:db8:1:2::4', 10e6), 'one network of 64 bits');
  for (let index = 0; index < 4096; index++) {
    limit.add(`10.0.${index >> 8}.${index & 255}`, 10e6);
  }
  assert.is(limit.reasonFor('2001:db8:1:2::3', 10e6), undefined, 'the oldest is forgotten');
});

test('discovery needs no authentication', async (world) => {
  const nqn = 'nqn.2014-08.org.nvmexpress.discovery';
  const host = await rawHost(world.host, OTHER_NQN, { nqn });
  assert.not(host.isAsked);
  host.close();
});

test('options that contradict each other are misuse, and no error contains a secret', async () => {
  const dhchap = { hosts: { [HOST_NQN]: { secret } } };
  const wrong: readonly [object, RegExp][] = [
    [{ dhchap, hosts: [HOST_NQN] }, /leave hosts out/],
    [{ dhchap: { hosts: {} } }, /must name at least one host, got 0/],
    [{ dhchap: { hosts: { host: { secret } } } }, /no NVMe qualified name/],
    [{ dhchap: { ...dhchap, hash: 'md5' } }, /must be one of sha256, sha384, sha512/],
    [{ dhchap: { ...dhchap, group: 'modp2048' } }, /must be one of null, ffdhe2048/],
    [{ dhchap: { ...dhchap, timeoutMillis: 0 } }, /timeoutMillis/],
    [{ dhchap: { ...dhchap, required: true } }, /no option of this name/],
    [{ dhchap: { hosts: { [HOST_NQN]: { secret, controllerSecret: secret } } } }, /another key/],
    [{ dhchap: { hosts: { [HOST_NQN]: { secret: secret.slice(4) } } } }, /must have the form/],
  ];
  for (const [target, rule] of wrong) {
    const error = await inNvmeWorld({ target }, async () => {}).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.instance(error, MisuseError, rule.source);
    assert.match((error as Error).message, rule);
    assert.not.match((error as Error).message, secret.slice(12, 30));
  }
});

test.run();
