/**
 * A peer of the demo, the same in a tab's Worker and in Node: a device with a picture in registered
 * memory, and a session with each other peer.
 */
import {
  connect,
  listen,
  type EndOptions,
  type RdmaConnection,
  type RdmaRequest,
} from '../cm/connect.js';
import type { ChannelLink } from '../link/channel/channel-link.js';
import type { Endpoint } from '../link/endpoint.js';
import { faultLink, type FaultLink } from '../link/faults/fault.js';
import type { Context } from '../verbs/context.js';
import { serveFrames } from './frame-service.js';
import { AccessFlag, SendFlag, WrOpcode } from '../verbs/enums.js';
import type { LayoutMemoryRegion } from '../verbs/layouts/layout-memory-region.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import { openDevice } from '../verbs/open-device.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import {
  Role,
  at,
  check,
  decodePrivateData,
  encodePrivateData,
  type End,
  type PeerKind,
  type PrivateData,
} from './private-data.js';
import { ENDPOINT_BYTES, MATRIX, Word, readWord, writeWord } from './memory-layout.js';
import {
  BOX_BYTES,
  RECEIVES,
  postReceive,
  postReceives,
  stampWhenAsked,
  takeMessages,
} from './messages.js';
import { PAINT_DEPTH } from './painter.js';
import { PeerConnections } from './peer-connections.js';
import { PEN_BYTES, writeRecords } from './records.js';
import { ROLES, Session, type SessionRegions } from './session.js';
import { WireTap } from './wire-tap.js';

const PORT = 7471;
const DEVICE_BYTES = 32 * 2 ** 20;
/** Sessions of an endpoint; each takes three connections and 200 KiB. */
const SESSIONS_MAX = 32;
const CONNECTIONS_MAX = 8 * SESSIONS_MAX;
const SMALL_QP = { cap: { maxSendWr: 4, maxRecvWr: 4, reorderPackets: 64 } };
const CALL_AGAIN_MILLIS = 1000;

/** A connection by which a peer WRITEs to memory that this side names. */
export function writtenBy(
  address: string,
  context: Context,
  pd: ProtectionDomain,
  memory: Omit<PrivateData, 'columnsKey'>,
): Promise<RdmaConnection> {
  const privateData = encodePrivateData({ ...memory, columnsKey: 0 });
  return connect({ address, port: PORT }, { context, pd, qp: SMALL_QP, privateData }, (qp) => {
    // For two WRITEs with immediate values, which bring nothing for a receive's memory.
    qp.postRecv([{ sgList: [] }, { sgList: [] }]);
  });
}

interface Meeting {
  readonly ends: Map<Role, End>;
  regions: SessionRegions | undefined;
}

/** The peer of a request has gone, or has too many connections. */
const GONE = new Error('refused');

export class DemoEndpoint {
  /** Memory that peers WRITE to and READ: the picture and the words behind it. */
  readonly memory: Uint8Array;
  readonly region: MemoryRegion;
  /** The picture's columns, one after the other, without a copy of them. */
  readonly columns: LayoutMemoryRegion;
  readonly sessions: Session[] = [];
  /** Called when a session begins, and when one is over. */
  changed: () => void = () => {};
  readonly #pd: ProtectionDomain;
  readonly #meetings = new Map<string, Meeting>();
  readonly #accepted = new PeerConnections(CONNECTIONS_MAX);
  #closed = false;

