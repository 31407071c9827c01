/**
 * A device that several processes share, as one of them sees it: the file mapped into its memory,
 * its slot, and how it comes and goes.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ArenaLayout,
  DEVICE_HEADER_SIZE,
  DEVICE_MAGIC_COUNT,
  DEVICE_VERSION_COUNT,
  DeviceHeaderLayout,
} from '#build/abi.js';
import { ArenaMemory, type SharedLimits } from '../../engine/arena.js';
import { EngineMemory, MEMORY_BYTES_MAX, type BackMemory } from '../../engine/memory.js';
import { SharedHeap } from '../../engine/shared-heap.js';
import type { FileStorage } from '../../engine/unheld-storage.js';
import { structAt } from '../../engine/struct.js';
import { checkWhole } from '../../errors/check-whole.js';
import { RefusalError } from '../../errors/errors.js';
import { systemRefusal } from '../../errors/system-refusal.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import { explainBind, checkUdpOptions } from '../../link/udp/local-address.js';
import { ROCE_PORT } from '../../link/link.js';
import { loadPosix } from '../../link/posix.js';
import * as sys from '../../link/posix.js';
import type { UdpBatchLink } from '../../link/udp/udp-batch.js';
import type { UdpOptions } from '../../link/udp/udp-options.js';
import { ArenaLock, FileLock } from './arena-lock.js';
import { deviceDirectory } from './device-directory.js';
import { DeviceFile, buildHash, headerChecksum, removeDeadFiles } from './device-file.js';
import { forgetAtExit, removeAtExit } from './exit-removal.js';
import { hugePagesOf, requireHugePages, type HugePages } from './huge-pages.js';
import { openPacketInbox, type PacketInbox } from './packet-inbox.js';
import { Members, type Member } from './members.js';

export interface SharedOptions {
  /** Letters, digits, dots and dashes. All processes that name it share one device. */
  readonly name: string;
  /** The directory of its file. Default: the user's own in /dev/shm (`device-directory.ts`). */
  readonly directory?: string | undefined;
  /** The creator's limit of processes, at most 256. Default 32. */
  readonly processesMax?: number | undefined;
  /** The creator's choice of memory of each process for its queues. Default 64 MiB. */
  readonly localMemoryBytes?: number | undefined;
  /** The creator's choice of how far the device's memory may grow. Default: memoryBytes. */
  readonly memoryBytesMax?: number | undefined;
  /** True: only with huge pages. Default: as the file system does. */
  readonly hugePages?: boolean | undefined;
  /** Where it is thought to be; left out, wherever it is. */
  readonly address?: string | undefined;
  readonly port?: number | undefined;
  /** Drawn by each process that opens; used if it creates the device. */
  readonly deviceId: bigint;
  /** Storage of the memory of this process alone. Default: the system's. */
  readonly back?: BackMemory | undefined;
}

/** Sizes of a device, which the process that creates it fixes for all. */
export interface SharedSizes {
  readonly memoryBytes: number;
  readonly regionsMax: number;
  readonly protectionDomainsMax: number;
  readonly poolUsersMax: number;
}

/** Sizes that a process requests; absent ones are as the device has them. */
type Asked = { readonly [Name in keyof SharedSizes]?: number | undefined };

const PROCESSES_MAX = 32;
const LOCAL_MEMORY_BYTES = 64 * 2 ** 20;
const LOCAL_MEMORY_BYTES_MAX = 2 ** 30;
const BLOCKS_MAX = 4096;
const SERVICES_MAX = 1024;
const INBOX_ENTRIES = 16;
const PAGE = 65536;
/** Others leave a call of their engine within microseconds, when they run. */
const BEGIN_ATTEMPTS = 100;
const BEGIN_RETRY_MILLIS = 5;
/** Milliseconds between two checks for dead processes while a caller polls behind a fence. */
const LOOK_INTERVAL_MILLIS = 10;

/** Range of each number of a header that is to be believed. */
const LIMITS: { readonly [Name in keyof SharedLimits]: number } = {
  regionsMax: 2 ** 22,
  protectionDomainsMax: 65535,
  contextsMax: 256,
  blocksMax: 2 ** 20,
  servicesMax: 2 ** 16,
  inboxEntries: 4096,
  poolUsersMax: 65534,
};

