/**
 * Part of an arena that its hosts read and write, in several processes; the engine only places it.
 * Changed under the arena's lock, except the states of inbox entries. The engine trusts no value
 * there.
 */

/** How the file of a device begins; the arena lies ARENA_OFFSET_SIZE bytes behind it. */
@unmanaged
export class DeviceHeader {
  /** DEVICE_MAGIC_COUNT. */
  magic: u32;
  version: u32;
  /** Of the engine's module: all processes run the same. */
  build: u64;
  /** Drawn when the device was made. */
  deviceId: u64;
  localGid0: u64;
  localGid1: u64;
  localPort: u32;
  /** Where all processes map the file: below is memory of their own. */
  address: u32;
  fileBytes: u32;
  regionsMax: u32;
  protectionDomainsMax: u32;
  contextsMax: u32;
  blocksMax: u32;
  servicesMax: u32;
  inboxEntries: u32;
  poolUsersMax: u32;
  /** Of all before. */
  checksum: u32;
  /** 1: complete. Written last. */
  ready: u32;
}
export const DEVICE_HEADER_SIZE: u32 = 88;
export const DEVICE_MAGIC_COUNT: u32 = 0x62726556;
/** Of what lies in the file, wherever the build does not tell. */
export const DEVICE_VERSION_COUNT: u32 = 1;
/** Bytes from the header to the arena. */
export const ARENA_OFFSET_SIZE: u32 = 4096;

/** The process that owns a service id of the connection manager. */
@unmanaged
export class Service {
  id: u64;
  /** Slot + 1; 0: the place is free. Written last, cleared first. */
  owner: u32;
  reserved: u32;
}
export const SERVICE_SIZE: u32 = 16;

/**
 * Sockets of the group that shares the device's port, in the kernel's order: their slots follow, a
 * word each.
 */
@unmanaged
export class Steering {
  /** Moves on with every change. */
  version: u32;
  count: u32;
  /** 1: several sockets were closed at once, so that the order is a guess. */
  doubtful: u32;
  reserved: u32;
}
export const STEERING_SIZE: u32 = 16;

/** A packet that arrived at another process's socket. It follows. */
@unmanaged
export class InboxEntry {
  /** An InboxState; WRITER + slot while that one writes. */
  state: u32;
  length: u32;
  sourceGid0: u64;
  sourceGid1: u64;
  sourcePort: u32;
  /** Counts up: the order in which packets were put in. */
  ticket: u32;
  reserved0: u64;
  reserved1: u64;
  reserved2: u64;
  reserved3: u64;
}
export const INBOX_ENTRY_SIZE: u32 = 64;
export const INBOX_PACKET_SIZE: u32 = 4224;

export enum InboxState {
  FREE = 0,
  READY = 1,
  /** And from there on: a slot that is writing. */
  WRITER = 2,
}

/**
 * A connection of the connection manager: the fields that a survivor needs to send the DREQ of a
 * dead process.
 */
@unmanaged
export class SharedConnection {
  /** A ConnectionPlace in the lower bits, slot + 1 in the upper bits. */
  state: u32;
  localId: u32;
  remoteId: u32;
  remoteQpn: u32;
  transactionId: u64;
  peerGid0: u64;
  peerGid1: u64;
  peerPort: u32;
  reserved: u32;
}
export const SHARED_CONNECTION_SIZE: u32 = 48;
/** Entries per process that a device may have; one process may use all of them. */
export const CONNECTIONS_PER_CONTEXT_COUNT: u32 = 128;

/** The lower bits of SharedConnection.state. */
export enum ConnectionPlace {
  FREE = 0,
  /** The process of the slot is writing the entry. */
  WRITING = 1,
  /** The process of the slot owns the connection. */
  KEPT = 2,
  /** The owner is dead, and no DREQ was sent to the peer yet. */
  ORPHANED = 3,
}

/** How a context waits for words of the shared memory: see host/device/sharing/word-waits.ts. */
@unmanaged
export class WordWait {
  /** Waits that are pending. */
  waiting: u32;
  /** Moves on with every wake-up. */
  notice: u32;
  reserved0: u32;
  reserved1: u32;
}
export const WORD_WAIT_SIZE: u32 = 16;

/** A handle under a name: see host/verbs/domains/roots.ts. */
@unmanaged
export class Root {
  /** A RootState. Written last, cleared first. */
  state: u32;
  /** Slot + 1 of the context that ends it, and its incarnation; 0: it ends with its domain. */
  owner: u32;
  incarnation: u32;
  pd: u32;
  address: u32;
  length: u32;
  key: u32;
  /** A RootKind. */
  kind: u32;
  /** The handle of its domain (32 bytes) and the name (UTF-8, zeros behind). */
  handle0: u64;
  handle1: u64;
  handle2: u64;
  handle3: u64;
  name0: u64;
  name1: u64;
  name2: u64;
  name3: u64;
  name4: u64;
  name5: u64;
  name6: u64;
  name7: u64;
}
export const ROOT_SIZE: u32 = 128;

export enum RootState {
  FREE = 0,
  SET = 1,
}

export enum RootKind {
  /** Handle that an application stored. */
  HANDLE = 0,
  /** A heap of the domain. */
  HEAP = 1,
}

/** Roots that a device has: 256 with the 32 processes that are the default. */
export function rootsCount(contexts: u32): u32 {
  return min<u32>(8 * contexts, 256);
}

/** Bytes of the roots: a word that moves on with every change, in a cache line, and the entries. */
export function rootsBytes(contexts: u32): u32 {
  return ROOTS_HEADER_SIZE + rootsCount(contexts) * <u32>offsetof<Root>();
}
export const ROOTS_HEADER_SIZE: u32 = 64;

export function wordWaitsBytes(contexts: u32): u32 {
  return contexts * <u32>offsetof<WordWait>();
}

/** Bytes of these tables. */
export function connectionsBytes(contexts: u32): u32 {
  return contexts * CONNECTIONS_PER_CONTEXT_COUNT * <u32>offsetof<SharedConnection>();
}

export function servicesBytes(count: u32): u32 {
  return count * <u32>offsetof<Service>();
}

export function steeringBytes(slots: u32): u32 {
  return <u32>offsetof<Steering>() + 4 * slots;
}

export function inboxBytes(entries: u32): u32 {
  return entries * (<u32>offsetof<InboxEntry>() + INBOX_PACKET_SIZE);
}

/** Where the arena of a file lies, whose header is at `header`. */
export function arenaBehind(header: usize): usize {
  return header + max<usize>(ARENA_OFFSET_SIZE, offsetof<DeviceHeader>());
}
