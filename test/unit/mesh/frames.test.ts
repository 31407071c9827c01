/** Frames: slices, parity and repair in memory; channels between two devices whose path loses. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  DataChannelLink,
  Endpoint,
  MisuseError,
  RefusalError,
  RemoteError,
  createEventChannel,
  openDevice,
  type Context,
} from '../../../host/index.js';
import { LoopbackNetwork } from '../../../host/link/loopback.js';
import { connectFrames, listenFrames, type FrameChannel } from '../../../host/mesh/index.js';
import { FrameReceiver } from '../../../host/mesh/frames/frame-receiver.js';
import { FrameSender } from '../../../host/mesh/frames/frame-sender.js';
import {
  SLICE_HEADER,
  readSlice,
  readState,
  writeState,
  type State,
} from '../../../host/mesh/frames/frame-wire.js';
import { releaseDataChannels, signallingTo } from '../../support/channel-mesh.js';
import { NetworkPath } from '../../support/network-path.js';
import { noise } from '../../support/processes.js';
import { eventually, settle } from '../../support/receiver.js';

const test = suite('unit/mesh/frames');
test.after(releaseDataChannels);

const PACKET_BYTES = 64;
const SLICE_BYTES = PACKET_BYTES - SLICE_HEADER;
const BYTES_MAX = 2000;
const FRAMES = 4;
/** Of a queue pair of frames: a report has room in it. */
const INLINE_BYTES = 256;

/** A sender and a receiver without a network: `loses` decides on each packet of the sender. */
function pair(
  loses: (packet: number) => boolean,
  isLatest = false,
  giveUpMillis = 5000,
  bytesMax = BYTES_MAX,
) {
  const placeBytes = 4 * bytesMax;
  const memory = new Uint8Array(FRAMES * placeBytes + SLICE_HEADER);
  const view = new DataView(memory.buffer);
  let packets = 0;
  const errors: Error[] = [];
  const port = {
    memory,
    placeBytes,
    completed: Infinity,
    post(list: readonly (readonly [number, number])[]): number {
      for (const [offset, length] of list) {
        if (loses(packets++)) continue;
        const copy = memory.slice(offset, offset + length);
        const header = readSlice(view, offset, length, bytesMax, SLICE_BYTES)!;
        assert.ok(header);
        queueMicrotask(() => receiver.receive(header, copy.subarray(SLICE_HEADER)));
      }
      return 0;
    },
  };
  const packetBytes = PACKET_BYTES;
  const options = { packetBytes, group: 8, frames: FRAMES, isLatest, giveUpMillis };
  const sender = new FrameSender(
    port,
    options,
    () => new Error('silent'),
    (error) => {
      errors.push(error);
      sender.close(error);
    },
  );
  const receiver: FrameReceiver = new FrameReceiver(
    { sliceBytes: SLICE_BYTES, bytesMax, frames: FRAMES, isLatest },
    (state: State) => {
      const report = new DataView(new ArrayBuffer(INLINE_BYTES));
      const length = writeState(report, 0, state);
      queueMicrotask(() => sender.receive(readState(report, 0, length)!));
    },
    () => undefined,
  );
  return { sender, receiver, errors };
}

test('a slice of each group that is lost is restored without a report', async () => {
  const { sender, receiver } = pair((packet) => packet === 3 || packet === 12);
  const bytes = noise(BYTES_MAX - 7);
  assert.is(await sender.send(bytes, 5), true);
  const frame = receiver.take()!;
  assert.equal(Buffer.from(frame.bytes), bytes);
  assert.equal([frame.immediate, frame.number], [5, 0]);
  assert.is(receiver.counters.restored, 2);
  assert.is(receiver.counters.reports, 0);
  assert.is(sender.counters.repaired, 0);
});

test('more losses than parity restores are reported and repaired, also with a lost end', async () => {
  for (const [from, to] of [
    [0, 20],
    [30, 70],
    [0, 58],
  ] as const) {
    const { sender, receiver } = pair((packet) => packet >= from && packet < to);
    const bytes = noise(BYTES_MAX, from + 1);
    assert.is(await sender.send(bytes, 0), true);
    assert.equal(Buffer.from(receiver.take()!.bytes), bytes);
  }
});

