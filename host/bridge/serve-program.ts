/**
 * A device for one program, which maps its memory: open until the program closes its socket, or
 * ends.
 */
import { CONTROL_SLEEPING, CONTROL_BLOCK_BYTES } from '../engine/control-block.js';
import { writeSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Gid } from '../link/endpoint.js';
import { ROCE_PORT } from '../link/link.js';
import { loadPosix } from '../link/posix.js';
import { localReceiveBuffer } from '../link/udp/local-buffer.js';
import type { Context } from '../verbs/context.js';
import { acceptChildren, childrenOf, refuseJoin } from './child-channel.js';
import { connectionHandlers, idQueuePairs } from './connection-handlers.js';
import {
  ControlChannel,
  wordsOf,
  type Handler,
  type Handlers,
  type Word,
} from './control-channel.js';
import { removedAfter } from './device-removal.js';
import { allowTurns, openLentDevice, takeArea, type Area, type Turns } from './lent-device.js';
import type { RunOptions } from './launch.js';
import { EventPipe } from './event-pipe.js';
import { ObjectTable } from './object-table.js';
import { HELLO, type Descriptors } from './operations.js';
import { withDescriptors } from './passed-descriptors.js';
import {
  AsyncEvents,
  completionHandlers,
  gidWords,
  queuePairHandlers,
  regionHandlers,
  srqHandlers,
  windowHandlers,
} from './verb-handlers.js';

/** Where the words lie by which the program wakes the engine. */
function controlAddress(context: Context, pipe: Socket): number {
  const { arena, controlAddress } = context.device;
  if (controlAddress !== undefined) return controlAddress;
  // No thread: the program's doorbells come through the pipe.
  const address = arena.heap.alloc(CONTROL_BLOCK_BYTES);
  const { words } = arena.memory;
  const sleeping = (address + CONTROL_SLEEPING) >>> 2;
  const { exports } = arena;
  const { engine, clock } = context.device;
  Atomics.store(words, sleeping, 1);
  pipe.on('data', () => {
    // Before the look: a doorbell behind it writes to the pipe again.
    Atomics.store(words, sleeping, 1);
    exports.postDoorbells(engine.context, clock.now());
    engine.drain();
  });
  return address;
}

function helloWords(context: Context, area: Area, turns: Turns, pipe: Socket): Word[] {
  const { device, local } = context;
  const limits = context.queryDevice();
  const [gidLow, gidHigh] = gidWords(local.gid);
  const values: { readonly [Name in (typeof HELLO)[number]]: Word } = {
    GID_LOW: gidLow,
    GID_HIGH: gidHigh,
    MEMORY_BYTES: device.arena.memory.bytes.length,
    CONTEXT: device.engine.context,
    CONTROL: controlAddress(context, pipe),
    AREA: area.address,
    AREA_BYTES: area.bytes,
    SHARED: device.shared?.segment.address ?? 0,
    MAX_QP: limits.maxQp,
    MAX_QP_WR: limits.maxQpWr,
    MAX_SGE: limits.maxSge,
    MAX_CQ: limits.maxCq,
    MAX_CQE: limits.maxCqe,
    MAX_MR: limits.maxMr,
    MAX_PD: limits.maxPd,
    MAX_QP_RD_ATOM: limits.maxQpRdAtom,
    MAX_SRQ: limits.maxSrq,
    MAX_SRQ_WR: limits.maxSrqWr,
    MAX_AH: limits.maxAh,
    MAX_MCAST: limits.maxMcastQpAttach,
    DEVICE_CAP_FLAGS: limits.deviceCapFlags >>> 0,
    ACTIVE_MTU: context.queryPort().activeMtu,
    MAX_INLINE_DATA: limits.maxInlineData,
    MAX_DM_BYTES: context.queryDeviceEx().maxDmSize,
    HAS_THREAD: device.controlAddress === undefined ? 0 : 1,
    TURNS: turns.address,
    TURNS_BYTES: turns.bytes,
    STRAYS: turns.strays,
    CAN_SEGMENT: Number(turns.canSegment),
  };
  const path = new TextEncoder().encode(device.shared?.segment.path ?? '');
  return [...HELLO.map((name) => values[name]), ...wordsOf(path)];
}

