/**
 * A process with a store of one kind, on a failing disk: `node victim.js KIND PATH`. Commands are
 * IPC messages (Command), each is answered (Answer). A kill may end it at any point.
 */
import {
  AccessFlag,
  NvmeFileStore,
  PlacementType,
  SendFlag,
  WcStatusName,
  WrOpcode,
  openDevice,
  type Context,
  type MemoryRegion,
  type PersistentMemory,
} from '../../../host/index.js';
import { createLoopbackPair } from '../../../host/link/loopback.js';
import { FLUSH_ACCESS } from '../../support/durable.js';
import { connect, openSide, type Side } from '../../support/pair.js';

const LOCAL_AND_REMOTE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ;

export const REGION_BYTES = 2 ** 20;

/** Without this option a loop device over memory is refused. */
const OPTIONS = { bytes: REGION_BYTES, volatile: true };

/** The kind of store, and the side that requests the flush. */
export const STORE_KINDS = [
  'mapped',
  'mapped, FLUSH of a peer',
  'file',
  'file, FLUSH of a peer',
  'file, unshared memory',
  'NVMe file',
] as const;

export type StoreKind = (typeof STORE_KINDS)[number];

export type Command =
  | { readonly kind: 'open' }
  | { readonly kind: 'write'; readonly offset: number; readonly bytes: string }
  | { readonly kind: 'flush'; readonly offset: number; readonly length: number }
  | { readonly kind: 'read' }
  | { readonly kind: 'close' };

/** `code`: the error; undefined: success. `bytes`: in base64. */
export interface Answer {
  readonly code?: string;
  readonly message?: string;
  readonly bytes?: string;
  readonly count?: number;
}

interface Store {
  write(offset: number, bytes: Buffer): Promise<void>;
  flush(offset: number, length: number): Promise<void>;
  read(): Promise<Buffer>;
  close(): Promise<void>;
}

class NvmeStore implements Store {
  readonly #store: NvmeFileStore;

  private constructor(store: NvmeFileStore) {
    this.#store = store;
  }

  static async open(path: string): Promise<NvmeStore> {
    return new NvmeStore(await NvmeFileStore.open(path, REGION_BYTES));
  }

  write(offset: number, bytes: Buffer): Promise<void> {
    return this.#store.write(offset, bytes);
  }

  flush(): Promise<void> {
    return this.#store.flush();
  }

  async read(): Promise<Buffer> {
    const bytes = Buffer.alloc(REGION_BYTES);
    await this.#store.read(0, bytes);
    return bytes;
  }

  close(): Promise<void> {
    return this.#store.close();
  }
}

class Region implements Store {
  readonly pmem: PersistentMemory;
  readonly #context: Context;

  protected constructor(context: Context, pmem: PersistentMemory) {
    this.#context = context;
    this.pmem = pmem;
  }

  static async open(path: string, store: 'mapped' | 'file', sharedArrayBuffer: boolean) {
    const context = await openDevice({ link: createLoopbackPair().a, sharedArrayBuffer });
    try {
      return new Region(context, await context.openPmem(path, { ...OPTIONS, store }));
    } catch (error) {
      await context.close();
      throw error;
    }
  }

  write(offset: number, bytes: Buffer): Promise<void> {
    this.pmem.buffer.set(bytes, offset);
    return Promise.resolve();
  }

  flush(offset: number, length: number): Promise<void> {
    return this.pmem.flush(offset, length);
  }

  read(): Promise<Buffer> {
    return Promise.resolve(Buffer.from(this.pmem.buffer));
  }

  async close(): Promise<void> {
    try {
      await this.pmem.close();
    } finally {
      await this.#context.close().catch(() => undefined);
    }
  }
}

/** 2 s, eight tries: the time that a disk may take. */
const TIMEOUT = 19;

function openAt(address: string): Promise<Side> {
  const options = { bytes: REGION_BYTES, access: LOCAL_AND_REMOTE, cqe: 16 };
  return openSide({ address, port: 0 }, options);
}

/** Written by a peer's WRITE, made durable by its FLUSH. */
class RemoteRegion implements Store {
  readonly #pmem: PersistentMemory;
  readonly #there: Side;
  #here: Side;
  #mr: MemoryRegion;

