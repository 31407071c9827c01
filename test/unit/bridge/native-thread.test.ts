/**
 * The device's native thread (host/bridge/device-thread.c) in this process: a lent device whose
 * other process is played by this one.
 */
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  constants,
  mkdtempSync,
  openSync,
  readSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ContextLayout, CountersLayout } from '#build/abi.js';
import { AsyncEvent, SendFlag, WcStatus, WrOpcode } from '../../../host/index.js';
import { LIBRARY } from '../../../host/bridge/launch.js';
import { loadNativeThread } from '../../../host/bridge/native-thread.js';
import type { Device } from '../../../host/device/device.js';
import type { NativeThread } from '../../../host/device/lending.js';
import type { ThreadProgress } from '../../../host/device/progress/thread-progress.js';
import {
  CONTROL_LOCK,
  CONTROL_SLEEPING,
  CONTROL_TURN,
} from '../../../host/engine/control-block.js';
import { RING_TAIL } from '../../../host/engine/event-ring.js';
import { structAt } from '../../../host/engine/struct.js';
import { loadPosix, type Posix } from '../../../host/link/posix.js';
import { isBuilt } from '../../support/c-program.js';
import { PATIENT, connect, openSide, type Side } from '../../support/pair.js';

const test = suite('unit/bridge/native-thread');

const SIDE = { bytes: 1 << 20, cqe: 1024, qp: { cap: { maxSendWr: 256, maxRecvWr: 256 } } };
const NAME = 'verbena-device';
const ENDING_MILLIS = 30_000;
/** Nothing comes in this time. */
const QUIET_MILLIS = 50;

interface Pair {
  readonly posix: Posix;
  /** The lent device, and its peer, which has a Worker. */
  readonly lent: Side;
  readonly peer: Side;
  /** Descriptor that hangs up when the other process ends. */
  readonly program: number;
}

/** Names of the threads of this process. */
function threads(): string[] {
  return readdirSync('/proc/self/task').flatMap((thread) => {
    try {
      return [readFileSync(`/proc/self/task/${thread}/comm`, 'latin1').trim()];
    } catch {
      // It has ended.
      return [];
    }
  });
}

const hasThread = (): boolean => threads().includes(NAME);

/** A descriptor that has hung up. */
function hungUp(): number {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-'));
  execFileSync('mkfifo', [join(folder, 'pipe')]);
  const reader = openSync(join(folder, 'pipe'), constants.O_RDONLY | constants.O_NONBLOCK);
  closeSync(openSync(join(folder, 'pipe'), constants.O_WRONLY));
  rmSync(folder, { recursive: true });
  return reader;
}

/** Runs `work` with a lent device and a peer; `change` makes another thread of the native one. */
async function withPair(
  work: (pair: Pair) => Promise<void>,
  change = (thread: NativeThread): NativeThread => thread,
): Promise<void> {
  if (!isBuilt) return;
  const { posix } = await loadPosix();
  const folder = mkdtempSync(join(tmpdir(), 'verbena-'));
  const file = openSync(join(folder, 'memory'), 'w+');
  rmSync(folder, { recursive: true });
  const [wakeDescriptor, programDescriptor] = [posix!.eventDescriptor(), posix!.eventDescriptor()];
  const nativeThread = change(await loadNativeThread(LIBRARY));
  const lending = { memoryDescriptor: file, wakeDescriptor, programDescriptor, nativeThread };
  const lent = await openSide({ address: '127.76.3.1', port: 0, lending }, SIDE);
  const peer = await openSide({ address: '127.76.3.2', port: 0, progress: 'thread' }, SIDE);
  connect(lent.qp, peer, 1, 2, PATIENT);
  connect(peer.qp, lent, 2, 1, PATIENT);
  try {
    await work({ posix: posix!, lent, peer, program: programDescriptor });
  } finally {
    await lent.context.close();
    await peer.context.close();
    for (const fd of [file, wakeDescriptor, programDescriptor]) closeSync(fd);
  }
}

function write(from: Side, to: Side, length: number): void {
  from.qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: from.mr.addr, length, lkey: from.mr.lkey }],
    rdma: { remoteAddr: to.mr.addr, rkey: to.mr.rkey },
  });
}

async function complete(side: Side, count: number): Promise<void> {
  for (let taken = 0; taken < count;) {
    for (const { status } of await side.cq.wait(count)) {
      assert.is(status, WcStatus.SUCCESS);
      taken++;
    }
  }
}