test('losses in the tail of a frame are repaired, however many slices precede them', async () => {
  const total = 4000;
  for (const [from, to] of [
    [1601, 1700],
    [1700, 4400],
    [3950, 4000],
    [0, 4500],
  ] as const) {
    const { sender, receiver, errors } = pair(
      (packet) => packet >= from && packet < to,
      false,
      2000,
      total * SLICE_BYTES,
    );
    const bytes = noise(total * SLICE_BYTES, from + 1);
    assert.is(await sender.send(bytes, 0).catch((error: Error) => error.message), true);
    assert.equal(Buffer.from(receiver.take()!.bytes), bytes);
    assert.equal(errors, []);
    assert.ok(receiver.counters.reports < 10, `${receiver.counters.reports} reports`);
  }
});

test('every frame arrives once and in order whatever is lost, of each length', async () => {
  let state = 1;
  const random = (): number => (state = (Math.imul(state, 48271) >>> 0) % 0x7fffffff) / 0x7fffffff;
  const { sender, receiver, errors } = pair(() => random() < 0.2);
  const lengths = [0, 1, SLICE_BYTES, SLICE_BYTES + 1, 8 * SLICE_BYTES, BYTES_MAX];
  const sent = lengths.map((length, index) => noise(length, index + 1));
  const done = Promise.all(sent.map((bytes, index) => sender.send(bytes, index)));
  for (const [index, bytes] of sent.entries()) {
    let frame = receiver.take();
    while (!frame) {
      await settle(2);
      frame = receiver.take();
    }
    assert.equal([Buffer.from(frame.bytes), frame.immediate], [bytes, index]);
    receiver.release(frame);
  }
  await done;
  assert.equal(errors, []);
});

test('slices that are late and not lost lengthen the pause before a report', async () => {
  let reports = 0;
  const options = { sliceBytes: SLICE_BYTES, bytesMax: BYTES_MAX, frames: FRAMES, isLatest: false };
  const receiver: FrameReceiver = new FrameReceiver(
    options,
    ({ missing }) => {
      if (!missing) return;
      reports++;
      // The sender's repair, while the slice itself is on its way.
      queueMicrotask(() => slice(missing.number, 1));
    },
    () => undefined,
  );
  const slice = (number: number, index: number): void => {
    const header = { flags: 0, index, number, length: 2 * SLICE_BYTES, immediate: 0 };
    receiver.receive({ ...header, total: 2, group: 0, rtt: 10 }, noise(SLICE_BYTES));
  };
  for (let number = 0; number < 40; number++) {
    slice(number, 0);
    await settle(15);
    slice(number, 1);
    receiver.release(receiver.take()!);
  }
  assert.ok(reports >= 1 && reports < 30, `${reports} reports of 40 late slices`);
});

test('a receiver that does not read stops the sender; latest frames replace older ones', async () => {
  const { sender } = pair(() => false);
  let delivered = 0;
  for (let index = 0; index < 10; index++) {
    sender.send(noise(100), index).then(
      () => delivered++,
      () => undefined,
    );
  }
  await eventually(() => delivered >= FRAMES);
  await settle();
  assert.is(delivered, FRAMES);
  sender.close(new Error('over'));
  const latest = pair(() => false, true);
  for (let index = 0; index < 10; index++) await latest.sender.send(noise(100), index);
  assert.is(latest.receiver.take()!.immediate, 9);
  assert.is(latest.receiver.take(), undefined);
});

test('a frame whose buffer is transferred while it waits is refused, and the next one arrives', async () => {
  const { sender, receiver } = pair(() => false);
  const first = Array.from({ length: FRAMES }, (_, at) => sender.send(noise(100, at + 1), at));
  const waiting = noise(100, 20).slice();
  const refused = sender.send(waiting, 20).then(
    () => undefined,
    (error: unknown) => error as Error,
  );
  const last = sender.send(noise(100, 21), 21);
  structuredClone(waiting, { transfer: [waiting.buffer] });
  assert.is(waiting.length, 0);
  const read: number[] = [];
  await eventually(() => {
    for (let frame = receiver.take(); frame; frame = receiver.take()) read.push(frame.immediate);
    return read.length === FRAMES + 1;
  });
  assert.equal(read, [0, 1, 2, 3, 21]);
  assert.equal(await Promise.all([...first, last]), Array<boolean>(FRAMES + 1).fill(true));
  const error = await refused;
  assert.instance(error, MisuseError);
  assert.match(error!.message, /frames\.send: .*transferred.*copy/);
});