/** State of the device file, or the state to create it with. */
interface Found {
  readonly limits: SharedLimits;
  /** Address of the shared memory in all processes, and its size. */
  readonly sharedAddress: number;
  readonly sharedBytes: number;
  /** Of a new device: bytes that have storage from the begin. */
  readonly committedBytes: number;
  readonly isNew: boolean;
  readonly local: Endpoint | undefined;
  readonly deviceId: bigint;
}

export class SharedDevice {
  readonly arena: ArenaMemory;
  readonly members: Members;
  readonly slot: number;
  readonly name: string;
  readonly deviceId: bigint;
  /** Where the device is; undefined: this process decides. */
  readonly local: Endpoint | undefined;
  readonly #file: DeviceFile;
  readonly #found: Found;
  readonly #lock: ArenaLock;
  readonly #storage: FileStorage;
  #lookedMillis = 0;

  private constructor(file: DeviceFile, name: string, memory: EngineMemory, found: Found) {
    const { limits, sharedAddress, isNew, local, deviceId } = found;
    this.#file = file;
    this.#found = found;
    this.name = name;
    this.local = local;
    this.deviceId = deviceId;
    this.slot = takeSlot(file, found);
    const commit = (address: number, bytes: number): void =>
      file.commit(address - sharedAddress, bytes);
    const release = (address: number, bytes: number): void =>
      file.release(address - sharedAddress, bytes);
    this.#storage = {
      commit,
      release,
      locked: (work) => this.locked(work),
      // It changes: heaps give storage back.
      get isSparse() {
        return file.isSparse;
      },
    };
    this.arena = ArenaMemory.attach(
      memory,
      sharedAddress,
      limits,
      this.slot,
      isNew ? commit : undefined,
    );
    const { holder, state } = structAt(memory, ArenaLayout, this.arena.address);
    const word = state + ArenaLayout.fields.lock[0];
    const { exports, address } = this.arena;
    this.#lock = new ArenaLock(new FileLock(file, memory, word, holder), {
      repair: () => exports.arenaRepair(address),
      look: () => this.members.look(),
      explainHeld: () => {
        const slot = (memory.words[word >>> 2]! & 0xffff) - 1;
        const held = `holds the tables of ${name}, without an end for seconds`;
        return `${this.members.describe(slot)} ${held}; continue or end it`;
      },
      explainBusy: () =>
        `${this.members.inCall()} does not leave the memory of ${name}; continue or end it`,
    });
    this.members = new Members({ file, lock: this.#lock, arena: this.arena, slot: this.slot });
  }

  /**
   * Attaches to the device of that name, or creates it. No other process attaches or detaches until
   * `attach` or `abandon`. `since`: seconds since 1970. Throws MisuseError for options out of range;
   * RefusalError EOPNOTSUPP (no koffi), EACCES, EINVAL (foreign file, or a smaller device than
   * requested), EPROTO (another build), EIO (damaged), ENOSPC (no room for the file), EBUSY (no
   * free slot), ENOENT (no such directory), ENOMEM.
   */
  static async open(
    options: SharedOptions,
    sizes: Asked,
    defaults: SharedSizes,
    since: number,
  ): Promise<SharedDevice> {
    const { name } = options;
    const { processesMax = PROCESSES_MAX, localMemoryBytes = LOCAL_MEMORY_BYTES } = options;
    checkWhole('processesMax', processesMax, 1, 256);
    checkWhole('localMemoryBytes', localMemoryBytes, 2 ** 20, LOCAL_MEMORY_BYTES_MAX);
    const { posix, reason } = await loadPosix();
    if (!posix) {
      throw new RefusalError(
        'EOPNOTSUPP',
        `a device with a name needs koffi: ${reason}; threads of one process share one without (context.share)`,
      );
    }
    const { directory = deviceDirectory(posix.effectiveUser) } = options;
    if (options.hugePages) requireHugePages(directory);
    const pages = hugePagesIn(directory);
    // Before others are kept from coming, as all that can be.
    removeDeadFiles(posix, directory);
    buildHash();
    const file = await DeviceFile.open(posix, name, directory);
    try {
      const found =
        file.size === 0 ? describe(defaults, options, pages) : read(file, sizes, options);
      if (found.isNew) file.allocate(found.sharedBytes, found.committedBytes);
      const memory = makeMemory(file, found, options.back, pages);
      const shared = new SharedDevice(file, name, memory, found);
      for (let attempt = 0; attempt < BEGIN_ATTEMPTS; attempt++) {
        if (shared.members.begin(since)) return shared;
        await sleep(BEGIN_RETRY_MILLIS);
      }
      throw new RefusalError(
        'EBUSY',
        `openDevice: the slot of a dead process of ${name} is still in use; try again`,
      );
    } catch (error) {
      abandon(file);
      throw error;
    }
  }

  /** File and address of the shared memory: another process can map it, too (host/bridge). */
  get segment(): { readonly path: string; readonly address: number; readonly bytes: number } {
    const { sharedAddress, sharedBytes } = this.#found;
    return { path: this.#file.path, address: sharedAddress, bytes: sharedBytes };
  }

  /**
   * The endpoint for this process's socket: the device's endpoint if it has one. Throws
   * RefusalError EINVAL for another endpoint; LinkError if another device has it.
   */
  async choose(
    udp: UdpOptions,
    asked: Pick<SharedOptions, 'address' | 'port'>,
  ): Promise<UdpOptions> {
    const { local } = this;
    if (!local) {
      await checkAddress(udp.address, udp.port ?? ROCE_PORT);
      return { ...udp, reusePort: true };
    }
    const elsewhere =
      (asked.address !== undefined && !Gid.parse(asked.address).equals(local.gid)) ||
      (asked.port !== undefined && asked.port !== 0 && asked.port !== local.port);
    if (elsewhere)
      throw new RefusalError(
        'EINVAL',
        `openDevice: ${this.name} is at ${local}; leave address and port out`,
      );
    return { ...udp, address: `${local.gid}`, port: local.port, reusePort: true };
  }

  /** For a link of this thread's, which may be open or not. */
  packetInbox(link: UdpBatchLink): Promise<PacketInbox> {
    const { memory, address } = this.arena;
    return openPacketInbox(memory, { arena: address, slot: this.slot }, link);
  }

  /**
   * The socket is open: this process takes part, and others attach and detach again. From here on
   * only `close` ends it. `wakePort`: as `Members.enter` takes it.
   */
  attach(local: Endpoint, socket: number, wakePort: number): void {
    if (this.#found.isNew) this.#writeHeader(local);
    this.members.enter(socket, wakePort);
    this.members.start();
    removeAtExit(this.#file, this.slot);
    this.#file.leave();
  }

  /** The engine has a context. */
  start(context: number): void {
    this.arena.exports = this.#lock.guard(this.arena.exports);
    this.arena.userHeap = new SharedHeap(this.arena, context, this.#storage);
  }

  /** After a refusal: ends it, however far it came. `stop`: as `close` takes it. */
  async abandon(stop: () => Promise<void>): Promise<void> {
    if (this.members.active) {
      // The others reclaim what it cannot return now.
      await this.close(stop).catch(() => undefined);
      return;
    }
    await stop();
    abandon(this.#file);
  }

  /** Works with the tables to itself. Throws RefusalError EBUSY. */
  locked<Result>(work: () => Result): Result {
    return this.#lock.run(work);
  }

  /**
   * Requests for this service id are ours, whichever process they arrive at. Throws RefusalError
   * EADDRINUSE (another process has it), ENOMEM.
   */
  takeService(id: bigint): void {
    const result = this.locked(() => this.members.services.take(id, this.slot));
    if (result === 'ours') return;
    const name = `service 0x${id.toString(16)}`;
    if (result === 'full')
      throw new RefusalError(
        'ENOMEM',
        `listen: all slots for ${name} are taken; close another listener`,
      );
    throw new RefusalError(
      'EADDRINUSE',
      `listen: another process of ${this.name} listens to ${name}; choose another port`,
    );
  }

  giveBackService(id: bigint): void {
    // Services that remain end with this process.
    if (this.members.active) this.locked(() => this.members.services.giveBack(id, this.slot));
  }

  /** Checks for dead processes now, at most once per LOOK_INTERVAL_MILLIS. */
  lookNow(): void {
    const now = performance.now();
    if (now - this.#lookedMillis < LOOK_INTERVAL_MILLIS) return;
    this.#lookedMillis = now;
    this.members.look();
  }

  processes(): Member[] {
    return this.members.list();
  }

  /**
   * Returns all resources of this process; `stop` ends engine and link in between. What cannot be
   * returned, the other processes reclaim, as after a death. Then it closes all the same and
   * rejects with RefusalError.
   */
  async close(stop: () => Promise<void>): Promise<void> {
    this.members.stop();
    forgetAtExit(this.#file);
    await this.#file.join().catch(() => undefined);
    try {
      try {
        this.members.exit();
      } finally {
        await stop();
      }
      this.members.leave();
      this.#file.releaseSlot(this.slot);
    } finally {
      abandon(this.#file);
    }
  }

  #writeHeader(local: Endpoint): void {
    const { memory } = this.arena;
    const gid = new DataView(local.gid.bytes.buffer);
    const start = this.#found.sharedAddress;
    const header = structAt(memory, DeviceHeaderLayout, start);
    Object.assign(header, this.#found.limits, {
      magic: DEVICE_MAGIC_COUNT,
      version: DEVICE_VERSION_COUNT,
      build: buildHash(),
      deviceId: this.deviceId,
      localGid0: gid.getBigUint64(0, true),
      localGid1: gid.getBigUint64(8, true),
      localPort: local.port,
      address: start,
      fileBytes: this.#found.sharedBytes,
    });
    header.checksum = headerChecksum(memory.bytes.subarray(start, start + DEVICE_HEADER_SIZE));
    header.ready = 1;
  }
}

/**
 * Checks that the endpoint is free. Sockets that may share a port do not fail, so a plain socket is
 * bound. Rejects with LinkError as a link does.
 */
async function checkAddress(address: string, port: number): Promise<void> {
  const { posix } = await loadPosix();
  if (!posix || port === 0) return;
  const local = checkUdpOptions({ address, port });
  const fd = posix.datagramSocket(local.gid.isIpv4 ? sys.AF_INET : sys.AF_INET6);
  try {
    posix.bind(fd, local.gid, port, local.zone.slice(1));
  } catch (error) {
    throw await explainBind(local, error as NodeJS.ErrnoException);
  } finally {
    posix.close(fd);
  }
}

function describe(sizes: SharedSizes, options: SharedOptions, pages?: HugePages): Found {
  const limits = {
    regionsMax: sizes.regionsMax,
    protectionDomainsMax: sizes.protectionDomainsMax,
    contextsMax: options.processesMax ?? PROCESSES_MAX,
    blocksMax: BLOCKS_MAX,
    servicesMax: SERVICES_MAX,
    inboxEntries: INBOX_ENTRIES,
    poolUsersMax: sizes.poolUsersMax,
  };
  checkWhole('regionsMax', limits.regionsMax, 1, LIMITS.regionsMax);
  checkWhole('protectionDomainsMax', limits.protectionDomainsMax, 1, LIMITS.protectionDomainsMax);
  const { deviceId, localMemoryBytes = LOCAL_MEMORY_BYTES } = options;
  // A huge page begins at a multiple of its size, and so does the memory of an engine.
  const page = pages?.bytes ?? PAGE;
  const sharedAddress = Math.ceil(localMemoryBytes / page) * page;
  const most = MEMORY_BYTES_MAX - PAGE - sharedAddress;
  checkWhole('memoryBytes', sizes.memoryBytes, PAGE, most);
  const { memoryBytesMax = sizes.memoryBytes } = options;
  checkWhole('memoryBytesMax', memoryBytesMax, sizes.memoryBytes, most);
  const committedBytes = Math.ceil(sizes.memoryBytes / page) * page;
  const sharedBytes = Math.ceil(memoryBytesMax / page) * page;
  const place = { limits, sharedAddress, sharedBytes, committedBytes };
  return { ...place, isNew: true, local: undefined, deviceId };
}

/** The values of the header, if they are valid and sufficient for the options. */
function read(
  file: DeviceFile,
  sizes: Asked,
  { processesMax, localMemoryBytes, memoryBytesMax }: SharedOptions,
): Found {
  const header = file.readHeader();
  const wrong = (what: string): RefusalError =>
    new RefusalError('EIO', `${file.path} is damaged: its header says ${what}`);
  for (const name of Object.keys(LIMITS) as (keyof SharedLimits)[]) {
    const value = header[name];
    if (value < 1 || value > LIMITS[name]) throw wrong(`${name} ${value}`);
  }
  const { fileBytes, address: sharedAddress } = header;
  const end = sharedAddress + fileBytes;
  const isWhole = fileBytes % PAGE === 0 && sharedAddress % PAGE === 0;
  if (!isWhole || sharedAddress > LOCAL_MEMORY_BYTES_MAX || end > MEMORY_BYTES_MAX - PAGE) {
    throw wrong(`${fileBytes} bytes at ${sharedAddress}`);
  }
  const limits = Object.fromEntries(
    Object.keys(LIMITS).map((name) => [name, header[name as keyof SharedLimits]]),
  ) as unknown as SharedLimits;
  const enough: readonly [name: string, asked: number | undefined, there: number][] = [
    ['memoryBytes', sizes.memoryBytes, fileBytes],
    ['memoryBytesMax', memoryBytesMax, fileBytes],
    ['regionsMax', sizes.regionsMax, limits.regionsMax],
    ['protectionDomainsMax', sizes.protectionDomainsMax, limits.protectionDomainsMax],
    ['poolUsersMax', sizes.poolUsersMax, limits.poolUsersMax],
    ['processesMax', processesMax, limits.contextsMax],
    ['localMemoryBytes', localMemoryBytes, sharedAddress],
  ];
  for (const [name, asked = 0, there] of enough) {
    if (asked <= there) continue;
    throw new RefusalError(
      'EINVAL',
      `openDevice: ${file.path} has ${name} ${there}, less than the requested ` +
        `${asked}: its first process set it; request less, or end its processes and open it ` +
        'with this size first',
    );
  }
  const gid = new DataView(new ArrayBuffer(16));
  gid.setBigUint64(0, header.localGid0, true);
  gid.setBigUint64(8, header.localGid1, true);
  const local = new Endpoint(new Gid(new Uint8Array(gid.buffer)), header.localPort);
  const { deviceId } = header;
  const place = { limits, sharedAddress, sharedBytes: fileBytes, committedBytes: 0 };
  return { ...place, isNew: false, local, deviceId };
}

/** Huge pages that the file system of a device's file has; undefined: none, or unknown. */
function hugePagesIn(directory: string): HugePages | undefined {
  try {
    const pages = hugePagesOf(directory);
    return typeof pages === 'string' ? undefined : pages;
  } catch {
    // The directory went meanwhile: the next call on the file says so.
    return undefined;
  }
}

/** Memory of our own, and the file behind it. */
function makeMemory(
  file: DeviceFile,
  { sharedAddress, sharedBytes, committedBytes }: Found,
  back: BackMemory | undefined,
  pages: HugePages | undefined,
): EngineMemory {
  const bytes = sharedAddress + sharedBytes;
  let memory: EngineMemory;
  try {
    memory = EngineMemory.create(bytes, true, back);
  } catch (error) {
    const sentence = `openDevice: the system gives no ${bytes} bytes of WebAssembly memory; lower memoryBytes`;
    throw new RefusalError('ENOMEM', sentence, { cause: error });
  }
  file.map(memory.buffer, sharedAddress, sharedBytes, committedBytes, pages);
  return memory;
}

/** The first free slot. */
function takeSlot(file: DeviceFile, found: Found): number {
  const { contextsMax } = found.limits;
  for (let slot = 0; slot < contextsMax; slot++) if (file.takeSlot(slot)) return slot;
  throw new RefusalError(
    'EBUSY',
    `openDevice: all ${contextsMax} slots for processes are taken; raise processesMax`,
  );
}

/** Removes a file that no other process uses. */
function abandon(file: DeviceFile): void {
  try {
    if (!file.isShared) file.remove();
  } catch (error) {
    throw systemRefusal(`close of ${file.path}`, error);
  } finally {
    file.close();
  }
}
