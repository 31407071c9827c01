/** The device of a sidecar: opened as the command line asked, lent to the program. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { NativeThread } from '../device/lending.js';
import { STRAYS_BYTES } from '../device/progress/strays.js';
import { CONTROL_STRAYS } from '../engine/control-block.js';
import { LinkError, RefusalError } from '../errors/errors.js';
import { pcapLink } from '../link/capture/pcap.js';
import { faultLink } from '../link/faults/fault.js';
import type { Link } from '../link/link.js';
import { loadPosix } from '../link/posix.js';
import { UdpLink } from '../link/udp/udp.js';
import type { Context } from '../verbs/context.js';
import { openDevice } from '../verbs/open-device.js';
import { openCapture } from './capture-file.js';
import { LIBRARY, LOCAL_BYTES, type RunOptions } from './launch.js';
import { loadNativeThread } from './native-thread.js';
import type { Descriptors } from './operations.js';

/** Tables for programs of any size; they cost address space until they are used. */
const LIMITS = {
  queuePairsMax: 4096,
  completionQueuesMax: 4096,
  regionsMax: 16384,
  protectionDomainsMax: 1024,
};
/** Memory for queues and tables: an eighth, but at least this. */
const QUEUE_BYTES_MIN = 16 * 2 ** 20;
const QUEUE_SHARE = 8;
/** A process's part of the memory of a device with a name. */
const PROCESS_SHARE = 5;
const AREA_BYTES_MIN = 2 ** 20;
/** The sidecar of a program that ended a moment ago may still have the address, and the capture. */
const BIND_ATTEMPTS = 40;
const BIND_RETRY_MILLIS = 25;
const PAGE = 4096;

export interface Area {
  /** Where pages of the program lie in the device's memory, and how many bytes there are. */
  readonly address: number;
  readonly bytes: number;
}

function hasFaults({ faults }: RunOptions): boolean {
  return Object.entries(faults).some(([name, value]) => name !== 'seed' && value > 0);
}

/** The link that captures and injects faults; undefined: the device has a thread of its own. */
async function makeLink(options: RunOptions): Promise<Link | undefined> {
  const { address, faults, pcap } = options;
  if (pcap === undefined && !hasFaults(options)) return undefined;
  let link: Link = new UdpLink({ address });
  // Nearest to the wire: the capture has what travelled.
  if (pcap !== undefined) link = pcapLink(link, await openCapture(pcap));
  if (!hasFaults(options)) return link;
  const { loss = 0, duplicate = 0, reorder = 0, corrupt = 0, seed } = faults;
  return faultLink(link, {
    loss: loss / 100,
    duplication: duplicate / 100,
    reordering: reorder / 100,
    corruption: corrupt / 100,
    ...(seed === undefined ? {} : { seed }),
  });
}

/** Of a device without a name; undefined: a Worker runs the engine. */
async function nativeThread({ address }: RunOptions): Promise<NativeThread | undefined> {
  // A zone is a number of the interface, which C does not know.
  if (address.includes('%')) return undefined;
  try {
    return await loadNativeThread(LIBRARY);
  } catch (error) {
    if (process.env['VERBENA_DEBUG'] === '1') {
      console.error(`verbena run: a Worker has the device: ${(error as Error).message}`);
    }
    return undefined;
  }
}

async function openOnce(options: RunOptions, descriptors: Descriptors): Promise<Context> {
  const { address, name, memoryBytes, icrc } = options;
  const lending = {
    memoryDescriptor: descriptors.MEMORY,
    wakeDescriptor: descriptors.WAKE,
    programDescriptor: descriptors.PROGRAM,
  };
  const shape = { ...LIMITS, memoryBytes, lending, ...(icrc && { icrc }) };
  if (name !== undefined) {
    return openDevice({ ...shape, name, address, localMemoryBytes: LOCAL_BYTES });
  }
  const link = await makeLink(options);
  if (!link) {
    const thread = await nativeThread(options);
    const lent = { ...lending, ...(thread && { nativeThread: thread }) };
    return openDevice({ ...shape, lending: lent, address });
  }
  try {
    return await openDevice({ ...shape, link, sharedArrayBuffer: true });
  } catch (error) {
    // The capture's file is open.
    await link.close();
    throw error;
  }
}

/** Rejects as `openDevice`. */
export async function openLentDevice(
  options: RunOptions,
  descriptors: Descriptors,
): Promise<Context> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await openOnce(options, descriptors);
    } catch (error) {
      const isTaken =
        (error instanceof LinkError && error.code === 'EADDRINUSE') ||
        (error instanceof RefusalError && error.code === 'EBUSY');
      if (!isTaken || attempt === BIND_ATTEMPTS) throw error;
      await sleep(BIND_RETRY_MILLIS);
    }
  }
}

/** Slots for datagrams that the program receives, as of the device's thread. */
const TURNS_SLOTS = 16;
const SLOT_BYTES = 65536;

/** Parameters with which the program makes turns of the engine (turns.c). */
export interface Turns {
  /** Memory for received datagrams; 0: it makes none. */
  readonly address: number;
  readonly bytes: number;
  /** Memory for packets that it hands on (device/progress/strays.ts). */
  readonly strays: number;
  readonly canSegment: boolean;
}

/**
 * Lets the program make turns: gives it memory, and the device's socket over the socket `PASS`. Not
 * with a link for captures and faults.
 */
export async function allowTurns(
  { device }: Context,
  options: RunOptions,
  { PASS }: Descriptors,
): Promise<Turns> {
  const { socketDescriptor, controlAddress, info, arena } = device;
  // A zone is a number of the interface, which the program does not know.
  const isOurs = options.turns === 'device' || options.address.includes('%');
  if (isOurs || socketDescriptor === undefined || controlAddress === undefined) {
    return { address: 0, bytes: 0, strays: 0, canSegment: false };
  }
  const { posix } = await loadPosix();
  const bytes = TURNS_SLOTS * SLOT_BYTES;
  // Of this process alone, also if the device has a name.
  const address = arena.heap.alloc(bytes + STRAYS_BYTES);
  const strays = address + bytes;
  Atomics.store(arena.memory.words, (controlAddress + CONTROL_STRAYS) >>> 2, strays);
  posix!.passDescriptor(PASS, socketDescriptor);
  const segments = info.socketOptions?.find(({ name }) => name === 'UDP_SEGMENT');
  return { address, bytes, strays, canSegment: segments?.granted ?? false };
}

/** Takes the memory for pages of the program. Throws RefusalError ENOMEM. */
export function takeArea(context: Context, options: RunOptions): Area {
  const { arena } = context.device;
  const area = (bytes: number): Area => {
    const whole = Math.floor(bytes / PAGE) * PAGE;
    const { byteOffset } = context.alloc(whole + PAGE);
    return { address: Math.ceil(byteOffset / PAGE) * PAGE, bytes: whole };
  };
  if (options.name === undefined) {
    const free = arena.heap.bytesFree;
    const queues = Math.max(QUEUE_BYTES_MIN, Math.floor(free / QUEUE_SHARE));
    // Queues lie below, where the heap looks first.
    const below = context.alloc(queues);
    try {
      return area(free - queues - 2 * PAGE);
    } finally {
      context.free(below);
    }
  }
  for (let bytes = Math.floor(options.memoryBytes / PROCESS_SHARE); ; bytes /= 2) {
    try {
      return area(bytes);
    } catch (error) {
      if (bytes < AREA_BYTES_MIN) throw error;
    }
  }
}
