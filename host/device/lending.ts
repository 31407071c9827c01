/**
 * A device whose queues another process uses (host/bridge): that process maps the device's memory,
 * posts, rings doorbells and polls there. Control verbs stay in this process.
 */
import { ftruncateSync } from 'node:fs';
import type { BackMemory } from '../engine/memory.js';
import { RefusalError } from '../errors/errors.js';
import { loadPosix } from '../link/posix.js';

/** A native thread needs these to run the engine of a device. */
export interface NativeTask {
  readonly memory: ArrayBufferLike;
  /** Addresses in it: of the context, the ControlBlock, and memory for received datagrams. */
  readonly context: number;
  readonly control: number;
  readonly slots: number;
  /** Descriptors: the link's socket, the set of its groups' sockets, and as in `Lending`. */
  readonly socketDescriptor: number;
  readonly groupSet: number;
  readonly wakeDescriptor: number;
  readonly programDescriptor: number;
  /** May runs of packets leave as one? */
  readonly canSegment: boolean;
  readonly spinMicros: number;
  /** There are events, packets of groups, FLUSHes, or a failure (ControlBlock.takeCall). */
  called(): void;
}

/** A native thread at work. */
export interface RunningNative {
  /** Name of the error by which the link is lost, or EFAULT: the engine has trapped. */
  readonly failure: string | undefined;
  /** Pipes that it writes events of completion queues to, instead of calling. */
  readonly channels: NativeChannels;
  /** Behind ControlBlock.stop: returns when the thread has ended. */
  join(): void;
}

export interface NativeChannels {
  /** Each event of the queue at that address is a record with its number. */
  add(queue: number, descriptor: number, number: bigint): void;
  /** No event follows the return: of a queue, or of all queues of a pipe. */
  dropQueue(queue: number): void;
  drop(descriptor: number): void;
}

/** A thread in place of the Worker that runs the engine (host/bridge/native-thread.ts). */
export interface NativeThread {
  /** Bytes of memory for received datagrams. */
  readonly slotsBytes: number;
  /** Why it cannot run the engine on this memory; undefined: it can. */
  refusal(memory: ArrayBufferLike): string | undefined;
  start(task: NativeTask): RunningNative;
}

/** Descriptors that both processes have. */
export interface Lending {
  /** A memory file (memfd_create), which gets the size of the device's memory. */
  readonly memoryDescriptor: number;
  /** An eventfd that wakes the device's thread; unused with a link of the caller. */
  readonly wakeDescriptor: number;
  /** A socket to the other process, if it makes turns: it hangs up when that process ends. */
  readonly programDescriptor?: number;
  /** Runs the engine while that process does not; without it a Worker does. */
  readonly nativeThread?: NativeThread;
}

/** Maps the memory file over a new memory. Rejects with RefusalError EOPNOTSUPP without koffi. */
export async function backBy({ memoryDescriptor }: Lending): Promise<BackMemory> {
  const { posix, reason } = await loadPosix();
  if (!posix) throw new RefusalError('EOPNOTSUPP', `a lent device needs koffi: ${reason}`);
  return (buffer) => {
    ftruncateSync(memoryDescriptor, buffer.byteLength);
    posix.mapFile(memoryDescriptor, posix.addressOf(buffer), buffer.byteLength);
  };
}
