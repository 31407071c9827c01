/**
 * The process that has the device of one program (host/bridge/sidecar.c starts it): a Verbena
 * device on memory that the program maps as well. It ends with the program.
 */
import { CONTROL_SLEEPING, CONTROL_BLOCK_BYTES } from '../engine/control-block.js';
import { writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { loadPosix } from '../link/posix.js';
import type { Context } from '../verbs/context.js';
import { acceptChildren, refuseJoin } from './child-channel.js';
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
import { childrenOf, readOptions } from './launch.js';
import { ObjectTable } from './object-table.js';
import { DESCRIPTORS, HELLO } from './operations.js';
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
function controlAddress(context: Context): number {
  const { arena, controlAddress } = context.device;
  if (controlAddress !== undefined) return controlAddress;
  // No thread: the program's doorbells come through the pipe.
  const address = arena.heap.alloc(CONTROL_BLOCK_BYTES);
  const { words } = arena.memory;
  const sleeping = (address + CONTROL_SLEEPING) >>> 2;
  const { exports } = arena;
  const { engine, clock } = context.device;
  Atomics.store(words, sleeping, 1);
  new Socket({ fd: DESCRIPTORS.PIPE, readable: true, writable: false }).on('data', () => {
    // Before the look: a doorbell behind it writes to the pipe again.
    Atomics.store(words, sleeping, 1);
    exports.postDoorbells(engine.context, clock.now());
    engine.drain();
  });
  return address;
}

function helloWords(context: Context, area: Area, turns: Turns): Word[] {
  const { device, local } = context;
  const limits = context.queryDevice();
  const [gidLow, gidHigh] = gidWords(local.gid);
  const values: { readonly [Name in (typeof HELLO)[number]]: Word } = {
    GID_LOW: gidLow,
    GID_HIGH: gidHigh,
    MEMORY_BYTES: device.arena.memory.bytes.length,
    CONTEXT: device.engine.context,
    CONTROL: controlAddress(context),
    AREA: area.address,
    AREA_BYTES: area.bytes,
    APERTURE_BYTES: area.apertureBytes,
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

function program(): Socket {
  return new Socket({ fd: DESCRIPTORS.SOCKET, readable: true, writable: true });
}

async function serve(): Promise<void> {
  const options = readOptions();
  let context: Context;
  try {
    context = await openLentDevice(options);
  } catch (error) {
    new ControlChannel(program(), refuseAll(error), () => process.exit(1));
    return;
  }
  const end = (): void =>
    void context
      .close()
      .catch(complain)
      .finally(() => process.exit(0));
  // Before the area, which takes all memory that is left.
  const turns = await allowTurns(context, options);
  const hello = helloWords(context, takeArea(context, options), turns);
  const objects = new ObjectTable();
  const state = { context, objects };
  const events = new AsyncEvents(objects);
  void events.follow(context);
  const handlers: Handlers = {
    HELLO: () => hello,
    QUERY_PORT: () => [],
    JOIN: refuseJoin,
    ...regionHandlers(state),
    ...windowHandlers(state),
    ...completionHandlers(state, events),
    ...queuePairHandlers(state, events, idQueuePairs(objects)),
    ...srqHandlers(state, events),
    ...connectionHandlers(state),
  };
  const { removalMillis } = options;
  const whole =
    removalMillis === undefined ? handlers : removedAfter(removalMillis, handlers, state, events);
  const offered = withDescriptors(whole, (await loadPosix()).posix!);
  acceptChildren(childrenOf(), offered);
  new ControlChannel(program(), offered, end);
}

await serve();