test('a native thread serves a peer, and ends with the device', async () => {
  await withPair(async ({ lent, peer }) => {
    assert.ok(hasThread());
    peer.buffer.fill(7);
    for (let round = 0; round < 100; round++) write(peer, lent, 10_000);
    // Nothing of this process polls the lent device.
    await complete(peer, 100);
    assert.ok(lent.buffer.subarray(0, 10_000).every((byte) => byte === 7));
    for (let round = 0; round < 100; round++) write(lent, peer, 10_000);
    await complete(lent, 100);
  });
  assert.not(hasThread());
});

test('a device is closed while packets arrive', async () => {
  for (let attempt = 0; attempt < 10; attempt++) {
    await withPair(async ({ lent, peer }) => {
      for (let round = 0; round < 200; round++) write(peer, lent, 60_000);
      await sleep(attempt);
    });
    assert.not(hasThread());
  }
});

/** The turn is taken from the thread of the lent device, posted behind it, and given back. */
async function postBehindTurn({ lent, peer }: Pair): Promise<void> {
  const { arena, controlAddress } = lent.context.device;
  const words = new Int32Array(arena.memory.buffer);
  const turn = (controlAddress! + CONTROL_TURN) >>> 2;
  const sleeping = (controlAddress! + CONTROL_SLEEPING) >>> 2;
  while (Atomics.load(words, sleeping) === 0) await sleep(1);
  assert.is(Atomics.compareExchange(words, turn, 0, 1), 0);
  write(lent, peer, 1);
  const end = performance.now() + QUIET_MILLIS;
  for (; performance.now() < end; await sleep(1)) assert.is(Atomics.load(words, sleeping), 0);
  Atomics.store(words, turn, 0);
  while (lent.cq.poll(1).length === 0) await sleep(1);
}

test('a thread that cannot have the turn looks for posts again before it sleeps', async () => {
  await withPair(postBehindTurn);
  await withPair(postBehindTurn, (thread) => ({ ...thread, refusal: () => 'ENOMEM' }));
});

test('a socket that is lost is an event of the device', () =>
  withPair(async ({ posix, lent, peer }) => {
    const events = lent.context.asyncEvents();
    // No socket any more.
    posix.replace(lent.context.device.socketDescriptor!, posix.eventDescriptor());
    write(peer, lent, 1);
    write(lent, peer, 1);
    const { value } = await events.next();
    assert.is(value?.eventType, AsyncEvent.DEVICE_FATAL);
    assert.match(lent.context.failure!.message, /the UDP socket on .* is lost: ENOTSOCK/);
  }));

/** (func (export "load") (param i32) (result i32) local.get 0 i32.load), on one page. */
const LOAD = 'AGFzbQEAAAABBgFgAX8BfwMCAQAFAwEAAQcIAQRsb2FkAAAKCQEHACAAKAIACw==';

test('an engine that accesses what is no memory fails the device, and other modules trap as before', () =>
  withPair(async ({ posix, lent }) => {
    const module = new WebAssembly.Module(Buffer.from(LOAD, 'base64'));
    const { exports } = new WebAssembly.Instance(module, {});
    const { load } = exports as { load(at: number): number };
    assert.throws(() => load(0x7fffffff), /out of bounds/);
    const { arena, engine, progress } = lent.context.device;
    const at = (engine.context + ContextLayout.fields.doorbells[0]) >>> 2;
    const { words } = arena.memory;
    const doorbells = words[at]!;
    const events = lent.context.asyncEvents();
    words[at] = 0xf8f8f8f8;
    posix.signalEvent((progress as ThreadProgress).wakeDescriptor);
    const { value } = await events.next();
    words[at] = doorbells;
    assert.is(value?.eventType, AsyncEvent.DEVICE_FATAL);
    assert.match(lent.context.failure!.message, /the engine of the device on .* has trapped/);
  }));

test('words of the context that the program overwrites lead to nothing outside of the memory', () =>
  withPair(async ({ lent, peer }) => {
    const { arena, engine } = lent.context.device;
    const { sendBuffers } = ContextLayout.fields;
    arena.memory.words[(engine.context + sendBuffers[0]) >>> 2] = 0;
    write(peer, lent, 100);
    await complete(peer, 1);
  }));