test('a receiver that is silent ends the channel', async () => {
  const { sender, errors } = pair(() => true, false, 600);
  const error = await sender.send(noise(100), 0).catch((reason: Error) => reason);
  assert.equal([(error as Error).message, errors.length], ['silent', 1]);
});

test('a frame that takes longer than the limit goes on while its receiver reports', async () => {
  let count = 0;
  // One slice of twelve arrives, and each repair takes a timeout.
  const { sender, receiver, errors } = pair(() => count++ % 12 !== 0, false, 700);
  const start = performance.now();
  const sending = sender.send(noise(BYTES_MAX), 0);
  assert.is(await sending, true);
  assert.ok(performance.now() - start > 700, `${performance.now() - start} ms`);
  assert.equal(errors, []);
  receiver.stop();
});

test('a receiver that falls silent while the sender waits for it ends the channel', async () => {
  let isGone = false;
  const { sender, receiver, errors } = pair(() => isGone, false, 600);
  for (let index = 0; index < FRAMES; index++) await sender.send(noise(100), index);
  const waiting = sender.send(noise(100), 4).catch((reason: Error) => reason);
  // It does not read, and answers: the sender waits for longer than the limit.
  await settle(1500);
  assert.equal(errors, []);
  isGone = true;
  assert.is(((await waiting) as Error).message, 'silent');
  assert.is(errors.length, 1);
  receiver.stop();
});

test('a sender that had nothing to send for a while waits for a full receiver', async () => {
  const { sender, receiver, errors } = pair(() => false, false, 400);
  for (let index = 0; index < FRAMES; index++) await sender.send(noise(100), index);
  await settle(1000);
  const waiting = sender.send(noise(100), 4);
  await settle(200);
  assert.equal(errors, []);
  for (let index = 0; index < FRAMES; index++) receiver.release(receiver.take()!);
  assert.is(await waiting, true);
});

test('packets of any shape are refused', () => {
  const view = new DataView(noise(4096).buffer);
  let accepted = 0;
  for (let at = 0; at < 3000; at++) {
    for (const bytes of [0, 1, 19, 20, 24, 64, 200]) {
      if (readSlice(view, at, bytes, BYTES_MAX, SLICE_BYTES)) accepted++;
      if (readState(view, at, bytes)) accepted++;
    }
  }
  assert.is(accepted, 0);
  const state = { done: 7, limit: 9, mask: 5, missing: { number: 8, slices: [0, 3, 17] } };
  const length = writeState(view, 0, state);
  assert.equal(readState(view, 0, length), state);
  assert.is(readState(view, 0, length - 1), undefined);
});

interface Ends {
  readonly path: NetworkPath;
  readonly contexts: readonly [Context, Context];
}

/** Two devices with a path between them. */
async function withPath(connections: number, work: (ends: Ends) => Promise<void>): Promise<void> {
  const path = new NetworkPath();
  const links = [0, 1].map(() => new DataChannelLink({ connections }));
  const contexts = await Promise.all(
    links.map((link) => openDevice({ link, memoryBytes: 2 ** 26 })),
  );
  try {
    await links[0]!.connect(path.signalling(signallingTo(links[1]!)));
    await work({ path, contexts: contexts as unknown as readonly [Context, Context] });
  } finally {
    for (const context of contexts) await context.close();
    path.close();
  }
}

