/** `ibv_open_device`: chooses the link and the progress mode. */
import { checkKeys } from '../base/options.js';
import { DEVICE_OPTIONS, Device, limitsOf, type DeviceOptions } from '../device/device.js';
import { startThread } from '../device/progress/thread-progress.js';
import { MisuseError } from '../errors/errors.js';
import { systemRefusal } from '../errors/system-refusal.js';
import { ROCE_PORT, type Link } from '../link/link.js';
import { loadPosix } from '../link/posix.js';
import { checkUdpOptions } from '../link/udp/local-address.js';
import { UdpBatchLink } from '../link/udp/udp-batch.js';
import { UdpLink } from '../link/udp/udp.js';
import type { UdpOptions } from '../link/udp/udp-options.js';
import { Context } from './context.js';
import { checkOpenOptions } from './open-options.js';
import { randomId } from './refuse.js';

/** How to open a device: over a link of your own, or by UDP at a local address. */
export type OpenOptions = LinkOpenOptions | UdpOpenOptions;

type Limits = Omit<DeviceOptions, 'link' | 'thread' | 'polled' | 'processShare'>;

/** The engine runs in the thread that calls it. */
export interface LinkOpenOptions extends Limits {
  link: Link;
  address?: never;
  port?: never;
  name?: never;
  progress?: never;
  spinMicros?: never;
  socketBufferBytes?: never;
  sendSockets?: never;
  dscp?: never;
  keepsAlive?: never;
}

/** A device of its own, on UDP. */
export interface UdpOpenOptions extends Limits {
  link?: never;
  /** A local IPv4 or IPv6 address, no wildcard. Default 127.0.0.1. */
  address?: string;
  /**
   * UDP port; 0 takes a free one, for peers of our own kind, or that of the device of this name.
   * Default 4791.
   */
  port?: number;
  /**
   * Processes of one user that open a device with the same name share it: one address, protection
   * domains (`pd.allocShpd`), memory (`context.alloc`). The first process creates it with its sizes
   * and its address; later ones may omit them. `memoryBytes` is the shared memory. Needs koffi.
   */
  name?: string;
  /**
   * With `name`: the directory of its file. Default: the user's own in /dev/shm, which no other user
   * can enter.
   */
  directory?: string;
  /** With `name`: how many processes may share it, at most 256. Default 32. */
  processesMax?: number;
  /**
   * With `name`: the memory may grow to this size, below 4 GiB; storage is taken when it is allocated
   * (ENOSPC), by heaps segment by segment. Default: memoryBytes, which has storage from the begin.
   */
  memoryBytesMax?: number;
  /**
   * With `name`: true refuses (EOPNOTSUPP) a `directory` without huge pages, which is one that is
   * neither on hugetlbfs nor on tmpfs with huge=always, within_size or advise. Default false: pages
   * are huge where the file system makes them so. `memoryBytes` is rounded up to whole pages.
   */
  hugePages?: boolean;
  /** With `name`: memory of each process alone, for its queues. Default 64 MiB. */
  localMemoryBytes?: number;
  /**
   * Where the engine runs. `thread`: in its own thread, which serves peers while the application
   * computes. `poll`: in each poll of a completion queue, with the lowest latency; while none is
   * polled, in this thread's event loop. `inline`: in its event loop; not with `name`. Default:
   * `thread` with
   * koffi, otherwise `inline`.
   */
  progress?: 'thread' | 'poll' | 'inline';
  /**
   * `thread`: microseconds that the thread, and a thread that waits for a completion, spins before
   * it sleeps (with more than two processors, and if its last waits were short). Default 100.
   */
  spinMicros?: number;
  /** Requested size of the socket buffers, in bytes. Default 4 MiB; the kernel may grant less. */
  socketBufferBytes?: number;
  /**
   * Sockets to send with besides the one that receives, at most 64: source ports from 0xc000 up, by
   * queue pair, for networks and cards that spread by them. `thread` and `poll` only. Default 0.
   */
  sendSockets?: number;
  /**
   * Differentiated services code point of the packets that the device sends, 0 to 63, for switches
   * that give RoCE a class of its own. Default 0. Needs koffi. The ECN field is always ECT(0).
   */
  dscp?: number;
  /** `thread`: whether the device's thread keeps the process from ending. Default true. */
  keepsAlive?: boolean;
}

