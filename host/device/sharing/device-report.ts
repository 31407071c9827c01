/**
 * The state of a shared device, read from its file by a process that is not a member, while the
 * members run. The values are read at different moments.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import {
  ARENA_OFFSET_SIZE,
  ArenaLayout,
  AttachmentLayout,
  BLOCK_SIZE,
  BlockLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  KeyEntryLayout,
  KeyKind,
  KeyNoteLayout,
  KeyState,
  LocalEndpointLayout,
  ProtectionDomainLayout,
  SlotState,
} from '#build/abi.js';
import { structAt, type Layout, type Struct } from '../../engine/struct.js';
import { RefusalError } from '../../errors/errors.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import { loadPosix } from '../../link/posix.js';
import { SHARED_MEMORY, findDeviceDirectory } from './device-directory.js';
import { readHeader, slotIsAlive, type DeviceHeader } from './device-file.js';

export interface DeviceReport {
  readonly path: string;
  readonly address: string;
  readonly memoryBytes: number;
  /** Of the shared heap. */
  readonly memoryHeldBytes: number;
  readonly processes: readonly ProcessReport[];
  readonly domains: readonly DomainReport[];
  readonly keys: number;
  readonly keysMax: number;
}

export interface ProcessReport {
  readonly slot: number;
  readonly pid: number;
  /** Seconds since 1970. */
  readonly since: number;
  /** False: the process is dead, and its resources are not reclaimed yet. */
  readonly alive: boolean;
  readonly regions: number;
  readonly windows: number;
  readonly layouts: number;
  /** Bytes of the shared heap that it holds, alone or with others. */
  readonly heldBytes: number;
  /** Packets for it that arrived at another process's socket; and those that were lost so. */
  readonly mail: number;
  readonly mailDropped: number;
  /** Requests that it has executed without packets (the local path). */
  readonly localRequests: number;
  /** Its queue pairs that other processes of the device reach without packets. */
  readonly localEndpoints: number;
}

export interface DomainReport {
  readonly handle: number;
  /** Has it a handle (`allocShpd`)? */
  readonly shared: boolean;
  /** Members by slot, with the number of their regions and queue pairs. */
  readonly instances: readonly { readonly slot: number; readonly uses: number }[];
  readonly keys: number;
}

/** Throws RefusalError: ENOENT (no such device), and as `openDevice` does for invalid files. */
export function reportDevice(name: string, directory?: string): Promise<DeviceReport> {
  return lookAt(name, directory, (tables, path, alive) => tables.report(path, alive));
}

/** @internal `look` sees the tables of that device as they are now. Throws as reportDevice. */
export async function lookAt<Seen>(
  name: string,
  directory: string | undefined,
  look: (tables: DeviceTables, path: string, alive: (slot: number) => boolean) => Seen,
): Promise<Seen> {
  const { posix, reason } = await loadPosix();
  if (!posix) throw new RefusalError('EOPNOTSUPP', `devices with names need koffi: ${reason}`);
  const own = directory ?? findDeviceDirectory(posix.effectiveUser) ?? SHARED_MEMORY;
  const path = join(own, `verbena-${name}`);
  const fd = openExisting(path);
  try {
    const header = readHeader(fd, path);
    return look(new DeviceTables(fd, header), path, (slot) => slotIsAlive(posix, fd, slot));
  } finally {
    closeSync(fd);
  }
}

function openExisting(path: string): number {
  try {
    return openSync(path, constants.O_RDWR | constants.O_NOFOLLOW);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT')
      throw new RefusalError('ENOENT', `report: no process has ${path} open; check the name`);
    throw new RefusalError('EACCES', `${path} may not be opened by this user; run as its owner`, {
      cause: error,
    });
  }
}

/** @internal */
export class DeviceTables {
  readonly #header: DeviceHeader;
  readonly #view: DataView;
  readonly #arena: Struct<typeof ArenaLayout>;

  constructor(fd: number, header: DeviceHeader) {
    this.#header = header;
    const start = Buffer.alloc(ARENA_OFFSET_SIZE + ArenaLayout.size);
    readSync(fd, start, 0, start.length, 0);
    const { heapStart } = structAt(viewOf(start), ArenaLayout, ARENA_OFFSET_SIZE);
    const bytes = Buffer.alloc(Math.min(Math.max(heapStart - header.address, 0), header.fileBytes));
    readSync(fd, bytes, 0, bytes.length, 0);
    this.#view = viewOf(bytes).view;
    this.#arena = structAt({ view: this.#view }, ArenaLayout, ARENA_OFFSET_SIZE);
  }

  /** Where tables lie: subtract `base`. */
  get arena(): Struct<typeof ArenaLayout> {
    return this.#arena;
  }

  get base(): number {
    return this.#header.address;
  }

  /** Bytes of a struct. */
  bytes(start: number, length: number): Uint8Array {
    const { buffer, byteOffset, byteLength } = this.#view;
    const from = Math.min(Math.max(start, 0), byteLength);
    return new Uint8Array(buffer, byteOffset + from, Math.min(length, byteLength - from));
  }

