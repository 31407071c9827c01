/** Data channels in Node: connecting, signalling, certificates, and what a peer's end means to verbs. */
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  BroadcastSignalling,
  CmEventType,
  DataChannelLink,
  LinkError,
  MisuseError,
  QpState,
  WcStatus,
  WrOpcode,
  answerRequest,
  connect,
  listen,
  openDevice,
  type Context,
  type Signalling,
} from '../../../../host/index.js';
import * as library from '../../../../host/index.js';
import type {
  Description,
  RtcConnection,
  RtcConnector,
} from '../../../../host/link/rtc/connection.js';
import { NodeConnector } from '../../../../host/link/rtc/node.js';
import { connectLinks, releaseDataChannels, signallingTo } from '../../../support/channel-mesh.js';
import { eventually, RecordingReceiver, settle } from '../../../support/receiver.js';
import { TransferSide } from '../../../support/transfer.js';

let links: DataChannelLink[] = [];
let servers: Server[] = [];

test.after.each(async () => {
  for (const link of links) await link.close();
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  links = [];
  servers = [];
});
test.after(releaseDataChannels);

async function open(options = {}): Promise<DataChannelLink> {
  const link = new DataChannelLink(options);
  links.push(link);
  await link.open(new RecordingReceiver());
  return link;
}

