/** Authenticated connections from end to end: over UDP sockets, and over a link that records. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  ConnectError,
  PortSpace,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  connect,
  createEventChannel,
  createLoopbackPair,
  listen,
  openDevice,
  type AuthOptions,
  type Context,
  type Link,
  type OpenOptions,
  type RdmaConnection,
} from '../../../host/index.js';
import { expectRefusal, rejection } from '../../support/refusal.js';

const PSK = new Uint8Array(32).fill(5);
const ADDRESS = '127.0.23.71';
const SECRET = 'the quick brown fox jumps over the lazy dog';

/** Notes what both links send. */
function recorded(link: Link, into: Uint8Array[]): Link {
  const send = link.send.bind(link);
  link.send = (batch) => {
    for (let index = 0; index < batch.count; index++) into.push(batch.bytesOf(index).slice());
    send(batch);
  };
  return link;
}

interface World {
  readonly a: Context;
  readonly b: Context;
  readonly sent: Uint8Array[];
}

async function inWorld(work: (world: World) => Promise<void>): Promise<void> {
  const { a: linkA, b: linkB } = createLoopbackPair();
  const sent: Uint8Array[] = [];
  const open = (link: Link): Promise<Context> =>
    openDevice({ memoryBytes: 16 * 2 ** 20, link: recorded(link, sent) } as OpenOptions);
  const a = await open(linkA);
  const b = await open(linkB);
  try {
    await work({ a, b, sent });
  } finally {
    await a.close();
    await b.close();
  }
}

/** `b` listens, `a` connects. */
async function connected(
  { a, b }: World,
  ofListener: AuthOptions | undefined,
  ofConnect: AuthOptions | undefined = ofListener,
): Promise<{ readonly ours: RdmaConnection; readonly theirs: RdmaConnection }> {
  const auth = (given: AuthOptions | undefined): object => (given ? { auth: given } : {});
  const listener = await listen('[::]:0'.replace('[::]', addressOf(b)), {
    context: b,
    ...auth(ofListener),
  });
  const accepted = (async () => {
    const request = await listener.getRequest();
    return request!.accept({}, (qp) => void qp);
  })();
  const target = { address: addressOf(b), port: listener.port };
  const ours = await connect(target, { context: a, ...auth(ofConnect) });
  return { ours, theirs: await accepted };
}

function addressOf(context: Context): string {
  return context.local.gid.toString();
}

/** Writes `text` into memory of the other side and waits for the completion. */
async function write(from: RdmaConnection, to: RdmaConnection, text: string): Promise<string> {
  const bytes = new TextEncoder().encode(text);
  const source = from.context.alloc(bytes.length);
  source.set(bytes);
  const target = to.context.alloc(bytes.length);
  const lmr = from.pd.regMr(source, AccessFlag.LOCAL_WRITE);
  const rmr = to.pd.regMr(target, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
  from.qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: lmr.addr, length: bytes.length, lkey: lmr.lkey }],
    rdma: { remoteAddr: rmr.addr, rkey: rmr.rkey },
  });
  for await (const wc of from.sendCq) {
    assert.is(wc.status, WcStatus.SUCCESS);
    break;
  }
  return new TextDecoder().decode(target.slice());
}

for (const encrypt of [false, true]) {
  test(`WRITEs arrive in both directions, ${encrypt ? 'encrypted' : 'tagged'}`, () =>
    inWorld(async (world) => {
      const { ours, theirs } = await connected(world, { psk: PSK, encrypt });
      assert.is(ours.qp.isAuthenticated && theirs.qp.isAuthenticated, true);
      for (let round = 0; round < 3; round++) {
        assert.is(await write(ours, theirs, SECRET), SECRET);
        assert.is(await write(theirs, ours, SECRET), SECRET);
        ours.qp.rotateKey();
        if (round === 1) theirs.qp.rotateKey();
      }
      const readable = world.sent.filter((bytes) => Buffer.from(bytes).includes(SECRET));
      // By queue pair and PSN: on a busy machine a packet may be retransmitted.
      const place = (bytes: Uint8Array): string =>
        `${[...bytes.subarray(5, 8), ...bytes.subarray(9, 12)]}`;
      const places = new Set(readable.map(place));
      assert.is(places.size, encrypt ? 0 : 6, 'packets with the text in them');
      assert.is(Number(world.a.counters().dropTag + world.b.counters().dropTag), 0);
      await ours.disconnect();
      await theirs.disconnected;
    }));
}

test('without the option no packet and no message is a byte longer', () =>
  inWorld(async (world) => {
    const { ours, theirs } = await connected(world, undefined);
    assert.is(ours.qp.isAuthenticated, false);
    await write(ours, theirs, SECRET);
    await ours.disconnect();
    const mads = world.sent.filter((bytes) => bytes[0] === 0x64);
    // BTH, DETH, a management datagram, ICRC.
    assert.ok(mads.length >= 5 && mads.every((bytes) => bytes.length === 12 + 8 + 256 + 4));
    const acks = world.sent.filter((bytes) => bytes[0] === 0x11);
    assert.ok(acks.length > 0 && acks.every((bytes) => bytes.length === 20));
  }));