  private constructor(
    readonly kind: PeerKind,
    readonly context: Context,
    readonly link: ChannelLink,
    readonly faults: FaultLink,
    readonly tap: WireTap,
  ) {
    const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC } = AccessFlag;
    this.#pd = context.allocPd();
    this.memory = context.alloc(ENDPOINT_BYTES);
    const access = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC;
    this.region = this.#pd.regMr(this.memory, access);
    this.columns = this.#layColumns();
  }

  /** Rejects as openDevice. */
  static async open(kind: PeerKind, link: ChannelLink): Promise<DemoEndpoint> {
    const faults = faultLink(link);
    const tap = new WireTap(faults);
    // A tab's second Worker may have a context of its device, where a page may share memory.
    const threadsMax = kind === 'tab' && typeof SharedArrayBuffer !== 'undefined' ? 2 : 1;
    const context = await openDevice({ link: tap, memoryBytes: DEVICE_BYTES, threadsMax });
    const endpoint = new DemoEndpoint(kind, context, link, faults, tap);
    // Whatever ends these, ends with the device.
    endpoint.#serve().catch(() => undefined);
    endpoint.#meet().catch(() => undefined);
    serveFrames(context).catch(() => undefined);
    return endpoint;
  }

  #layColumns(): LayoutMemoryRegion {
    const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, ZERO_BASED } = AccessFlag;
    const access = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | ZERO_BASED;
    const columns = this.#pd.regMr(null, 0, access);
    const { addr, lkey } = this.region;
    const dims = [
      { offsetStride: MATRIX.rowBytes, datumCount: MATRIX.rows },
      { offsetStride: MATRIX.elementBytes, datumCount: MATRIX.columns },
    ];
    columns.setLayoutInterleaved(0, [
      { firstDatum: { addr, length: MATRIX.elementBytes, lkey }, dims },
    ]);
    return columns;
  }

  get address(): string {
    return `${this.context.local.gid}`;
  }

  /** One connection more to a peer, for what may break it. */
  async spare(peer: Endpoint): Promise<End> {
    return this.#call(peer, Role.SPARE);
  }

  /** A connection by which the peer WRITEs record after record into `region` (records.ts). */
  recorded(peer: Endpoint, pd: ProtectionDomain, region: MemoryRegion): Promise<RdmaConnection> {
    const { rkey, addr } = region;
    const privateData = { role: Role.RECORD, kind: this.kind, rkey, addr };
    return writtenBy(`${peer.gid}`, this.context, pd, privateData);
  }

  /** `bytes` of memory of our own, registered. */
  scratch(bytes: number): MemoryRegion {
    const memory = this.context.alloc(bytes);
    try {
      return this.#pd.regMr(memory, AccessFlag.LOCAL_WRITE);
    } catch (error) {
      this.context.free(memory);
      throw error;
    }
  }

  /** WRITEs a Word of the other's memory. Rejects when the connection is over. */
  async writeWord(session: Session, word: number, value: number): Promise<void> {
    const region = this.scratch(8);
    const { qp, sendCq } = session.message.connection;
    writeWord(region.buffer, 0, value);
    qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sgList: [{ addr: region.addr, length: 8, lkey: region.lkey }],
      rdma: at(session.message, word),
      sendFlags: SendFlag.SIGNALED,
    });
    check(await sendCq.wait());
    region.dereg();
    this.context.free(region.buffer);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.context.close();
  }

  /** Of two that meet, the one with the smaller address calls. */
  async #meet(): Promise<void> {
    for await (const { kind, peer } of this.link.peerEvents()) {
      if (kind === 'connected' && this.address < `${peer.gid}`) this.#callAll(peer);
      if (kind !== 'disconnected') continue;
      this.#accepted.close(`${peer.gid}`);
      this.#forget(peer);
    }
  }

  #callAll(peer: Endpoint): void {
    this.#callUntilThere(peer).catch(() => undefined);
  }

  async #callUntilThere(peer: Endpoint): Promise<void> {
    const isThere = (): boolean => !this.#closed && this.link.peers.includes(peer);
    while (isThere()) {
      const calls = await Promise.allSettled(ROLES.map((role) => this.#call(peer, role)));
      const ends = calls.flatMap((call) => (call.status === 'fulfilled' ? [call.value] : []));
      if (ends.length === ROLES.length) {
        for (const end of ends) this.#enter(peer, end);
        return;
      }
      // It may not listen yet; a second context never does.
      for (const { connection } of ends) await connection.close().catch(() => undefined);
      this.#forget(peer);
      await new Promise((resolve) => setTimeout(resolve, CALL_AGAIN_MILLIS));
    }
  }

  /** Of a meeting that became no session. */
  #forget(peer: Endpoint): void {
    const regions = this.#meetings.get(`${peer.gid}`)?.regions;
    this.#meetings.delete(`${peer.gid}`);
    if (regions && !this.#closed) this.#release(regions);
  }

  #release({ theirs, outgoing, inbox }: SessionRegions): void {
    for (const region of [theirs, outgoing, inbox]) this.#free(region);
  }

  /** Memory of `scratch`. */
  #free(region: MemoryRegion): void {
    if (this.#closed) return;
    region.dereg();
    this.context.free(region.buffer);
  }

  async #call(peer: Endpoint, role: Role): Promise<End> {
    const target = { address: `${peer.gid}`, port: PORT };
    const options = { ...this.#options(role), context: this.context };
    const connection = await connect(target, options, (qp) => {
      if (role === Role.MESSAGE) postReceives(qp, this.#regionsFor(peer).inbox);
    });
    const privateData = decodePrivateData(connection.privateData);
    if (!privateData) throw new Error(`${peer.gid} is no peer of this demo`);
    return { connection, privateData };
  }

  async #serve(): Promise<void> {
    const target = { address: this.address, port: PORT };
    const listener = await listen(target, { context: this.context, backlog: 64 });
    for await (const request of listener) {
      this.#answer(request).catch(() => {
        try {
          request.reject();
        } catch {
          // The peer gave up, or is answered.
        }
      });
    }
  }

  /** Rejects, with any reason, for a request that is not accepted. */
  async #answer(request: RdmaRequest): Promise<void> {
    const privateData = decodePrivateData(request.privateData);
    const gid = `${request.peer.address}`;
    const peer = this.link.peers.find((other) => `${other.gid}` === gid);
    const place = privateData && peer && this.#accepted.take(gid, privateData.role);
    if (!place) throw GONE;
    let connection: RdmaConnection | undefined;
    let lent: MemoryRegion | undefined;
    try {
      const { role } = privateData;
      if (role === Role.STAMP) lent = this.scratch(BOX_BYTES);
      if (role === Role.RECORD) lent = this.scratch(PEN_BYTES);
      connection = await request.accept(this.#options(role), (qp) => {
        if (role === Role.STAMP) postReceive(qp, lent!, 0);
        if (role === Role.MESSAGE) postReceives(qp, this.#regionsFor(peer).inbox);
      });
      if (!this.link.peers.includes(peer)) throw GONE;
      place.connection = connection;
      void connection.disconnected.then(() => place.giveBack());
      const end = { connection, privateData };
      if (lent) {
        const isStamp = role === Role.STAMP;
        const work = isStamp ? stampWhenAsked(end, lent, this.region) : writeRecords(end, lent);
        this.#lend(end, lent, work);
      } else if (role === Role.SPARE) this.#keep(connection);
      else this.#enter(peer, end);
    } catch (error) {
      await connection?.close();
      place.giveBack();
      if (lent) this.#free(lent);
      throw error;
    }
  }

  /** Runs `work` on a connection of the caller, with memory of this side. */
  #lend({ connection }: End, region: MemoryRegion, work: Promise<void>): void {
    this.#keep(connection);
    const ended = work.catch(() => connection.close());
    void Promise.all([ended.catch(() => undefined), connection.disconnected]).then(() =>
      this.#free(region),
    );
  }

  /** Ends a spare connection when its caller closes it. */
  #keep(connection: RdmaConnection): void {
    connection.disconnected.then(() => connection.close()).catch(() => undefined);
  }

  #options(role: Role): EndOptions {
    const { rkey, addr } = this.region;
    const sends = role === Role.PAINT || role === Role.SPARE ? PAINT_DEPTH : 128;
    return {
      pd: this.#pd,
      qp: { cap: { maxSendWr: sends, maxRecvWr: RECEIVES, reorderPackets: 64 } },
      privateData: encodePrivateData({
        role,
        kind: this.kind,
        rkey,
        addr,
        columnsKey: this.columns.rkey,
      }),
    };
  }

  #meeting(peer: Endpoint): Meeting {
    const key = `${peer.gid}`;
    const known = this.#meetings.get(key);
    if (known) return known;
    const meeting: Meeting = { ends: new Map(), regions: undefined };
    this.#meetings.set(key, meeting);
    return meeting;
  }

  #regionsFor(peer: Endpoint): SessionRegions {
    const meeting = this.#meeting(peer);
    if (meeting.regions) return meeting.regions;
    const made: MemoryRegion[] = [];
    try {
      for (const bytes of [ENDPOINT_BYTES, ENDPOINT_BYTES, BOX_BYTES]) {
        made.push(this.scratch(bytes));
      }
    } catch (error) {
      for (const region of made) this.#free(region);
      throw error;
    }
    const [theirs, outgoing, inbox] = made as [MemoryRegion, MemoryRegion, MemoryRegion];
    return (meeting.regions = { ours: this.region, theirs, outgoing, inbox });
  }

  #enter(peer: Endpoint, end: End): void {
    const meeting = this.#meeting(peer);
    const { role } = end.privateData;
    // The peer has made it anew.
    meeting.ends
      .get(role)
      ?.connection.close()
      .catch(() => undefined);
    meeting.ends.set(role, end);
    if (role === Role.MESSAGE) {
      takeMessages(end, this.#regionsFor(peer).inbox, this.memory).catch(() => undefined);
    } else {
      this.#countCallbacks(end.connection).catch(() => undefined);
    }
    if (meeting.ends.size < ROLES.length || this.sessions.length >= SESSIONS_MAX) return;
    const regions = this.#regionsFor(peer);
    const session = new Session(peer, meeting.ends, regions);
    this.#meetings.delete(`${peer.gid}`);
    this.sessions.push(session);
    void session.over.then(() => this.#end(session, meeting));
    this.changed();
  }

  /** Counts completions of receives. One-sided operations of a peer cause none. */
  async #countCallbacks({ recvCq }: RdmaConnection): Promise<void> {
    for (;;) {
      const { length } = await recvCq.wait();
      if (length === 0) return;
      writeWord(this.memory, Word.CALLBACKS, readWord(this.memory, Word.CALLBACKS) + length);
    }
  }

  async #end(session: Session, { ends }: Meeting): Promise<void> {
    this.sessions.splice(this.sessions.indexOf(session), 1);
    this.changed();
    if (this.#closed) return;
    for (const { connection } of ends.values()) await connection.close().catch(() => undefined);
    this.#release(session.regions);
    // Both sides end the session; its caller calls again if the peer is still there.
    if (this.address < `${session.peer.gid}`) this.#callAll(session.peer);
  }
}