  /** As many structs as there are in the file, from `start` on. */
  all<L extends Layout>(layout: L, start: number, count: number, stride?: number) {
    return this.#all(layout, start, count, stride);
  }

  report(path: string, alive: (slot: number) => boolean): DeviceReport {
    const { address: base, localGid0, localGid1, localPort, fileBytes, regionsMax } = this.#header;
    const gid = new DataView(new ArrayBuffer(16));
    gid.setBigUint64(0, localGid0, true);
    gid.setBigUint64(8, localGid1, true);
    const arena = this.#arena;
    const { keyMask, blocksMax } = arena;
    const keys = [...this.#all(KeyNoteLayout, arena.keyNotes - base, keyMask + 1)];
    const entries = [...this.#all(KeyEntryLayout, arena.keys - base, keyMask + 1)];
    const blocks = [...this.#all(BlockLayout, arena.blocks - base, blocksMax, BLOCK_SIZE)];
    const held = blocks.filter((block) => holders(block) !== 0n);
    const taken = keys.flatMap((note, index) =>
      note.state === KeyState.LIVE || note.state === KeyState.INVALID
        ? [{ owner: note.owner, pd: note.pd, access: entries[index]!.access }]
        : [],
    );
    const processes: ProcessReport[] = [];
    const slots = this.#all(
      ContextSlotLayout,
      arena.contextSlots - base,
      arena.contextsMax,
      CONTEXT_SLOT_SIZE,
    );
    let slot = -1;
    for (const { state, pid, since, mail, mailDropped, localRequests } of slots) {
      slot++;
      if (state === SlotState.FREE) continue;
      const own = taken.filter(({ owner }) => owner === slot);
      const windows = own.filter(({ access }) => access & ANY_WINDOW).length;
      const layouts = own.filter(({ access }) => access & KeyKind.LAYOUT).length;
      const bit = 1n << BigInt(slot);
      const heldBytes = held
        .filter((block) => holders(block) & bit)
        .reduce((sum, { size }) => sum + size, 0);
      processes.push({
        slot,
        pid,
        since,
        alive: alive(slot),
        regions: own.length - windows - layouts,
        windows,
        layouts,
        heldBytes,
        mail,
        mailDropped,
        localRequests: Number(localRequests),
        localEndpoints: this.#countEndpoints(slot),
      });
    }
    return {
      path,
      address: `${new Endpoint(new Gid(new Uint8Array(gid.buffer)), localPort)}`,
      memoryBytes: fileBytes,
      memoryHeldBytes: held.reduce((sum, { size }) => sum + size, 0),
      processes,
      domains: this.#domains(taken),
      keys: taken.length,
      keysMax: regionsMax,
    };
  }

  #countEndpoints(slot: number): number {
    const { localEndpoints, localEndpointsMax } = this.#arena;
    const start = localEndpoints - this.#header.address;
    const first = start + slot * localEndpointsMax * LocalEndpointLayout.size;
    const all = [...this.#all(LocalEndpointLayout, first, localEndpointsMax)];
    return all.filter(({ qpn }) => qpn !== 0).length;
  }

  #domains(taken: readonly { readonly pd: number }[]): DomainReport[] {
    const arena = this.#arena;
    const base = this.#header.address;
    const nodes = [...this.#all(AttachmentLayout, arena.attachments - base, arena.attachmentsMax)];
    const first = arena.protectionDomains - base;
    const domains = this.#all(ProtectionDomainLayout, first, arena.protectionDomainsMax);
    const found: DomainReport[] = [];
    for (const { id, attachedCount, shared } of domains) {
      if (attachedCount === 0) continue;
      found.push({
        handle: id,
        shared: shared !== 0,
        instances: nodes
          .filter(({ pd }) => pd === id)
          .map(({ slot, useCount }) => ({ slot, uses: useCount })),
        keys: taken.filter(({ pd }) => pd === id).length,
      });
    }
    return found;
  }

  *#all<L extends Layout>(
    layout: L,
    start: number,
    count: number,
    stride = layout.size,
  ): Generator<Struct<L>> {
    for (let index = 0; index < count; index++) {
      const at = start + index * stride;
      // Another process may have written anything.
      if (at < 0 || at + layout.size > this.#view.byteLength) return;
      yield structAt({ view: this.#view }, layout, at);
    }
  }
}

const ANY_WINDOW = KeyKind.WINDOW_TYPE_1 | KeyKind.WINDOW_TYPE_2;

function holders({ holders0, holders1, holders2, holders3 }: Struct<typeof BlockLayout>): bigint {
  return holders0 | (holders1 << 64n) | (holders2 << 128n) | (holders3 << 192n);
}

function viewOf(bytes: Buffer): { readonly view: DataView } {
  return { view: new DataView(bytes.buffer, bytes.byteOffset, bytes.length) };
}