/** Every operation is refused for the reason that the device does not open. */
function refuseAll(error: unknown): Handlers {
  const refuse: Handler = () => {
    throw error;
  };
  return new Proxy({}, { get: () => refuse }) as Handlers;
}

/** A capture that is not whole; standard error is open with --pcap (sidecar.c). */
function complain(error: unknown): void {
  try {
    writeSync(2, `verbena run: ${(error as Error).message}\n`);
  } catch {
    // Nothing reads it.
  }
}

/** Answers of the program's requests, and what ends all that answers. */
interface Service {
  readonly handlers: Handlers;
  readonly stop: () => void;
}

async function makeService(
  context: Context,
  objects: ObjectTable,
  options: RunOptions,
  descriptors: Descriptors,
): Promise<Service> {
  // Before the area, which takes all memory that is left.
  const turns = await allowTurns(context, options, descriptors);
  const area = takeArea(context, options);
  const pipe = new Socket({ fd: descriptors.PIPE, readable: true, writable: false });
  const hello = helloWords(context, area, turns, pipe);
  let stopAccepting = (): void => {};
  const handlers = await handlersOf(context, objects, options, descriptors, (...words) => {
    stopAccepting();
    stopAccepting = acceptChildren(childrenOf(words), handlers);
    return hello;
  });
  const stop = (): void => {
    stopAccepting();
    pipe.destroy();
  };
  return { handlers, stop };
}

/**
 * Serves the program at `descriptors` until it closes its socket or ends, or `signal` is aborted.
 * Resolves when the device is closed: true, or false if it could not be opened, which the program
 * has the reason of.
 */
export async function serveProgram(
  options: RunOptions,
  descriptors: Descriptors,
  signal?: AbortSignal,
): Promise<boolean> {
  const program = new Socket({ fd: descriptors.SOCKET, readable: true, writable: true });
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => (end = resolve));
  signal?.addEventListener('abort', end);
  if (signal?.aborted) end();
  const objects = new ObjectTable();
  let context: Context | undefined;
  let service: Service | undefined;
  try {
    context = await openLentDevice(options, descriptors);
    service = await makeService(context, objects, options, descriptors);
    new ControlChannel(program, service.handlers, end);
  } catch (error) {
    new ControlChannel(program, refuseAll(error), end);
  }
  await ended;
  // A call that waits for an answer fails.
  program.destroy();
  service?.stop();
  await context?.close().catch(complain);
  // Behind the device, whose thread writes to them.
  for (const pipe of objects.all(EventPipe)) pipe.close();
  return service !== undefined;
}

async function handlersOf(
  context: Context,
  objects: ObjectTable,
  { removalMillis }: RunOptions,
  { PASS }: Descriptors,
  hello: Handler,
): Promise<Handlers> {
  const posix = (await loadPosix()).posix!;
  const receiveBufferOf = (gid: Gid): number | undefined =>
    localReceiveBuffer(posix, gid, ROCE_PORT);
  const state = { context, objects, receiveBufferOf };
  const events = new AsyncEvents(objects);
  void events.follow(context);
  const handlers: Handlers = {
    HELLO: hello,
    QUERY_PORT: () => [],
    JOIN: refuseJoin,
    ...regionHandlers(state),
    ...windowHandlers(state),
    ...completionHandlers(state, events),
    ...queuePairHandlers(state, events, idQueuePairs(objects)),
    ...srqHandlers(state, events),
    ...connectionHandlers(state),
  };
  const whole =
    removalMillis === undefined ? handlers : removedAfter(removalMillis, handlers, state, events);
  return withDescriptors(whole, posix, PASS);
}
