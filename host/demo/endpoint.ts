/**
 * A peer of the demo, the same in a tab's Worker and in Node: a device with a picture in registered
 * memory, and a session with each other peer.
 */
import { connect, listen, type EndOptions, type RdmaConnection } from '../cm/connect.js';
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
  #connections = 0;
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
    return this.#pd.regMr(this.context.alloc(bytes), AccessFlag.LOCAL_WRITE);
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
      if (kind === 'connected' && this.address < `${peer.gid}`) void this.#callAll(peer);
      if (kind === 'disconnected') this.#forget(peer);
    }
  }

  async #callAll(peer: Endpoint): Promise<void> {
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
    for (const region of [theirs, outgoing, inbox]) {
      region.dereg();
      this.context.free(region.buffer);
    }
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
      const privateData = decodePrivateData(request.privateData);
      const gid = `${request.peer.address}`;
      const peer = this.link.peers.find((other) => `${other.gid}` === gid);
      if (!privateData || !peer || this.#connections >= CONNECTIONS_MAX) {
        try {
          request.reject();
        } catch {
          // The peer gave up.
        }
        continue;
      }
      const inbox = privateData.role === Role.STAMP ? this.scratch(BOX_BYTES) : undefined;
      const accepting = request.accept(this.#options(privateData.role), (qp) => {
        if (inbox) postReceive(qp, inbox, 0);
        if (privateData.role === Role.MESSAGE) postReceives(qp, this.#regionsFor(peer).inbox);
      });
      this.#connections++;
      accepting.then(
        (connection) => {
          void connection.disconnected.then(() => this.#connections--);
          if (inbox) this.#stamp({ connection, privateData }, inbox);
          else if (privateData.role === Role.RECORD) this.#record({ connection, privateData });
          else if (privateData.role === Role.SPARE) this.#keep(connection);
          else this.#enter(peer, { connection, privateData });
        },
        () => this.#connections--,
      );
    }
  }

  #stamp(end: End, inbox: MemoryRegion): void {
    this.#lend(end, inbox, stampWhenAsked(end, inbox, this.region));
  }

  #record(end: End): void {
    const pen = this.scratch(PEN_BYTES);
    this.#lend(end, pen, writeRecords(end, pen));
  }

  /** Runs `work` on a connection of the caller, with memory of this side. */
  #lend({ connection }: End, region: MemoryRegion, work: Promise<void>): void {
    this.#keep(connection);
    void Promise.all([work.catch(() => undefined), connection.disconnected]).then(() => {
      region.dereg();
      this.context.free(region.buffer);
    });
  }

  /** Ends a spare connection when its caller closes it. */
  #keep(connection: RdmaConnection): void {
    void connection.disconnected.then(() => connection.close());
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
    return (meeting.regions ??= {
      ours: this.region,
      theirs: this.scratch(ENDPOINT_BYTES),
      outgoing: this.scratch(ENDPOINT_BYTES),
      inbox: this.scratch(BOX_BYTES),
    });
  }

  #enter(peer: Endpoint, end: End): void {
    const meeting = this.#meeting(peer);
    meeting.ends.set(end.privateData.role, end);
    if (end.privateData.role === Role.MESSAGE) {
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
    if (this.address < `${session.peer.gid}`) void this.#callAll(session.peer);
  }
}
