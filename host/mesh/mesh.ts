/** `joinMesh`: the members of a room, each with the memory of all others by name. */
import { copyOptions } from '../base/copy-options.js';
import { EventReader, eventsFor, type EventTarget } from '../base/event-reader.js';
import { checkObject } from '../base/options.js';
import { timerMillis } from '../base/timer.js';
import { warn } from '../base/warning.js';
import { checkLimits, checkWait, withinLimits, type WaitLimits } from '../base/wait-limits.js';
import { checkMember } from '../errors/check-member.js';
import { checkFunction, checkWhole } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import { DataChannelLink, type DataChannelOptions } from '../link/channel/data-channel.js';
import { RoomSignalling } from '../link/signalling/room.js';
import type { SignallingRoom } from '../link/signalling/signalling.js';
import { connect } from '../remote/connect.js';
import {
  LocalMemory,
  LocalRegions,
  regionBytes,
  registeredRegions,
  type MemoryByName,
  type RegionOptions,
  type Regions,
} from '../remote/local-regions.js';
import type { Remote } from '../remote/remote.js';
import type { RemoteError } from '../remote/remote-error.js';
import { share, type RemoteServer } from '../remote/share.js';
import type { Context } from '../verbs/context.js';
import { openDevice } from '../verbs/open-device.js';
import { copyAuth, type AuthOptions } from '../cm/auth-option.js';
import { CONTROL_BYTES } from './control.js';
import { Collectives, type CollectiveOptions } from './collectives.js';
import { Meeting } from './meeting.js';
import { MeshError, closedError } from './mesh-error.js';
import { frameChannelBytes, type FrameOptions } from './frames/frame-channel.js';
import { MeshFrames, checkMeshFrames } from './peer-frames.js';
import { KEEP_ALIVE_MILLIS_MAX, KEEP_ALIVE_MILLIS_MIN, MeshPeer } from './mesh-peer.js';
import type { ScratchOwner } from './mesh-peer.js';
import type { ReduceOperation, ReducibleArray } from './reduce.js';

/** Options of `joinMesh`. Exactly one of `url` (with `room`) and `signalling` is required. */
export interface MeshOptions<Named extends Regions = Regions> {
  /** Of a signalling server (`createSignallingServer`): ws:, wss:, in a page also relative. */
  readonly url?: string | URL;
  /** Name of the room there. Default `mesh`. */
  readonly room?: string;
  /** Another way to find members: `BroadcastSignalling`, `RoomSignalling`, or the application's. */
  readonly signalling?: SignallingRoom;
  /** Memory that all members read and write: as the regions of `share`. */
  readonly memory?: Named;
  /** Options of the link: `iceServers` (STUN, TURN), `connections` to each peer, limits. */
  readonly link?: Omit<DataChannelOptions, 'connector'>;
  /** Peers at once, in all; connections beyond them are refused. Default 64. */
  readonly peersMax?: number;
  /**
   * A peer that is silent for so long has left; it is noticed a fifth of that time later at most
   * (100 to 86,400,000). The smaller value of both members is in effect. Default 10,000: an ICE
   * restart of a browser takes 7 s, and keeps its queue pairs.
   */
  readonly keepAliveMillis?: number;
  /** Scratch memory for `allReduce` of each peer, the same at all members. Default 256 KiB. */
  readonly collectiveBytes?: number;
  /**
   * Opens a channel for frames with each peer that has this option as well (`peer.frames()`); `{}`
   * for the defaults of `connectFrames`. Default: none.
   */
  readonly frames?: FrameOptions;
  /** Address space of the device. Default: what `memory`, `frames` and `peersMax` need. */
  readonly memoryBytes?: number;
  /** In a page: a device in shared memory, which needs cross-origin isolation. Default false. */
  readonly sharedArrayBuffer?: boolean;
  /** Authenticates the peers by a key that all members have. Default: none. */
  readonly auth?: AuthOptions;
  /** Called with each peer that joins. */
  readonly onJoin?: (peer: MeshPeer<Named>) => void;
  /** Called with each peer that leaves. `reason`: undefined if it closed its mesh. */
  readonly onLeave?: (peer: MeshPeer<Named>, reason: RemoteError | undefined) => void;
  /** Milliseconds until this member must be in the room. Default 10,000. */
  readonly timeout?: number;
  /** Ends the attempt to join; `joinMesh` rejects with its reason. No effect afterwards. */
  readonly signal?: AbortSignal;
}

