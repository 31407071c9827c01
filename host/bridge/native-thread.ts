/**
 * The device's thread as a native one (device-thread.c), in place of a Worker: it needs no second
 * JavaScript heap.
 */
import { Socket } from 'node:net';
import { availableParallelism } from 'node:os';
import type { NativeChannels, NativeTask, NativeThread, RunningNative } from '../device/lending.js';
import { LinkError, RefusalError } from '../errors/errors.js';
import { loadLibrary, type NativeLibrary } from '../link/native-calls.js';
import { PosixError, loadPosix } from '../link/posix.js';
import { THREAD } from './operations.js';

/** Slots for datagrams that the thread receives, as of a Worker's link. */
const SLOTS_BYTES = 16 * 65536;

/** Of the errors with which a thread does not start. */
const REFUSERS: { readonly [Code in string]?: string } = {
  EAGAIN: 'pthread_create',
  EFAULT: 'verbena_thread_start',
};

/** Memory of threads that do not end. */
const spoiled: ArrayBufferLike[] = [];

/** Words of `task`, on memory that begins at `base`. */
function wordsOf(task: NativeTask, base: number): BigUint64Array {
  const values: { readonly [Name in (typeof THREAD)[number]]: number } = {
    BASE: base,
    BYTES: task.memory.byteLength,
    CONTEXT: task.context,
    CONTROL: task.control,
    SLOTS: task.slots,
    SLOTS_BYTES,
    SOCKET: task.socketDescriptor,
    GROUPS: task.groupSet,
    WAKE: task.wakeDescriptor,
    PROGRAM: task.programDescriptor,
    CAN_SEGMENT: Number(task.canSegment),
    SPIN_MICROS: task.spinMicros,
    PROCESSORS: availableParallelism(),
  };
  return BigUint64Array.from(THREAD, (name) => BigInt(values[name]));
}

/** Of event-channels.c. */
function channelsOf(library: NativeLibrary): NativeChannels {
  const add = library.func<(queue: number, fd: number, number: number) => number>(
    'int verbena_channel_add(uint32_t, int, uint64_t)',
  );
  const dropQueue = library.func<(queue: number) => number>(
    'int verbena_channel_drop_queue(uint32_t)',
  );
  const drop = library.func<(fd: number) => number>('int verbena_channel_drop(int)');
  return {
    add: (queue, descriptor, number) => {
      if (add(queue, descriptor, Number(number)) === 0) return;
      throw new RefusalError('ENOMEM', 'CREATE_CQ: no memory for its channel; destroy others');
    },
    dropQueue: (queue) => void dropQueue(queue),
    drop: (descriptor) => void drop(descriptor),
  };
}

/** The thread that `file`, the library of `verbena run`, has. Rejects if it does not load. */
export async function loadNativeThread(file: string): Promise<NativeThread> {
  const { posix, reason } = await loadPosix();
  if (!posix) throw new LinkError('EOPNOTSUPP', `a native thread needs koffi: ${reason}`);
  const library = await loadLibrary(file);
  const check = library.func<(base: number, bytes: number) => number>(
    'int verbena_thread_check(uint64_t, uint64_t)',
  );
  const start = library.func<(words: Uint8Array) => number>(
    'int verbena_thread_start(const void *)',
  );
  const join = library.func<() => number>('int verbena_thread_join()');
  const failure = library.func<() => number>('int verbena_thread_failure()');
  const channels = channelsOf(library);
  return {
    slotsBytes: SLOTS_BYTES,
    refusal: (memory) => {
      const errno = check(posix.addressOf(memory), memory.byteLength);
      return errno === 0 ? undefined : posix.errnoName(errno);
    },
    start: (task): RunningNative => {
      const words = wordsOf(task, posix.addressOf(task.memory));
      const fd = start(new Uint8Array(words.buffer));
      const code = fd < 0 ? posix.errnoName(-fd) : '';
      if (fd < 0) throw new PosixError(REFUSERS[code] ?? 'pipe2', code);
      const calls = new Socket({ fd, readable: true, writable: false });
      calls.on('data', () => task.called());
      calls.on('error', () => undefined);
      calls.unref();
      return {
        get failure() {
          const errno = failure();
          return errno === 0 ? undefined : posix.errnoName(errno);
        },
        channels,
        join: () => {
          if (join() !== 0) spoiled.push(task.memory);
          calls.destroy();
        },
      };
    },
  };
}
