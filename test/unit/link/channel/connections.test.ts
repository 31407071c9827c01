/** A data channel link with several connections to one peer, in Node. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  DataChannelLink,
  MisuseError,
  answerRequest,
  openDevice,
  type Context,
} from '../../../../host/index.js';
import * as library from '../../../../host/index.js';
import type { Description, RtcConnection } from '../../../../host/link/rtc/connection.js';
import { NodeConnector } from '../../../../host/link/rtc/node.js';
import { connectLinks, releaseDataChannels, signallingTo } from '../../../support/channel-mesh.js';
import { eventually } from '../../../support/receiver.js';
import { TransferSide } from '../../../support/transfer.js';

let contexts: Context[] = [];

test.after.each(async () => {
  for (const context of contexts) await context.close();
  contexts = [];
});
test.after(releaseDataChannels);

/** How many messages went by each of the connections that it made. */
class CountingConnector extends NodeConnector {
  readonly sent: number[] = [];

  override async offer(): Promise<RtcConnection> {
    return this.#count(await super.offer());
  }

  override async answer(offer: Description): Promise<RtcConnection> {
    return this.#count(await super.answer(offer));
  }

  #count(connection: RtcConnection): RtcConnection {
    const { channel } = connection;
    const send = channel.send.bind(channel);
    const index = this.sent.push(0) - 1;
    channel.send = (message) => {
      this.sent[index]!++;
      return send(message);
    };
    return connection;
  }
}

async function device(connections?: number) {
  const connector = new CountingConnector();
  const link = new DataChannelLink({ connector, ...(connections && { connections }) });
  const context = await openDevice({ link });
  contexts.push(context);
  return { link, context, connector };
}

/** Of 1 MiB each. */
const SALTS_MAX = 60;

type Device = Awaited<ReturnType<typeof device>>;

async function sides(a: Device, b: Device, bytes = 2 ** 20): Promise<[TransferSide, TransferSide]> {
  const accepting = TransferSide.accept(library, b.context, bytes);
  const from = await TransferSide.connect(library, a.context, `${b.context.local.gid}`, bytes);
  return [from, await accepting];
}

for (const [ours, theirs, agreed] of [
  [4, 4, 4],
  [4, 2, 2],
  [2, 4, 2],
  [3, undefined, 1],
  [undefined, 3, 1],
] as const) {
  test(`${ours ?? 'one'} and ${theirs ?? 'one'} make ${agreed}, and all of them carry`, async () => {
    const a = await device(ours);
    const b = await device(theirs);
    let exchanges = 0;
    const server = createServer((request, response) => {
      exchanges++;
      void answerRequest(b.link, request, response);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      await a.link.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
      assert.is(exchanges, 1);
    } finally {
      server.closeAllConnections();
      server.close();
    }
    await eventually(() => b.link.peers.length === 1);
    const [from, to] = await sides(a, b);
    const carrying = ({ connector }: Device): number =>
      connector.sent.filter((count) => count > 0).length;
    // A connection may open long after the first, on a machine that is busy.
    let salt = 0;
    do {
      await from.write(++salt, 4096);
      assert.is(to.differences(salt), 0);
      await to.write(++salt, 4096);
      assert.is(from.differences(salt), 0);
    } while (salt < SALTS_MAX && (carrying(a) < agreed || carrying(b) < agreed));
    assert.is(b.connector.sent.length, agreed);
    assert.is(carrying(a), agreed, `${a.connector.sent}`);
    assert.is(carrying(b), agreed, `${b.connector.sent}`);
    assert.equal([a.link.peers.length, b.link.peers.length], [1, 1]);
  });
}

test('reordered messages wait, and cause no retransmission without loss', async () => {
  const a = await device(4);
  const b = await device(4);
  await connectLinks(a.link, b.link);
  const [from, to] = await sides(a, b);
  for (let salt = 1; salt <= 8; salt++) await from.write(salt, 65536);
  assert.is(to.differences(8), 0);
  const { retransmittedPkts, sentPkts } = a.context.counters();
  // A busy machine may let one stand still for longer than others wait.
  assert.ok(retransmittedPkts * 20n < sentPkts, `${retransmittedPkts} of ${sentPkts}`);
});

test('they are made anew under traffic, by both sides at once', async () => {
  const a = await device(3);
  const b = await device(3);
  await connectLinks(a.link, b.link);
  const [from, to] = await sides(a, b, 16384);
  let isOver = false;
  const running = (async (): Promise<void> => {
    while (!isOver) {
      const receiving = to.receiveNumbers(1000);
      await Promise.all([from.sendNumbers(1000), receiving]);
      assert.is(await receiving, 0);
    }
  })();
  try {
    for (let round = 0; round < 3; round++) {
      const both = [a.link.connect(signallingTo(b.link)), b.link.connect(signallingTo(a.link))];
      await Promise.race([Promise.all(both), running]);
    }
  } finally {
    isOver = true;
    await running;
  }
  assert.equal([a.link.peers.length, b.link.peers.length], [1, 1]);
});

test('as many as there may be, and no more, in options and in offers', async () => {
  for (const connections of [0, -1, 1.5, 9, Number.NaN]) {
    assert.throws(
      () => new DataChannelLink({ connections }),
      (error: MisuseError) => error instanceof MisuseError && /connections/.test(error.message),
    );
  }
  const a = await device(8);
  const b = await device(8);
  const offers: Description[] = [];
  const spy = {
    name: 'a spy',
    exchange: (offer: Description) => (offers.push(offer), b.link.answer(offer)),
  };
  await a.link.connect(spy);
  assert.is(offers[0]!.more?.length, 7);
  const before = b.connector.sent.length;
  const nine = { ...offers[0]!, more: [...offers[0]!.more!, offers[0]!.sdp] };
  const code = await b.link.answer(nine).then(String, ({ code }: library.LinkError) => code);
  assert.is(code, 'EPROTO');
  assert.is(b.connector.sent.length, before, 'none was made');
});

test.run();