/** A change among the peers. */
export interface MeshEvent<Named = Readonly<Record<string, unknown>>> {
  readonly kind: 'join' | 'leave';
  readonly peer: MeshPeer<Named>;
  /** Of a leave; undefined if the peer closed its mesh. */
  readonly reason?: RemoteError | undefined;
}

/** Of the connection manager, at all members. */
const PORT = 7473;
const PEERS_MAX = 64;
const KEEP_ALIVE_MILLIS = 10_000;
const COLLECTIVE_BYTES = 2 ** 18;
const COLLECTIVE_BYTES_MIN = 4096;
const DEVICE_BYTES = 32 * 2 ** 20;
/** Staging, frames and queues of one peer. */
const PEER_BYTES = 2 ** 21;
const MEMORY_BYTES_MAX = 2 ** 32 - 2 ** 16;
/** A former one that is not noticed to have ended, and its successor. */
const CONNECTIONS_PER_PEER = 2;
const CONNECT_MILLIS = 3000;
const JOIN_MILLIS = 10_000;
const RETRY_MILLIS = 200;
const RETRY_MILLIS_MAX = 2000;

/** This member. */
export interface MeshSelf<Named> {
  /** Text of its GID. */
  readonly id: string;
  /** Its memory by name: peers read and write it at any time. */
  readonly memory: MemoryByName<Named>;
}

/** Parts of a mesh. */
interface Parts extends Omit<ScratchOwner, 'meetFrames' | 'gaveUp'> {
  readonly frames: Required<FrameOptions> | undefined;
  readonly link: DataChannelLink;
  readonly regions: LocalRegions;
  /** The same, for the connections. */
  readonly shared: Readonly<Record<string, RegionOptions>>;
}

/** The members of a room that this one is connected with (`joinMesh`). */
export class Mesh<Named = Readonly<Record<string, unknown>>> {
  readonly self: MeshSelf<Named>;
  /** Connected peers by identifier. */
  readonly peers: ReadonlyMap<string, MeshPeer<Named>>;
  /** The device, for verbs: its peers have the address `peer.id`. */
  readonly context: Context;
  readonly link: DataChannelLink;
  readonly #peers = new Map<string, MeshPeer<Named>>();
  readonly #parts: Parts;
  readonly #options: MeshOptions<Regions>;
  readonly #collectives: Collectives;
  readonly #meeting: Meeting;
  readonly #frames: MeshFrames | undefined;
  readonly #reached = new Set<string>();
  /** Members to which a connection is being made. */
  readonly #connecting = new Set<string>();
  readonly #readers = new Set<EventTarget<MeshEvent<Named>>>();
  readonly #stop = new AbortController();
  #server: RemoteServer<unknown> | undefined;
  #closing: Promise<void> | undefined;