for (const [name, ofListener, ofConnect, pattern] of [
  ['one side without', { psk: PSK }, undefined, /requires authentication/],
  ['the other side without', undefined, { psk: PSK }, /has no `auth`/],
  ['other keys', { psk: PSK }, { psk: PSK.map((byte) => byte + 1) }, /does not have the key/],
] as const) {
  test(`${name}: connect rejects with EACCES and says why`, () =>
    inWorld(async (world) => {
      const listener = await listen(`${addressOf(world.b)}:0`.replace(/^(.*:.*):0$/, '[$1]:0'), {
        context: world.b,
        ...(ofListener ? { auth: ofListener } : {}),
      });
      const target = { address: addressOf(world.b), port: listener.port };
      const error = await rejection(
        connect(target, { context: world.a, ...(ofConnect ? { auth: ofConnect } : {}) }),
      );
      assert.ok(error instanceof ConnectError, String(error));
      assert.is(error.code, 'EACCES');
      assert.match(error.message, pattern);
    }));
}

test('over UDP sockets, with devices of their own', async () => {
  const auth = { psk: PSK, encrypt: true };
  await using listener = await listen(`${ADDRESS}:0`, { auth, device: { port: 0 } });
  const accepted = listener.getRequest().then((request) => request!.accept());
  const udpPort = listener.context.local.port;
  const ours = await connect(`${ADDRESS}:${listener.port}`, { auth, udpPort, device: { port: 0 } });
  const theirs = await accepted;
  assert.is(await write(ours, theirs, SECRET), SECRET);
  await theirs.close();
  await ours.disconnected;
  await ours.close();
});

test('a queue pair that is not the id’s own gets its keys from the id', () =>
  inWorld(async ({ a, b }) => {
    const channel = createEventChannel(b);
    const listener = channel.createId(PortSpace.TCP);
    listener.setOption({ auth: { psk: PSK } });
    listener.bindAddr({ port: 0 });
    listener.listen();
    const asking = connect(
      { address: addressOf(b), port: listener.getSrcPort() },
      { context: a, auth: { psk: PSK } },
    );
    const { id } = (await channel.getEvent())!;
    const pd = b.allocPd();
    const cq = b.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    qp.modify(id.initQpAttr(QpState.INIT));
    qp.setPacketKeys(id.packetKeys(qp.qpNum)!);
    qp.modify(id.initQpAttr(QpState.RTR));
    qp.modify(id.initQpAttr(QpState.RTS));
    id.accept({ qpNum: qp.qpNum });
    const ours = await asking;
    assert.is(ours.qp.isAuthenticated, true);
    const memory = b.alloc(64);
    const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
    ours.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [],
      rdma: { remoteAddr: mr.addr, rkey: mr.rkey },
    });
    for await (const wc of ours.sendCq) {
      assert.is(wc.status, WcStatus.SUCCESS);
      break;
    }
  }));

test('keys may be overwritten as soon as connect, listen or setOption has been called', () =>
  inWorld(async ({ a, b }) => {
    const address = addressOf(b);
    const call = <Result>(work: (auth: AuthOptions) => Result): Result => {
      const psk = Buffer.from(SECRET);
      const result = work({ psk });
      psk.fill(0);
      return result;
    };
    const listener = await call((auth) => listen({ address, port: 1 }, { context: b, auth }));
    for (const _ of [1, 2]) {
      const request = listener.getRequest();
      const connecting = call((auth) =>
        connect({ address, port: 1 }, { context: a, auth, maxCmRetries: 1, cmResponseTimeout: 12 }),
      );
      void request.then((it) => it?.accept());
      const { qp } = await connecting;
      assert.is(qp.isAuthenticated, true);
      call((auth) => listener.id.setOption({ auth }));
    }
  }));

test('the error of a connect without an authentic answer names the tag', () =>
  inWorld(async ({ a, b }) => {
    const target = { address: addressOf(b), port: 7471 };
    b.device.link!.send = (batch) => batch.release();
    const quick = { context: a, cmResponseTimeout: 5, maxCmRetries: 1 };
    const messageOf = (auth: object): Promise<string> =>
      connect(target, { ...quick, ...auth }).then(
        () => 'connected',
        (error: ConnectError) => `${error.code}: ${error.message}`,
      );
    const [without, withKey] = [await messageOf({}), await messageOf({ auth: { psk: PSK } })];
    assert.match(without, /^ETIMEDOUT: connect: no answer came from the peer; check that a device/);
    assert.match(withKey, /^ETIMEDOUT: connect: no authentic answer came .* without a right tag/);
  }));

test('datagram services have no authentication, and say so', () =>
  inWorld(async ({ a }) => {
    const id = createEventChannel(a).createId(PortSpace.UDP);
    expectRefusal(() => id.setOption({ auth: { psk: PSK } }), 'EOPNOTSUPP');
  }));

test.run();