  private constructor(here: Side, there: Side, pmem: PersistentMemory, mr: MemoryRegion) {
    this.#here = here;
    this.#there = there;
    this.#pmem = pmem;
    this.#mr = mr;
  }

  static async open(path: string, store: 'mapped' | 'file'): Promise<RemoteRegion> {
    const [here, there] = [await openAt('127.0.0.1'), await openAt('127.0.0.2')];
    try {
      const pmem = await there.context.openPmem(path, { ...OPTIONS, store });
      const mr = there.pd.regMr(pmem.buffer, FLUSH_ACCESS);
      const opened = new RemoteRegion(here, there, pmem, mr);
      opened.#connect();
      return opened;
    } catch (error) {
      await here.context.close();
      await there.context.close().catch(() => undefined);
      throw error;
    }
  }

  #connect(): void {
    const attributes = { qpAccessFlags: FLUSH_ACCESS, timeout: TIMEOUT };
    connect(this.#here.qp, this.#there, 1, 2, { attributes });
    connect(this.#there.qp, this.#here, 2, 1, { attributes });
  }

  /** A failed FLUSH ends the queue pairs: the next FLUSH uses new ones. */
  #reconnect(): void {
    const renew = (side: Side): Side => {
      side.qp.destroy();
      return { ...side, qp: side.pd.createQp({ sendCq: side.cq, recvCq: side.cq }) };
    };
    this.#here = renew(this.#here);
    Object.assign(this.#there, renew(this.#there));
    this.#connect();
  }

  async write(offset: number, bytes: Buffer): Promise<void> {
    const { qp, mr, buffer } = this.#here;
    buffer.set(bytes);
    qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: mr.addr, length: bytes.length, lkey: mr.lkey }],
      rdma: { remoteAddr: this.#mr.addr + BigInt(offset), rkey: this.#mr.rkey },
    });
    await this.#done();
  }

  async flush(offset: number, length: number): Promise<void> {
    const { rkey, addr } = this.#mr;
    const remoteAddr = addr + BigInt(offset);
    const flush = { remoteAddr, rkey, length, type: PlacementType.PERSISTENT };
    this.#here.qp.postSend({ opcode: WrOpcode.FLUSH, sendFlags: SendFlag.SIGNALED, flush });
    await this.#done();
  }

  async #done(): Promise<void> {
    const [done] = await this.#here.cq.wait();
    const status = WcStatusName[done!.status] ?? `${done!.status}`;
    if (status === 'SUCCESS') return;
    this.#reconnect();
    throw Object.assign(new Error(`completion status ${status}`), { code: status });
  }

  read(): Promise<Buffer> {
    return Promise.resolve(Buffer.from(this.#pmem.buffer));
  }

  async close(): Promise<void> {
    const { failure } = this.#pmem;
    await this.#here.context.close();
    // Closing a region that has failed rejects.
    await this.#there.context.close().catch(() => undefined);
    if (failure) throw failure;
  }
}

function openStore(kind: StoreKind, path: string): Promise<Store> {
  switch (kind) {
    case 'mapped':
    case 'file':
      return Region.open(path, kind, true);
    case 'file, unshared memory':
      return Region.open(path, 'file', false);
    case 'mapped, FLUSH of a peer':
      return RemoteRegion.open(path, 'mapped');
    case 'file, FLUSH of a peer':
      return RemoteRegion.open(path, 'file');
    case 'NVMe file':
      return NvmeStore.open(path);
  }
}

const [kind, path = ''] = process.argv.slice(2) as [StoreKind, string];
let store: Store | undefined;

async function perform(command: Command): Promise<Answer> {
  switch (command.kind) {
    case 'open':
      store = await openStore(kind, path);
      return {};
    case 'write':
      await store!.write(command.offset, Buffer.from(command.bytes, 'base64'));
      return {};
    case 'flush':
      await store!.flush(command.offset, command.length);
      return {};
    case 'read':
      return { bytes: (await store!.read()).toString('base64') };
    case 'close':
      await store!.close();
      return {};
  }
}

process.on('message', (command: Command) => {
  perform(command).then(
    (answer) => process.send!(answer),
    (error: NodeJS.ErrnoException) =>
      process.send!({ code: error.code ?? error.name, message: error.message } satisfies Answer),
  );
});
process.on('disconnect', () => process.exit(0));