  /** @internal Use `joinMesh`. */
  constructor(parts: Parts, room: SignallingRoom, options: MeshOptions<Regions>) {
    const { link, context, regions } = parts;
    this.#parts = parts;
    this.#options = options;
    this.link = link;
    this.context = context;
    this.peers = this.#peers;
    this.self = { id: `${link.info.local.gid}`, memory: regions.memory as MemoryByName<Named> };
    this.#meeting = new Meeting(link, room);
    if (parts.frames) this.#frames = new MeshFrames(this.self.id, parts.pd, parts.frames);
    this.#collectives = new Collectives({
      self: this.self.id,
      peers: this.#peers as ReadonlyMap<string, MeshPeer>,
      scratchBytes: parts.scratchBytes,
    });
  }

  /** @internal Resolves when this member is in the room. */
  async start({ timeout = JOIN_MILLIS, signal }: WaitLimits): Promise<void> {
    const { pd, shared } = this.#parts;
    await this.#frames?.start((id) => this.#peers.get(id) as MeshPeer | undefined);
    this.#server = (await share(`rdma://[${this.self.id}]:${PORT}`, shared, {
      pd,
      ...this.#common(),
      clientsPerSource: CONNECTIONS_PER_PEER,
      onClient: (client) => {
        const id = client.connection.id.getPeerAddr()?.address;
        // The smaller identifier connects.
        if (id === undefined || id > this.self.id) return void client.destroy();
        this.#add(id, client);
      },
      // A failed handshake: the peer tries again.
      onError: (error) => void (this.#meeting.lastError = error),
    })) as RemoteServer<unknown>;
    this.#server.clientsMax = () => (this.#hasMemory() ? this.#incomingMax : 0);
    void this.#watchLink();
    const late = (): Error => this.#late('joinMesh', 'not in the room', timeout);
    await withinLimits(this.#meeting.start(), { timeout, ...(signal && { signal }) }, late);
  }

  /** Says also why this member is not in the room, or cannot connect with another. */
  #late(operation: string, rule: string, millis?: number): MeshError {
    const { lastError } = this.#meeting;
    const why = lastError ? ` (${lastError.message})` : '';
    const sentence = `${operation}: ${rule} after ${millis} ms${why}; check room, server and network`;
    return new MeshError('ETIMEDOUT', sentence, [], lastError);
  }

  /** Joins and leaves from now on, until the mesh is closed. */
  events(): AsyncGenerator<MeshEvent<Named>, void, undefined> {
    return eventsFor(this.#readers, new EventReader(), () => this.#closing !== undefined);
  }

  /**
   * Resolves when `count` peers are connected. Rejects with MeshError ETIMEDOUT (default: no
   * timeout), and the reason of `signal`.
   */
  async waitForPeers(count: number, limits: WaitLimits = {}): Promise<void> {
    checkWhole('count', count, 0, 65536);
    checkWait('waitForPeers', limits);
    if (this.#closing) throw closedError('waitForPeers', this.self.id);
    const reader = new EventReader<MeshEvent<Named>>();
    this.#readers.add(reader);
    const late = (): Error => {
      const rule = `${this.#peers.size} of ${count} peers joined`;
      return this.#late('waitForPeers', rule, limits.timeout);
    };
    const enough = async (): Promise<void> => {
      while (this.#peers.size < count) {
        if (await reader.next()) continue;
        throw closedError('waitForPeers', this.self.id);
      }
    };
    try {
      await withinLimits(enough(), limits, late);
    } finally {
      this.#readers.delete(reader);
      reader.end();
    }
  }

  /**
   * Resolves when all members have called it: writes that they made before are visible then. All
   * must make the same calls in the same order. Rejects with MeshError ECONNRESET (names a member
   * that left), ETIMEDOUT (names members that did not arrive), ECANCELED (names a
   * member that gave up this call), MisuseError, the reason of `signal`.
   */
  barrier(options: CollectiveOptions = {}): Promise<void> {
    return this.#collectives.barrier(options);
  }

  /**
   * The element-wise sum, minimum or maximum of the arrays of all members, as a new array; `array`
   * stays unchanged. All members have the same bits. Rejects as `barrier`, and with MeshError EPROTO
   * if a member calls it for another operation, type or length.
   */
  allReduce<Array extends ReducibleArray>(
    array: Array,
    op: ReduceOperation,
    options: CollectiveOptions = {},
  ): Promise<Array> {
    return this.#collectives.allReduce(array, op, options);
  }

  /** Leaves the room, closes each peer and the device. Peers see a leave without a reason. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#meeting.stop();
    this.#stop.abort();
    this.#collectives.close();
    await Promise.all([...this.#peers.values()].map(({ remote }) => remote.close()));
    await this.#frames?.close();
    await this.#server?.close();
    for (const reader of this.#readers) reader.end();
    await this.#parts.regions.close();
    await this.context.close();
  }

  #common() {
    const { auth } = this.#options;
    const keepAliveMillis = this.#keepAliveMillis;
    return { keepAliveMillis, messageBytesMax: CONTROL_BYTES, ...(auth !== undefined && { auth }) };
  }

  get #keepAliveMillis(): number {
    return this.#options.keepAliveMillis ?? KEEP_ALIVE_MILLIS;
  }

  /** How many peers may connect; this side connects with the others. */
  get #incomingMax(): number {
    const { id: self } = this.self;
    const outgoing = [...this.#peers.keys()].filter((id) => self < id);
    const { size } = new Set([...this.#connecting, ...outgoing]);
    return (this.#options.peersMax ?? PEERS_MAX) - size;
  }

  /** For another peer? One that is refused later would have announced this member already. */
  #hasMemory(): boolean {
    const { context, scratchBytes } = this.#parts;
    try {
      context.free(context.alloc(scratchBytes));
      return true;
    } catch (error) {
      this.#meeting.lastError = error as Error;
      return false;
    }
  }

  async #watchLink(): Promise<void> {
    for await (const { kind, peer } of this.link.peerEvents()) {
      const id = `${peer.gid}`;
      if (kind === 'connected' || kind === 'restored') void this.#reach(id);
      else if (kind === 'disconnected' && !this.#closing) this.#meeting.lost(id);
    }
  }

  #isLinked(id: string): boolean {
    return !this.#closing && this.#meeting.isConnected(id);
  }

  /** Connects to the memory of a member to which packets travel. */
  async #reach(id: string): Promise<void> {
    if (this.self.id > id || this.#reached.has(id)) return;
    this.#reached.add(id);
    let millis = RETRY_MILLIS;
    while (this.#isLinked(id) && !this.#peers.has(id)) {
      let remote: Remote<unknown> | undefined;
      try {
        if (this.#server!.admitted >= this.#incomingMax) throw new RangeError('peersMax');
        if (!this.#hasMemory()) throw this.#meeting.lastError!;
        this.#connecting.add(id);
        const { pd, shared } = this.#parts;
        const how = { pd, share: shared, timeout: CONNECT_MILLIS, signal: this.#stop.signal };
        remote = await connect(`rdma://[${id}]:${PORT}`, { ...how, ...this.#common() });
        this.#connecting.delete(id);
        this.#add(id, remote);
      } catch (error) {
        void remote?.destroy();
        this.#meeting.lastError = error as Error;
        this.#connecting.delete(id);
        await new Promise((resolve) => setTimeout(resolve, timerMillis(millis)));
        millis = Math.min(2 * millis, RETRY_MILLIS_MAX);
      }
    }
    this.#reached.delete(id);
  }

  #add(id: string, remote: Remote<unknown>): void {
    const before = this.#peers.get(id);
    if (this.#closing) return void remote.destroy();
    const frames = this.#frames;
    const meetFrames = frames && ((met: MeshPeer) => void frames.connect(met));
    const collectives = this.#collectives;
    const own: ScratchOwner = {
      ...this.#parts,
      meetFrames,
      gaveUp: (from, control) => collectives.gaveUp(from, control),
    };
    const peer = new MeshPeer<Named>(id, remote, this.#keepAliveMillis, own);
    if (before) {
      // The member has ended that connection, and this side has not noticed yet.
      void before.remote.destroy();
      this.#remove(before, undefined);
    }
    this.#peers.set(id, peer);
    this.#meeting.lastError = undefined;
    void peer.closed.then((reason) => this.#remove(peer, reason));
    collectives.joined(peer as MeshPeer);
    this.#tell({ kind: 'join', peer });
    this.#call('onJoin', peer);
  }

  #remove(peer: MeshPeer<Named>, reason: RemoteError | undefined): void {
    if (this.#peers.get(peer.id) !== peer) return;
    this.#peers.delete(peer.id);
    this.#collectives.left(peer as MeshPeer, reason);
    this.#tell({ kind: 'leave', peer, reason });
    this.#call('onLeave', peer, reason);
    // Without a goodbye it may be there again.
    if (reason) void this.#reach(peer.id);
  }

  /** An exception of the application's function becomes a warning: the peers stay what they are. */
  #call(name: 'onJoin' | 'onLeave', peer: MeshPeer<Named>, reason?: RemoteError): void {
    try {
      this.#options[name]?.(peer as never, reason);
    } catch (error) {
      warn(`joinMesh: ${name} threw ${String(error)}`);
    }
  }

  #tell(event: MeshEvent<Named>): void {
    for (const reader of this.#readers) reader.push(event);
  }
}

const OPTIONS =
  'url room signalling memory link peersMax keepAliveMillis collectiveBytes frames memoryBytes sharedArrayBuffer auth onJoin onLeave timeout signal';

/** Throws MisuseError. */
function roomOf({ url, room, signalling }: MeshOptions<Regions>): SignallingRoom {
  if ((url === undefined) === (signalling === undefined)) {
    throw new MisuseError('url', 'joinMesh: exactly one of url and signalling is required');
  }
  if (signalling === undefined) return new RoomSignalling(url!, room === undefined ? 'mesh' : room);
  checkMember('signalling', signalling, 'join', 'a SignallingRoom');
  if (room === undefined) return signalling;
  throw new MisuseError('room', 'joinMesh: needs url; leave it out');
}

/** Throws MisuseError. */
function checkOptions(options: MeshOptions<never>): void {
  const { collectiveBytes = COLLECTIVE_BYTES, peersMax = PEERS_MAX } = options;
  const { keepAliveMillis = KEEP_ALIVE_MILLIS } = options;
  checkWhole('collectiveBytes', collectiveBytes, COLLECTIVE_BYTES_MIN, 2 ** 28);
  checkWhole('peersMax', peersMax, 1, 4096);
  checkWhole('keepAliveMillis', keepAliveMillis, KEEP_ALIVE_MILLIS_MIN, KEEP_ALIVE_MILLIS_MAX);
  checkLimits(options);
  const { link } = options;
  if (link !== undefined) checkObject('joinMesh', link, 'link');
  for (const name of ['onJoin', 'onLeave'] as const) checkFunction(name, options[name]);
}

/**
 * Joins a room and connects with each of its members: their memory by name, barrier, all-reduce.
 * Resolves when this member is in the room; peers join afterwards (`onJoin`, `events`,
 * `waitForPeers`). For pages, Workers (`provideRtc`) and Node with node-datachannel. Rejects with
 * MisuseError, LinkError EOPNOTSUPP (no WebRTC), LinkError ECONNREFUSED (the server refuses),
 * MeshError ETIMEDOUT (names the last error), the reason of `signal`, RefusalError ENOMEM.
 */
export async function joinMesh<const Named extends Regions = Record<never, never>>(
  options: MeshOptions<Named>,
): Promise<Mesh<Named>> {
  options = copyOptions('joinMesh', options, OPTIONS as never);
  const auth = copyAuth(options.auth);
  const room = roomOf(options as MeshOptions);
  checkOptions(options as never);
  const { collectiveBytes = COLLECTIVE_BYTES, peersMax = PEERS_MAX } = options;
  options.signal?.throwIfAborted();
  // Both halves are aligned.
  const scratchBytes = (collectiveBytes + 15) & ~15;
  const { memory: named = {} as Regions } = options;
  const frames = checkMeshFrames(options.frames);
  const frameBytes = frames ? frameChannelBytes(frames) : 0;
  const peerBytes = PEER_BYTES + scratchBytes + frameBytes;
  const needed = regionBytes('joinMesh', named) + DEVICE_BYTES + peersMax * peerBytes;
  const memoryBytes =
    options.memoryBytes === undefined ? Math.min(needed, MEMORY_BYTES_MAX) : options.memoryBytes;
  const link = new DataChannelLink({ peersMax: 2 * peersMax, ...options.link });
  const { sharedArrayBuffer = false } = options;
  const context = await openDevice({ link, memoryBytes, sharedArrayBuffer });
  let regions: LocalRegions | undefined;
  let mesh: Mesh<Named> | undefined;
  try {
    const pd = context.allocPd();
    regions = await LocalRegions.open('joinMesh', pd, new LocalMemory(), named);
    const shared = registeredRegions(regions.descriptions);
    const parts = { link, context, pd, scratchBytes, regions, shared, frames };
    mesh = new Mesh<Named>(parts, room, { ...options, auth } as MeshOptions);
    await mesh.start(options);
    return mesh;
  } catch (error) {
    if (mesh) await mesh.close();
    else {
      await regions?.close();
      await context.close();
    }
    throw error;
  }
}
