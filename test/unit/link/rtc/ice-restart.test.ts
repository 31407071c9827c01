/**
 * ICE restart as a link has it: when it is offered, answered and refused. Connections are the
 * test's.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { DataChannelLink, type LinkError, type Signalling } from '../../../../host/index.js';
import type { Gid } from '../../../../host/link/endpoint.js';
import type {
  Description,
  RtcConnection,
  RtcConnector,
} from '../../../../host/link/rtc/connection.js';
import { gidOfFingerprint } from '../../../../host/link/rtc/fingerprint.js';
import { judgeOffer } from '../../../../host/link/rtc/session.js';
import { FakeChannel } from '../../../support/fake-channel.js';
import { RecordingReceiver, eventually } from '../../../support/receiver.js';

let open: DataChannelLink[] = [];

test.after.each(async () => {
  for (const link of open) await link.close();
  open = [];
});

interface Said {
  readonly of: number;
  readonly type?: Description['type'];
  readonly session?: number;
  readonly version?: number;
  readonly credentials?: number;
}

const fingerprint = (of: number): string =>
  new Array<string>(32).fill(of.toString(16).padStart(2, '0')).join(':');

function describe(said: Said): Description {
  const { of, type = 'offer', session = of, version = 1, credentials = version } = said;
  const sdp = [
    'v=0',
    `o=- ${session} ${version} IN IP4 127.0.0.1`,
    'm=application 9 UDP/DTLS/SCTP webrtc-datachannel',
    `a=ice-ufrag:user${credentials}`,
    `a=ice-pwd:password${credentials}`,
    `a=fingerprint:sha-256 ${fingerprint(of)}`,
    '',
  ].join('\r\n');
  return { type, sdp };
}

/** Its connections are open as soon as they are started. */
class FakeConnector implements RtcConnector {
  readonly of: number;
  readonly channels: FakeChannel[] = [];
  readonly accepted: Description[] = [];
  readonly answered: Description[] = [];
  readonly canRestart: boolean;
  #version = 1;

  constructor(of: number, canRestart = true) {
    this.of = of;
    this.canRestart = canRestart;
  }

  address(): Promise<Gid> {
    return Promise.resolve(gidOfFingerprint(fingerprint(this.of)));
  }

