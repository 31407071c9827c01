/** Stands in for open-region.ts in a browser: the file lies in the origin's private file system. */
import type { Device } from '../device/device.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { OpfsOpened, OpfsTask } from './opfs-thread.js';
import type { OpenRegion, PmemOptions } from './open-options.js';
import { SyncStore, type StartSyncWorker, type SyncAnswer } from './sync-store.js';

/** Part of Worker that is used; the DOM's types are not here. */
interface WebWorker {
  onmessage: ((event: { readonly data: never }) => void) | null;
  onerror: ((event: { readonly message?: string; preventDefault(): void }) => void) | null;
  postMessage(message: OpfsTask, transfer?: readonly ArrayBuffer[]): void;
  terminate(): void;
}

interface WebWorkerClass {
  new (url: URL, options: { readonly type: 'module' }): WebWorker;
}

const ALIGNMENT = 64;
/** A Worker that does not say that it has let go is ended anyway. */
const END_MILLIS = 2000;

/** As in Node; `path` is the name of a file of this origin. */
export async function openRegion(
  device: Device,
  path: string,
  options: PmemOptions,
  newId: bigint,
): Promise<OpenRegion> {
  if (options.store !== undefined) {
    const sentence = `openPmem: store '${options.store}' is for Node`;
    throw new RefusalError('EOPNOTSUPP', `${sentence}: leave it out for the browser's own files`);
  }
  const worker = startWorker();
  try {
    const { bytes } = options;
    const size = bytes === undefined ? {} : { bytes };
    const { id, contents } = await opened(worker, { open: { name: path, newId, ...size } });
    return place(device, path, worker, id!, contents!);
  } catch (error) {
    await end(worker);
    throw error;
  }
}

function place(
  device: Device,
  path: string,
  worker: WebWorker,
  id: bigint,
  contents: Uint8Array,
): OpenRegion {
  const { heap, memory } = device.arena;
  const start = heap.alloc(contents.length, ALIGNMENT);
  const buffer = memory.bytes.subarray(start, start + contents.length);
  buffer.set(contents);
  const store = new SyncStore(syncWorkerOf(worker), new Int32Array(1), buffer);
  const close = (): void => {
    buffer.fill(0);
    heap.free(start);
  };
  const durabilityReason = 'the origin private file system of this browser';
  return {
    ...{ buffer, id, path, kind: 'opfs', durability: 'browser', durabilityReason },
    ...{ store, durable: store, close },
  };
}

function startWorker(): WebWorker {
  const { Worker } = globalThis as unknown as { Worker: WebWorkerClass };
  try {
    return new Worker(new URL('./opfs-thread.js', import.meta.url), { type: 'module' });
  } catch (cause) {
    const sentence = `openPmem: no Worker starts here: ${(cause as Error).message}`;
    const remedy = 'open the device in a page without sandbox';
    throw new RefusalError('EOPNOTSUPP', `${sentence}; ${remedy}`, { cause });
  }
}

function opened(worker: WebWorker, task: OpfsTask): Promise<OpfsOpened> {
  return new Promise((resolve, reject) => {
    worker.onerror = (event) => {
      event.preventDefault();
      const reason = event.message ?? 'it does not load';
      reject(new RefusalError('ENOENT', `openPmem: opfs-thread.js: ${reason}`));
    };
    worker.onmessage = ({ data }: { readonly data: OpfsOpened }) => {
      const { refusal, misuse } = data;
      if (misuse) reject(new MisuseError(misuse.argument, misuse.rule));
      else if (refusal) reject(new RefusalError(refusal.code, refusal.message));
      else resolve(data);
    };
    worker.postMessage(task);
  });
}

function syncWorkerOf(worker: WebWorker): StartSyncWorker {
  return (answered, failed) => {
    worker.onmessage = ({ data }: { readonly data: SyncAnswer }) => answered(data);
    worker.onerror = ({ message }) => failed(new Error(message ?? 'the Worker failed'));
    return {
      post: (request) =>
        worker.postMessage(
          request,
          request.ranges.map(({ bytes }) => bytes!.buffer),
        ),
      keep: () => {},
      end: () => end(worker),
    };
  };
}

/** The file can be opened anew when it resolves. */
async function end(worker: WebWorker): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, END_MILLIS);
    worker.onmessage = () => {
      clearTimeout(timer);
      resolve();
    };
    worker.postMessage({ end: true });
  });
  worker.terminate();
}