test('modules trap as before when nothing refers to the library of an ended thread', async () => {
  await withPair(async ({ peer, lent }) => {
    write(peer, lent, 100);
    await complete(peer, 1);
  });
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  for (let turn = 0; turn < 5; turn++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  const module = new WebAssembly.Module(Buffer.from(LOAD, 'base64'));
  const { load } = new WebAssembly.Instance(module, {}).exports as { load(at: number): number };
  assert.throws(() => load(0x7fffffff), /out of bounds/);
});

test('a Worker takes the place of a native thread that cannot have the memory', () =>
  withPair(
    async ({ lent, peer }) => {
      assert.not(hasThread());
      write(peer, lent, 100);
      await complete(peer, 1);
    },
    (thread) => ({ ...thread, refusal: () => 'ENOMEM' }),
  ));

test('a second device of a process has a Worker', () =>
  withPair(({ lent, peer }) =>
    withPair(async (second) => {
      assert.is(threads().filter((name) => name === NAME).length, 1);
      for (const [from, to] of [
        [peer, lent],
        [second.peer, second.lent],
      ] as const) {
        write(from, to, 100);
        await complete(from, 1);
      }
    }),
  ));

/** Closes the device while its lock has a value that no thread writes. Returns how to unlock. */
async function closeLocked({ arena, controlAddress, progress }: Device): Promise<() => void> {
  const words = new Int32Array(arena.memory.buffer);
  const lock = (controlAddress! + CONTROL_LOCK) >>> 2;
  const stray = 77;
  while (Atomics.compareExchange(words, lock, 0, stray) !== 0);
  await progress.close();
  return () => Atomics.store(words, lock, 0);
}

test('a thread ends without the lock that a program has spoiled that has ended', () =>
  withPair(async ({ lent, posix, program }) => {
    posix.replace(program, hungUp());
    const unlock = await closeLocked(lent.context.device);
    assert.not(hasThread());
    unlock();
  }));

test('a device ends without its thread that waits for a lock, and a later one has a thread', async () => {
  await withPair(async ({ lent }) => {
    const unlock = await closeLocked(lent.context.device);
    assert.ok(hasThread());
    unlock();
    while (hasThread()) await sleep(1);
  });
  await withPair(() => Promise.resolve(assert.ok(hasThread())));
});

test('a library that is missing is an error with its name', async () => {
  const file = '/nowhere/libverbena-bridge.so';
  const error = await loadNativeThread(file).then(
    () => undefined,
    (reason: Error) => reason,
  );
  assert.match(error?.message ?? '', file);
});

/** A pipe, for each of these flags a descriptor of both its ends. */
function pipes(...flags: number[]): number[] {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-'));
  execFileSync('mkfifo', [join(folder, 'pipe')]);
  const fds = flags.map((more) => openSync(join(folder, 'pipe'), constants.O_RDWR | more));
  rmSync(folder, { recursive: true });
  return fds;
}

/** One that does not block. */
const pipe = (): number => pipes(constants.O_NONBLOCK)[0]!;

/** Returns how many bytes there was room for. */
function fill(fd: number): number {
  for (let junk = 0; ; junk += 8) {
    try {
      writeSync(fd, new Uint8Array(8).fill(1));
    } catch {
      return junk;
    }
  }
}

/** The next record, within `millis`; undefined: none has come. */
async function recordOf(fd: number, millis: number): Promise<bigint | undefined> {
  const record = Buffer.alloc(8);
  for (const end = performance.now() + millis; ; await sleep(1)) {
    try {
      readSync(fd, record);
      return record.readBigUInt64LE();
    } catch {
      // EAGAIN
      if (performance.now() > end) return undefined;
    }
  }
}

/** Arms the queue of `side`, and completes a request. */
async function armAndComplete(side: Side, other: Side): Promise<void> {
  side.cq.reqNotify();
  write(side, other, 8);
  while (side.cq.poll(1).length === 0) await sleep(1);
}

test('events of queues go to the pipe of their channel, each once, until the queue is dropped', () =>
  withPair(async ({ lent, peer }) => {
    const fd = pipe();
    const channels = lent.context.device.progress.channels!;
    await armAndComplete(lent, peer);
    channels.add(lent.cq.handle, fd, 5n);
    for (let round = 0; round < 20; round++) {
      await armAndComplete(lent, peer);
      assert.is(await recordOf(fd, ENDING_MILLIS), 5n);
    }
    assert.is(await recordOf(fd, QUIET_MILLIS), undefined);
    channels.dropQueue(lent.cq.handle);
    await armAndComplete(lent, peer);
    channels.add(lent.cq.handle, fd, 6n);
    channels.drop(fd);
    await armAndComplete(lent, peer);
    assert.is(await recordOf(fd, QUIET_MILLIS), undefined);
    closeSync(fd);
  }));

test('events wait for room in a full pipe, and none is lost', () =>
  withPair(async ({ lent, peer }) => {
    const fd = pipe();
    lent.context.device.progress.channels!.add(lent.cq.handle, fd, 7n);
    let junk = fill(fd);
    for (let round = 0; round < 5; round++) await armAndComplete(lent, peer);
    for (; junk > 0; junk -= 8) await recordOf(fd, ENDING_MILLIS);
    for (let round = 0; round < 5; round++) assert.is(await recordOf(fd, ENDING_MILLIS), 7n);
    assert.is(await recordOf(fd, QUIET_MILLIS), undefined);
    closeSync(fd);
  }));

test('a full pipe that its program has made one that blocks holds nothing up', () =>
  withPair(async ({ lent, peer }) => {
    const [fd, blocking] = pipes(constants.O_NONBLOCK, 0) as [number, number];
    const channels = lent.context.device.progress.channels!;
    channels.add(lent.cq.handle, blocking, 11n);
    let junk = fill(fd);
    await armAndComplete(lent, peer);
    await sleep(QUIET_MILLIS);
    write(peer, lent, 100);
    await complete(peer, 1);
    for (; junk > 0; junk -= 8) await recordOf(fd, ENDING_MILLIS);
    assert.is(await recordOf(fd, ENDING_MILLIS), 11n);
    channels.drop(blocking);
    for (const end of [fd, blocking]) closeSync(end);
  }));

/** Reads records until no more come. */
async function readAll(fd: number): Promise<void> {
  while ((await recordOf(fd, QUIET_MILLIS)) !== undefined);
}

test('events of a queue go to its channel also behind 2^31 others of the device', () =>
  withPair(async ({ lent, peer }) => {
    const fd = pipe();
    const { arena, engine, progress } = lent.context.device;
    progress.channels!.add(lent.cq.handle, fd, 8n);
    await armAndComplete(lent, peer);
    await readAll(fd);
    const { words } = arena.memory;
    const ring = words[(engine.context + ContextLayout.fields.events[0]) >>> 2]!;
    for (const at of [ring + RING_TAIL, ring]) words[at >>> 2] = words[at >>> 2]! + 2 ** 31;
    await armAndComplete(lent, peer);
    await readAll(fd);
    await armAndComplete(lent, peer);
    assert.is(await recordOf(fd, ENDING_MILLIS), 8n);
    closeSync(fd);
  }));

test('a channel has no event of a later device', async () => {
  const fd = pipe();
  await withPair(({ lent }) => {
    lent.context.device.progress.channels!.add(lent.cq.handle, fd, 10n);
    return Promise.resolve();
  });
  await withPair(async ({ lent, peer }) => {
    await armAndComplete(lent, peer);
    assert.is(await recordOf(fd, QUIET_MILLIS), undefined);
  });
  closeSync(fd);
});

test('each queue with a channel has an event when one of the device is lost', () =>
  withPair(async ({ lent, peer, posix }) => {
    const fd = pipe();
    const { arena, engine, progress } = lent.context.device;
    const { eventsMax, counters } = structAt(arena.memory, ContextLayout, engine.context);
    assert.is(eventsMax, 65_536);
    progress.channels!.add(lent.cq.handle, fd, 9n);
    const lost = (counters + CountersLayout.fields.eventsLost[0]) >>> 2;
    arena.memory.words[lost] = arena.memory.words[lost]! + 1;
    posix.signalEvent((progress as ThreadProgress).wakeDescriptor);
    assert.is(await recordOf(fd, ENDING_MILLIS), 9n);
    assert.is(await recordOf(fd, QUIET_MILLIS), undefined);
    await armAndComplete(lent, peer);
    assert.is(await recordOf(fd, ENDING_MILLIS), 9n);
    closeSync(fd);
  }));

/** Datagrams of no queue pair, until `enough`. */
async function flood(lent: Side, enough: () => boolean): Promise<void> {
  const { posix } = await loadPosix();
  const { gid, port } = lent.context.local;
  const fd = posix!.datagramSocket(2);
  const junk = new Uint8Array(64).fill(0xff);
  const address = posix!.socketAddress(gid, port, '');
  const deadline = performance.now() + ENDING_MILLIS;
  while (!enough() && performance.now() < deadline) {
    for (let count = 0; count < 1000; count++) posix!.sendDatagram(fd, junk, address);
    await sleep(1);
  }
  posix!.close(fd);
}

test('a flood of foreign packets is filtered, and a new peer gets through', () =>
  withPair(async ({ lent, peer }) => {
    const { arena, controlAddress } = lent.context.device;
    // ControlBlock.isFiltered
    const isFiltered = (): boolean => arena.memory.words[(controlAddress! + 44) >>> 2] !== 0;
    await flood(lent, isFiltered);
    assert.ok(isFiltered());
    write(peer, lent, 100);
    await complete(peer, 1);
  }));

test.run();