test('frames of 64 KB arrive whole by four connections at 5 % loss and 20 ms', () =>
  withPath(4, async ({ path, contexts: [near, far] }) => {
    const listener = await listenFrames(`rdma://[${far.local.gid}]:7475`, { context: far });
    const channel = await connectFrames(listener.url, { context: near, timeout: 10_000 });
    const { value: peer } = await listener[Symbol.asyncIterator]().next();
    path.change({ oneWayMillis: 10, loss: 0.05 });
    const wanted = Array.from({ length: 12 }, (_, index) => noise(65_536 - index, index + 1));
    const sending = Promise.all(
      wanted.map((bytes, immediate) => channel.send(bytes, { immediate })),
    );
    const received: Buffer[] = [];
    for await (const { bytes, immediate } of peer as FrameChannel) {
      assert.is(immediate, received.length);
      received.push(Buffer.from(bytes));
      if (received.length === wanted.length) break;
    }
    assert.equal(received, wanted);
    await sending;
    assert.ok((peer as FrameChannel).received.restored > 0);
    // The other way.
    const back = (peer as FrameChannel).send(noise(1000), { immediate: 2 ** 32 - 1 });
    const { value: frame } = await channel[Symbol.asyncIterator]().next();
    assert.equal([frame!.bytes.length, frame!.immediate], [1000, 2 ** 32 - 1]);
    await back;
    const tooLong = await channel.send(new Uint8Array(200_000)).catch((error: Error) => error);
    assert.instance(tooLong, MisuseError);
    await channel.close();
    assert.is(await channel.closed, undefined);
    assert.is((await (peer as FrameChannel).closed)?.code, 'ECONNRESET');
    await listener.close();
  }));

test('a frame of 4 MB arrives whole at 1 % loss', () =>
  withPath(4, async ({ path, contexts: [near, far] }) => {
    const options = { bytesMax: 4_000_000, frames: 1 };
    const listener = await listenFrames(`rdma://[${far.local.gid}]:7475`, {
      context: far,
      ...options,
    });
    const channel = await connectFrames(listener.url, { context: near, ...options });
    const { value: peer } = await listener[Symbol.asyncIterator]().next();
    path.change({ oneWayMillis: 2, loss: 0.01 });
    const bytes = noise(4_000_000);
    const sending = channel.send(bytes);
    const { value: frame } = await (peer as FrameChannel)[Symbol.asyncIterator]().next();
    assert.ok(Buffer.from(frame!.bytes).equals(bytes));
    assert.is(await sending, true);
    assert.ok(channel.sent.repaired > 0);
    await listener.close();
  }));

test('a request that cannot be posted ends the channel, and the process goes on', async () => {
  const faults: Error[] = [];
  const note = (error: Error): void => void faults.push(error);
  process.on('uncaughtException', note);
  const refuse = (): never => {
    throw new RefusalError('ENOMEM', 'postSend: the send queue is full; poll first');
  };
  await withPath(1, async ({ contexts: [near, far] }) => {
    const listener = await listenFrames(`rdma://[${far.local.gid}]:7475`, { context: far });
    const channels = listener[Symbol.asyncIterator]();
    const opened = async (): Promise<FrameChannel[]> => {
      const channel = await connectFrames(listener.url, { context: near, timeout: 10_000 });
      return [channel, (await channels.next()).value as FrameChannel];
    };
    // A frame, a state, a receive.
    const [sender, silent] = await opened();
    sender!.connection.qp.postSend = refuse;
    const error = await sender!.send(noise(100)).catch((reason: RemoteError) => reason);
    assert.is((error as RemoteError).code, 'ECONNRESET');
    assert.match((error as RemoteError).message, /send queue is full/);
    assert.is(await sender!.closed, error);
    assert.is((await silent!.closed)?.code, 'ECONNRESET');
    for (const name of ['postSend', 'postRecv'] as const) {
      const [channel, receiver] = await opened();
      receiver!.connection.qp[name] = refuse;
      channel!.send(noise(100)).catch(() => undefined);
      assert.match((await receiver!.closed)!.message, /send queue is full/);
      assert.is((await channel!.closed)?.code, 'ECONNRESET');
    }
    await listener.close();
  });
  process.off('uncaughtException', note);
  assert.equal(faults, []);
});