  offer(): Promise<RtcConnection> {
    return Promise.resolve(this.#make('offer'));
  }

  answer(offer: Description): Promise<RtcConnection> {
    this.answered.push(offer);
    return Promise.resolve(this.#make('answer'));
  }

  #make(type: Description['type']): RtcConnection {
    const channel = new FakeChannel();
    const start = channel.start.bind(channel);
    channel.start = (receiver) => {
      start(receiver);
      queueMicrotask(() => receiver.opened());
    };
    this.channels.push(channel);
    const say = (what: Description['type']): Promise<Description> =>
      Promise.resolve(describe({ of: this.of, type: what, version: ++this.#version }));
    const restart = {
      offer: () => say('offer'),
      answer: (offer: Description) => {
        this.answered.push(offer);
        return say('answer');
      },
    };
    return {
      description: describe({ of: this.of, type }),
      channel,
      accept: (answer) => {
        this.accepted.push(answer);
        return Promise.resolve();
      },
      ...(this.canRestart ? { restart } : {}),
    };
  }
}

/** A peer with certificate 2 that answers from the list `answers`, and records its offers. */
class Other implements Signalling {
  readonly name = 'the other side';
  readonly asked: Description[] = [];
  readonly answers: (Description | Error)[];

  constructor(...answers: (Description | Error)[]) {
    this.answers = answers;
  }

  exchange(offer: Description): Promise<unknown> {
    this.asked.push(offer);
    const answer = this.answers.shift() ?? new Error('no answer');
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  }
}

async function linkWith(connector: FakeConnector, connections = 1): Promise<DataChannelLink> {
  const link = new DataChannelLink({ connector, returnMillis: 300, connections });
  open.push(link);
  await link.open(new RecordingReceiver());
  return link;
}

const first = describe({ of: 2, type: 'answer' });
const interrupt = (channel: FakeChannel, is = true): void => channel.receiver!.interrupted(is);

async function codeOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'none',
    (error: LinkError) => error.code,
  );
}

test('session, version and credentials relate a description to a connection', () => {
  const heard = describe({ of: 2, version: 3 });
  const judge = (said: Partial<Said>): string => judgeOffer(heard, describe({ of: 2, ...said }));
  assert.is(judge({ version: 4 }), 'restart');
  assert.is(judge({ version: 3 }), 'old');
  assert.is(judge({ version: 2 }), 'old');
  assert.is(judge({ version: 4, credentials: 3 }), 'old', 'it leads nowhere else');
  assert.is(judge({ version: 4, session: 9 }), 'other');
  const vague = { type: 'offer', sdp: heard.sdp.replace(/o=.*\r\n/, '') } as const;
  assert.is(judgeOffer(heard, vague), 'other');
  const huge = {
    type: 'offer',
    sdp: heard.sdp.replace(' 3 IN', ` ${'9'.repeat(5000)} IN`),
  } as const;
  assert.is(judgeOffer(heard, huge), 'other');
});

test('an unreachable peer gets an offer to restart, and the same channel goes on', async () => {
  const connector = new FakeConnector(1);
  const link = await linkWith(connector);
  const other = new Other(first, describe({ of: 2, type: 'answer', version: 2 }));
  const peer = await link.connect(other);
  interrupt(connector.channels[0]!);
  interrupt(connector.channels[0]!, false);
  interrupt(connector.channels[0]!);
  await eventually(() => connector.accepted.length === 2);
  assert.is(connector.accepted.length, 2);
  interrupt(connector.channels[0]!, false);
  assert.is(judgeOffer(other.asked[0]!, other.asked[1]!), 'restart');
  assert.is(connector.channels.length, 1, 'no connection was made for it');
  assert.is(connector.channels[0]!.isClosed, false);
  assert.equal(link.peers, [peer]);
  const kinds = [];
  for (let index = 0; index < 5; index++) kinds.push((await link.nextPeerEvent())!.kind);
  assert.equal(kinds, ['connected', 'interrupted', 'restored', 'interrupted', 'restored']);
});

for (const [why, answer] of [
  ['is refused', new Error('there is no ICE restart here')],
  [
    'is answered by another certificate',
    describe({ of: 3, type: 'answer', session: 2, version: 2 }),
  ],
  ['is answered in another session', describe({ of: 2, type: 'answer', session: 7, version: 2 })],
  ['is answered with what was said before', first],
] as const) {
  test(`a restart that ${why} leads nowhere, and a new connection is made`, async () => {
    const connector = new FakeConnector(1);
    const link = await linkWith(connector);
    const other = new Other(first, answer, describe({ of: 2, type: 'answer', session: 8 }));
    await link.connect(other);
    interrupt(connector.channels[0]!);
    await eventually(() => connector.channels.length === 2, 10_000);
    assert.is(connector.channels.length, 2, 'at once');
    await eventually(() => connector.channels[0]!.isClosed);
    assert.is(connector.accepted.length, 2, 'that of the first, and that of the second connection');
    assert.is(link.peers.length, 1);
  });
}

test('an offer of a restart is answered when nothing travels here either, and only once', async () => {
  const connector = new FakeConnector(1);
  const link = await linkWith(connector);
  await link.answer(describe({ of: 2 }));
  await eventually(() => link.peers.length === 1);
  const again = describe({ of: 2, version: 2 });
  // An eavesdropper sent it, or the peer was quicker to detect the outage.
  assert.is(await codeOf(link.answer(again)), 'EBUSY', 'what works is left alone');
  const noticed = link.answer(again);
  interrupt(connector.channels[0]!);
  assert.is(judgeOffer(describe({ of: 1 }), await noticed), 'restart');
  assert.is(connector.channels.length, 1);
  assert.is(await codeOf(link.answer(again)), 'EPROTO', 'a second time');
  assert.is(await codeOf(link.answer(describe({ of: 2 }))), 'EPROTO', 'the first one, late');
  assert.equal(connector.answered.length, 2);
});

test('two that come at once are answered once, by the later one', async () => {
  const connector = new FakeConnector(1);
  const link = await linkWith(connector);
  await link.answer(describe({ of: 2 }));
  await eventually(() => link.peers.length === 1);
  const codes = [3, 2].map((version) => codeOf(link.answer(describe({ of: 2, version }))));
  interrupt(connector.channels[0]!);
  assert.equal(await Promise.all(codes), ['none', 'EPROTO']);
});

test('an offer of another session is a connection of its own, whatever it says of itself', async () => {
  const connector = new FakeConnector(1);
  const link = await linkWith(connector);
  await link.answer(describe({ of: 2 }));
  await eventually(() => link.peers.length === 1);
  await link.answer(describe({ of: 2, session: 77, version: 5 }));
  await link.answer(describe({ of: 3, session: 2, version: 5 }));
  assert.is(connector.channels.length, 3);
});

/** Description of `said`, with one more connection. */
function describeTwo(said: Said): Description {
  const { session = said.of } = said;
  return { ...describe(said), more: [describe({ ...said, session: session + 100 }).sdp] };
}

test('connections side by side are offered a restart together', async () => {
  const connector = new FakeConnector(1);
  const link = await linkWith(connector, 2);
  const answers = [1, 2].map((version) => describeTwo({ of: 2, type: 'answer', version }));
  const other = new Other(...answers);
  await link.connect(other);
  for (const channel of connector.channels) interrupt(channel);
  await eventually(() => connector.accepted.length === 4);
  for (const channel of connector.channels) interrupt(channel, false);
  assert.equal(
    other.asked.map(({ more }) => more!.length),
    [1, 1],
  );
  assert.equal(
    connector.accepted.map(({ sdp }) => sdp),
    answers.flatMap(({ sdp, more }) => [sdp, ...more!]),
  );
  assert.is(connector.channels.length, 2);
  assert.not.ok(connector.channels.some(({ isClosed }) => isClosed));
});

test('a restart of all connections is answered, one with fewer is not', async () => {
  const connector = new FakeConnector(1);
  const link = await linkWith(connector, 2);
  assert.is((await link.answer(describeTwo({ of: 2 }))).more!.length, 1);
  await eventually(() => link.peers.length === 1);
  for (const channel of connector.channels) interrupt(channel);
  assert.is(await codeOf(link.answer(describe({ of: 2, version: 2 }))), 'EPROTO');
  const answer = await link.answer(describeTwo({ of: 2, version: 3 }));
  assert.is(answer.more!.length, 1);
  assert.is(connector.answered.length, 4);
  assert.is(connector.channels.length, 2);
});

test('connections that are offered and not answered are closed', async () => {
  const connector = new FakeConnector(1);
  const link = await linkWith(connector, 3);
  await link.connect(new Other(describeTwo({ of: 2, type: 'answer' })));
  assert.equal(
    connector.channels.map(({ isClosed }) => isClosed),
    [false, false, true],
  );
});

test('without support for restarts the other side must connect anew', async () => {
  const connector = new FakeConnector(1, false);
  const link = await linkWith(connector);
  await link.answer(describe({ of: 2 }));
  await eventually(() => link.peers.length === 1);
  assert.is(await codeOf(link.answer(describe({ of: 2, version: 2 }))), 'EOPNOTSUPP');
});

test('when both sides offer a restart, the larger address keeps its own', async () => {
  for (const [of, code] of [
    [1, 'none'],
    [3, 'EBUSY'],
  ] as const) {
    const connector = new FakeConnector(of);
    const link = await linkWith(connector);
    const silent = new Other(first);
    silent.exchange = (offer) => {
      silent.asked.push(offer);
      return silent.asked.length === 1 ? Promise.resolve(first) : new Promise(() => {});
    };
    await link.connect(silent);
    interrupt(connector.channels[0]!);
    await eventually(() => silent.asked.length === 2);
    assert.is(await codeOf(link.answer(describe({ of: 2, version: 2 }))), code);
  }
});

test.run();