async function serve(handler: Parameters<typeof createServer>[1]): Promise<string> {
  const server = createServer(handler as never);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/signal`;
}

async function failure(promise: Promise<unknown>): Promise<LinkError> {
  return promise.then(
    () => assert.unreachable('it should have failed') as never,
    (error: LinkError) => error,
  );
}

test('one HTTP exchange connects two programs', async () => {
  const server = await open();
  const url = await serve((req, res) => void answerRequest(server, req, res));
  const client = await open();
  const peer = await client.connect(url);
  assert.ok(peer.equals(server.info.local));
  await eventually(() => server.peers.length === 1);
  assert.ok(server.peers[0]!.equals(client.info.local));
});

test('a request that is no offer gets an error status, and leaves no resources', async () => {
  const server = await open();
  const url = await serve((req, res) => void answerRequest(server, req, res));
  const post = async (body: string, method = 'POST'): Promise<[number, string]> => {
    const init = method === 'GET' ? {} : { body };
    const response = await fetch(url, { method, ...init });
    return [response.status, await response.text()];
  };
  assert.equal(await post('', 'GET'), [405, 'POST an offer as JSON']);
  assert.equal(await post('{'), [400, 'the body is no JSON']);
  assert.equal(await post('null'), [
    400,
    'description: the received message is not an offer; pass it on unchanged (EPROTO)',
  ]);
  const [status, text] = await post(JSON.stringify({ type: 'offer', sdp: 'v=0' }));
  assert.is(status, 400);
  assert.match(text, /one data channel/);
  // Long enough not to be with us all at once.
  for (const length of [70_000, 5_000_000]) {
    assert.equal(await post('x'.repeat(length)), [
      400,
      'answer: the offer exceeds the size limit; pass it unchanged (EMSGSIZE)',
    ]);
  }
  const media = 'm=application 9 UDP/DTLS/SCTP webrtc-datachannel';
  const print = `a=fingerprint:sha-256 ${new Array(32).fill('AB').join(':')}`;
  const sdp = `v=0\r\n${media}\r\n${print}\r\n`;
  assert.match((await post(JSON.stringify({ type: 'offer', sdp })))[1], /refuses the offer/);
  assert.equal(server.peers, []);
});

test('a body that never ends is not waited for', async () => {
  const server = await open();
  const url = await serve((req, res) => void answerRequest(server, req, res, { bodyMillis: 50 }));
  const ended = await new Promise<string>((resolve) => {
    const asking = request(url, { method: 'POST' });
    asking.on('error', (error) => resolve(error.message));
    asking.on('response', (response) => resolve(`${response.statusCode}`));
    asking.write('{"type":');
  });
  assert.match(ended, /hang up|400/);
});

test('the threads and programs of one room meet by BroadcastChannel', async () => {
  const room = 'data-channel.test';
  const members = [await open(), await open(), await open()];
  for (const member of members) member.meet(new BroadcastSignalling(room));
  await eventually(() => members.every(({ peers }) => peers.length === 2));
  assert.equal(
    members.map(({ peers }) => peers.length),
    [2, 2, 2],
  );
});

/** A room with one newcomer, which is reached only after `failures` failures. */
async function meetLate(failures: number): Promise<{ tries: () => number; leave: () => void }> {
  const [member, newcomer] = [await open(), await open()];
  let tries = 0;
  const late: Signalling = {
    name: 'a busy browser',
    exchange: (offer, signal) => {
      if (++tries <= failures) return Promise.reject(new LinkError('ETIMEDOUT', 'too busy'));
      return signallingTo(newcomer).exchange(offer, signal);
    },
  };
  const leave = member.meet({
    listen: () => () => undefined,
    join: (_name, _answer, greet) => {
      greet(late);
      return () => undefined;
    },
  });
  return { tries: () => tries, leave };
}

test('a newcomer that was too busy to answer is called again', async () => {
  await meetLate(2);
  const [member, newcomer] = links.slice(-2);
  await eventually(() => newcomer!.peers.length === 1);
  assert.ok(newcomer!.peers[0]!.equals(member!.info.local));
});

test('a newcomer that never answers is called three times, and not after leaving', async () => {
  const [never, left] = [await meetLate(Infinity), await meetLate(Infinity)];
  left.leave();
  await eventually(() => never.tries() === 3);
  await settle(1500);
  assert.is(never.tries(), 3);
  assert.is(left.tries(), 1);
});

test('signalling without an answer, or without a server, is an error with a code', async () => {
  const link = await open();
  const silent: Signalling = {
    name: 'silence',
    exchange: (_offer, { reason: _ }) => new Promise(() => {}),
  };
  const timeoutMillis = 30;
  const absent = await failure(link.connect(new BroadcastSignalling('absent'), { timeoutMillis }));
  assert.is(absent.code, 'ETIMEDOUT');
  assert.match(absent.message, /through the broadcast channel "absent"/);
  const mute = await failure(link.connect(silent, { timeoutMillis }));
  assert.is(mute.code, 'ETIMEDOUT', 'though the signalling itself does not give up');
  const refused = await failure(link.connect('http://127.0.0.1:9/signal'));
  assert.is(refused.code, 'ECONNREFUSED');
});

test('options out of range are misuse', () => {
  const wrong = [
    { pathMtuBytes: 1000 },
    { windowBytes: 0 },
    { peersMax: 1.5 },
    { openMillis: NaN },
  ];
  for (const options of wrong)
    assert.throws(() => new DataChannelLink(options), MisuseError.name && /must be/);
});

test('a link that is not open connects to no peer and answers none', async () => {
  const link = new DataChannelLink();
  const other = await open();
  assert.instance(await failure(link.connect(signallingTo(other))), MisuseError);
  assert.is((await failure(link.answer({}))).code, 'ECONNRESET');
});

test('a link has its address from its certificate, and another link another', async () => {
  const connector = new NodeConnector();
  const a = await open({ connector });
  const b = await open();
  assert.not.ok(a.info.local.equals(b.info.local));
  assert.is(a.info.local.gid.toString(), (await connector.address()).toString());
  assert.is(a.info.local.gid.bytes[0], 0xfd);
});

test('the path MTU is the one that was chosen', async () => {
  const link = new DataChannelLink({ pathMtuBytes: 4096 });
  const context = await openDevice({ link, memoryBytes: 2 ** 24 });
  assert.is(context.queryPort().activeMtu, 5);
  await context.close();
  await using usual = await openDevice({ link: new DataChannelLink(), memoryBytes: 2 ** 24 });
  assert.is(usual.queryPort().activeMtu, 3);
});

async function device(options = {}): Promise<{ link: DataChannelLink; context: Context }> {
  const link = new DataChannelLink(options);
  return { link, context: await openDevice({ link, memoryBytes: 2 ** 24 }) };
}

test('when a peer goes its queue pairs flush and its connections end, the others go on', async () => {
  const here = await device();
  const [one, two] = [await device(), await device()];
  await connectLinks(one.link, here.link);
  await connectLinks(two.link, here.link);
  const at = { address: `${here.context.local.gid}`, port: 7 };
  const listener = await listen(at, { context: here.context });
  const ends = [];
  for (const { context } of [one, two]) {
    const coming = listener.getRequest().then((asking) => asking!.accept());
    await connect(at, { context });
    ends.push(await coming);
  }
  const [first, second] = ends;
  first!.qp.postRecv({ wrId: 11 });
  // Without a word: as a page that is closed.
  await one.link.close();
  const [flushed] = await first!.recvCq.wait();
  assert.is(flushed!.status, WcStatus.WR_FLUSH_ERR);
  assert.is(flushed!.wrId, 11n);
  await first!.disconnected;
  assert.is(second!.qp.query().qpState, QpState.RTS);
  second!.qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: 2,
    rdma: { remoteAddr: 0, rkey: 0 },
  });
  assert.is((await second!.sendCq.wait())[0]!.status, WcStatus.SUCCESS, 'of no bytes');
  for (const { context } of [here, one, two]) await context.close();
});

test('queue pairs over data channels wait for a stalled channel by default', async () => {
  const [a, b] = [await device(), await device()];
  await connectLinks(a.link, b.link);
  const address = `${b.context.local.gid}`;
  for (const [options, timeout] of [
    [{}, 19],
    [{ ackTimeout: 14 }, 14],
  ] as const) {
    const coming = TransferSide.accept(library, b.context, 4096);
    const from = await TransferSide.connect(library, a.context, address, 4096, options);
    const to = await coming;
    assert.is(from.connection.qp.query().timeout, timeout);
    assert.is(to.connection.qp.query().timeout, timeout);
    await from.write(1, 1024);
    assert.is(to.differences(1), 0);
  }
  for (const { context } of [a, b]) await context.close();
});

/** Reports its acceptance only after a while: a busy page, by way of a Worker. */
class SlowConnector extends NodeConnector {
  override async offer(): Promise<RtcConnection> {
    const connection = await super.offer();
    const accept = async (answer: Description): Promise<void> => {
      await connection.accept(answer);
      await settle(150);
    };
    return { ...connection, accept };
  }
}

/** Numbers go from one device to the other while `disturb` does something to their links. */
async function numbersDuring(
  disturb: (a: DataChannelLink, b: DataChannelLink) => Promise<unknown>,
  connector: RtcConnector = new NodeConnector(),
): Promise<void> {
  const a = await device({ connector });
  const b = await device();
  await connectLinks(a.link, b.link);
  const coming = TransferSide.accept(library, b.context, 16384);
  const from = await TransferSide.connect(library, a.context, `${b.context.local.gid}`, 16384);
  const to = await coming;
  let sent = 0;
  let isOver = false;
  const run = async (): Promise<void> => {
    // Both sides know how many come at a time.
    for (; !isOver; sent += 1000) {
      const receiving = to.receiveNumbers(1000);
      await Promise.all([from.sendNumbers(1000), receiving]);
      assert.is(await receiving, 0);
    }
  };
  const running = run();
  try {
    await Promise.race([disturb(a.link, b.link), running]);
  } finally {
    isOver = true;
    await running;
    assert.equal([a.link.peers.length, b.link.peers.length], [1, 1]);
    await a.context.close();
    await b.context.close();
  }
  assert.ok(sent > 0);
}

test('a connection is replaced under traffic, though its acceptance is delayed', () => {
  const disturb = async (a: DataChannelLink, b: DataChannelLink): Promise<void> => {
    for (let restart = 0; restart < 3; restart++) await a.connect(signallingTo(b));
  };
  return numbersDuring(disturb, new SlowConnector());
});

test('both sides may make the connection anew at the same time', () =>
  numbersDuring(async (a, b) => {
    for (let restart = 0; restart < 5; restart++) {
      await Promise.all([a.connect(signallingTo(b)), b.connect(signallingTo(a))]);
    }
  }));

/** The first connection that it offers opens on the other side alone, and its end is not heard. */
class DeafConnector extends NodeConnector {
  #isFirst = true;

  override async offer(): Promise<RtcConnection> {
    const connection = await super.offer();
    const { channel } = connection;
    if (!this.#isFirst) return connection;
    this.#isFirst = false;
    const start = channel.start.bind(channel);
    channel.start = (handlers) =>
      start({ ...handlers, opened: () => undefined, closed: () => undefined });
    return connection;
  }
}

test('of two connections made at once the one that does not open has connected as well', async () => {
  const a = await open({ connector: new DeafConnector() });
  const b = await open();
  const first = a.connect(signallingTo(b));
  await eventually(() => b.peers.length === 1);
  const [peer, second] = await Promise.all([first, b.connect(signallingTo(a))]);
  assert.is(`${peer.gid}`, `${b.info.local.gid}`);
  assert.is(`${second.gid}`, `${a.info.local.gid}`);
  assert.is(a.peers.length, 1);
});

test('a connection that does not open is an error where an older one is all that works', async () => {
  const a = await open({ connector: new DeafConnector(), openMillis: 10_000 });
  const b = await open();
  await b.connect(signallingTo(a));
  const error = await failure(a.connect(signallingTo(b)));
  assert.is(error.code, 'ETIMEDOUT');
});

test('a connection that is being made to a peer that goes is unreachable at once', async () => {
  const here = await device();
  const there = await device();
  await connectLinks(here.link, there.link);
  // A device without a connection manager answers nothing.
  const at = { address: `${there.context.local.gid}`, port: 7 };
  const start = performance.now();
  const asking = failure(connect(at, { context: here.context }) as Promise<unknown>);
  await there.context.close();
  const error = await asking;
  assert.is(error.code, 'ETIMEDOUT');
  // Its messages would be repeated for a minute.
  assert.ok(performance.now() - start < 20_000, 'the last message was not waited for');
  assert.ok(CmEventType.UNREACHABLE !== undefined);
  await here.context.close();
});

test.run();