test('a stranger that gives up with its request ends nothing', async () => {
  const network = new LoopbackNetwork();
  const open = (address: string): Promise<Context> =>
    openDevice({ link: network.link(Endpoint.parse(address, 4791)) });
  const [far, near] = [await open('10.0.0.1'), await open('10.0.0.2')];
  const listener = await listenFrames('rdma://10.0.0.1:7475', { context: far });
  const channel = createEventChannel(near);
  for (let count = 0; count < 5; count++) {
    const id = channel.createId();
    id.resolveAddr({ address: '10.0.0.1', port: 7475 });
    id.resolveRoute();
    id.connect({ qpNum: 7, privateData: Uint8Array.of(1, 2, 3) });
    id.destroy();
    await settle();
  }
  const peer = await connectFrames(listener.url, { context: near });
  await peer.close();
  await listener.close();
  await near.close();
  await far.close();
});

test('a listener without memory for a channel ends its connection', () =>
  withPath(1, async ({ contexts: [near, far] }) => {
    const listener = await listenFrames(`rdma://[${far.local.gid}]:7475`, { context: far });
    const used = (): number => far.device.arena.heap.bytesFree;
    const before = used();
    // The listener would need 4 MB for a frame that the peer accepts.
    const rest = far.alloc(far.device.arena.heap.bytesFree - 2 ** 21);
    const less = used();
    const options = { context: near, bytesMax: 4_000_000, frames: 32, timeout: 10_000 };
    const channel = await connectFrames(listener.url, options);
    assert.is((await channel.closed)?.code, 'ECONNRESET');
    await eventually(() => used() === less);
    far.free(rest);
    assert.is(used(), before);
    await listener.close();
  }));

test('the limits of a peer take no more memory for sending than one frame of its own', () =>
  withPath(1, async ({ contexts: [near, far] }) => {
    const listener = await listenFrames(`rdma://[${far.local.gid}]:7475`, { context: far });
    const free = (): number => far.device.arena.heap.bytesFree;
    const before = free();
    const options = { context: near, bytesMax: 4_000_000, frames: 32, timeout: 10_000 };
    const channel = await connectFrames(listener.url, options);
    const { value: peer } = await listener[Symbol.asyncIterator]().next();
    assert.ok(before - free() < 6_000_000, `${before - free()} bytes`);
    const frames = [noise(200_000, 1), noise(300_000, 2), noise(10, 3)];
    const sending = Promise.all(frames.map((bytes) => (peer as FrameChannel).send(bytes)));
    for (const wanted of frames) {
      const { value: frame } = await channel[Symbol.asyncIterator]().next();
      assert.ok(Buffer.from(frame!.bytes).equals(wanted));
    }
    assert.equal(await sending, [true, true, true]);
    await listener.close();
  }));

test('one peer has as many channels as the listener permits, and another one has its own', async () => {
  const network = new LoopbackNetwork();
  const open = (address: string): Promise<Context> =>
    openDevice({ link: network.link(Endpoint.parse(address, 4791)) });
  const [far, near, other] = [
    await open('10.0.0.1'),
    await open('10.0.0.2'),
    await open('10.0.0.3'),
  ];
  const url = 'rdma://10.0.0.1:7475';
  const listener = await listenFrames(url, { context: far, channelsPerPeer: 2 });
  const free = (): number => far.device.arena.heap.bytesFree;
  const before = free();
  const attempts = await Promise.allSettled(
    Array.from({ length: 5 }, () => connectFrames(url, { context: near })),
  );
  const channels = attempts.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  assert.is(channels.length, 2);
  for (const attempt of attempts) {
    if (attempt.status === 'fulfilled') continue;
    assert.is((attempt.reason as { code: string }).code, 'ECONNREFUSED');
  }
  const third = await connectFrames(url, { context: other });
  await third.close();
  for (const channel of channels) await channel.close();
  await eventually(() => free() === before);
  await (await connectFrames(url, { context: near })).close();
  const wrong = listenFrames(url, { context: far, channelsPerPeer: 0 });
  assert.is(await wrong.catch(({ argument }: { argument: string }) => argument), 'channelsPerPeer');
  await listener.close();
  for (const context of [near, other, far]) await context.close();
});

test.run();
