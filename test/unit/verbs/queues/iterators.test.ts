/** Loops with `for await` end without an error when their source ends. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  DataChannelLink,
  createEventChannel,
  createLoopbackPair,
  listen,
  openDevice,
  rpma,
  type Context,
} from '../../../../host/index.js';

type End = () => unknown;
type Row = readonly [string, (context: Context) => Promise<[AsyncIterable<unknown>, End]>];

const ROWS: readonly Row[] = [
  [
    'completion queue, destroyed',
    async (context) => {
      const cq = context.createCq(8);
      return [cq, () => cq.destroy()];
    },
  ],
  [
    'completion queue, disposed',
    async (context) => {
      const cq = context.createCq(8);
      return [cq, () => cq[Symbol.dispose]()];
    },
  ],
  [
    'completion queue, context closed',
    async (context) => [context.createCq(8), () => context.close()],
  ],
  [
    'completion channel, destroyed',
    async (context) => {
      const channel = context.createCompChannel();
      return [channel, () => channel.destroy()];
    },
  ],
  [
    'completion channel, context closed',
    async (context) => [context.createCompChannel(), () => context.close()],
  ],
  [
    'event channel, destroyed',
    async (context) => {
      const channel = createEventChannel(context);
      return [channel, () => channel.destroy()];
    },
  ],
  [
    'event channel, context closed',
    async (context) => [createEventChannel(context), () => context.close()],
  ],
  [
    'event channel with an id, context closed',
    async (context) => {
      const channel = createEventChannel(context);
      channel.createId();
      return [channel, () => context.close()];
    },
  ],
  [
    'listener, closed',
    async (context) => {
      const address = `${context.local.gid}`;
      const listener = await listen({ address, port: 0 }, { context });
      return [listener, () => listener.close()];
    },
  ],
  [
    'end point of rpma, shut down',
    async (context) => {
      const ep = await rpma.peerNew(context).epListen(`${context.local.gid}`, 7471);
      return [ep, () => ep.shutdown()];
    },
  ],
  [
    'asynchronous events, context closed',
    async (context) => [context.asyncEvents(), () => context.close()],
  ],
  [
    'peers of a link, link closed',
    async () => {
      const link = new DataChannelLink();
      const other = await openDevice({ link, memoryBytes: 8 * 2 ** 20 });
      return [link.peerEvents(), () => other.close()];
    },
  ],
];

test('for await ends when its source is destroyed, or its context closed', async () => {
  for (const [name, make] of ROWS) {
    const { a: link } = createLoopbackPair();
    const context = await openDevice({ link, memoryBytes: 8 * 2 ** 20 });
    const [iterable, end] = await make(context);
    const loop = (async () => {
      for await (const _ of iterable);
      return 'done';
    })();
    await new Promise((resolve) => setTimeout(resolve, 10));
    await end();
    const late = new Promise((resolve) => setTimeout(resolve, 5000, 'pending').unref());
    assert.is(await Promise.race([loop.catch(String), late]), 'done', name);
    await context.close();
  }
});

test('a queue destroyed inside the loop over it ends the loop', async () => {
  const { a: link } = createLoopbackPair();
  await using context = await openDevice({ link, memoryBytes: 8 * 2 ** 20 });
  const cq = context.createCq(8);
  const loop = (async () => {
    for await (const _ of cq);
  })();
  cq.destroy();
  await loop;
  // A call outside of a loop gets the error.
  const other = context.createCq(8);
  const waits = other.wait().then(
    () => 'nothing',
    (error: Error) => error.name,
  );
  other.destroy();
  assert.is(await waits, 'MisuseError');
});

test.run();