/** Twice what waking a sleeping thread costs: so that a peer's answer is not missed by little. */
const SPIN_MICROS = 100;

/**
 * Opens a device. Throws MisuseError for options out of range, RefusalError ENOMEM, and LinkError:
 * EADDRINUSE (names the likely holder), EADDRNOTAVAIL, EACCES, EOPNOTSUPP (`thread`, `poll` and
 * `name` without koffi). With `name` also RefusalError EACCES (another user's), EINVAL (a foreign
 * file, or a smaller device than requested), EPROTO (created by another build of Verbena), EIO
 * (damaged), ENOSPC (no room: names the remedy), EBUSY (all slots in use), ENOENT (no directory).
 * In a page: ENOENT (no engine.wasm), EOPNOTSUPP (no WebAssembly, or a policy against it).
 */
export async function openDevice(options: OpenOptions = {}): Promise<Context> {
  const udp = 'address port name directory processesMax localMemoryBytes memoryBytesMax';
  const known = `${DEVICE_OPTIONS} ${udp} hugePages progress spinMicros socketBufferBytes sendSockets dscp keepsAlive`;
  checkKeys('openDevice', options, known);
  checkOpenOptions(options);
  // Before a thread is started for it.
  limitsOf(options);
  try {
    if (options.link) return new Context(await Device.open(options));
    return new Context(await openChosen(await chooseProgress(options)));
  } catch (error) {
    throw systemRefusal('openDevice', error);
  }
}

/** A thread of a device that is not opened ends. */
async function openChosen(options: DeviceOptions): Promise<Device> {
  const starting = options.thread?.starting;
  starting?.catch(() => {});
  try {
    return await Device.open(options);
  } catch (error) {
    starting?.then((worker) => worker.terminate()).catch(() => {});
    throw error;
  }
}

async function chooseProgress(options: UdpOpenOptions): Promise<DeviceOptions> {
  const { threadShare, socketBufferBytes, sendSockets, dscp, keepsAlive = true } = options;
  // A thread's port is its own: the device's is taken.
  const { address = threadShare?.address ?? '127.0.0.1', port = threadShare ? 0 : ROCE_PORT } =
    options;
  const udp = {
    address,
    port,
    ...(socketBufferBytes !== undefined && { socketBufferBytes }),
    ...(sendSockets !== undefined && { sendSockets }),
    ...(dscp !== undefined && { dscp }),
    ...(options.lending && { wakeDescriptor: options.lending.wakeDescriptor }),
  };
  const { posix } = await loadPosix();
  const { spinMicros = SPIN_MICROS } = options;
  const isLent = options.lending !== undefined;
  const { programDescriptor, nativeThread } = options.lending ?? {};
  const thread = { udp, spinMicros, keepsAlive, isLent, programDescriptor, nativeThread };
  if (options.name !== undefined) {
    const { progress = 'thread', name, directory, processesMax } = options;
    const { localMemoryBytes, memoryBytesMax, hugePages } = options;
    if (progress === 'inline') {
      // The kernel steers packets to each process's socket, which node:dgram does not expose.
      throw new MisuseError(
        'progress',
        `must be 'thread' or 'poll' for a device with a name, got '${progress}'`,
      );
    }
    const { address, port } = options;
    const place = { name, directory, address, port };
    const sizes = { processesMax, localMemoryBytes, memoryBytesMax, hugePages };
    const processShare = { ...place, ...sizes, deviceId: randomId() };
    if (progress === 'thread') return { ...options, thread, processShare };
    const makeLink = (where: UdpOptions): UdpBatchLink => new UdpBatchLink(where);
    return { ...options, polled: { udp, makeLink }, processShare };
  }
  switch (options.progress ?? (posix ? 'thread' : 'inline')) {
    case 'thread':
      checkUdpOptions(udp);
      return {
        ...options,
        thread: { ...thread, ...(!nativeThread && { starting: startThread() }) },
      };
    case 'poll':
      return { ...options, link: new UdpBatchLink(udp) };
    default:
      return { ...options, link: new UdpLink(udp) };
  }
}
