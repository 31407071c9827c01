/** Verbena in this process, over UDP port 4791. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  AccessFlag,
  Mtu,
  QpState,
  QpType,
  UdpLink,
  openDevice,
  type AddressHandle,
  type CompletionChannel,
  type CompletionQueue,
  type Context,
  type LayoutBase,
  type LayoutMemoryRegion,
  type MemoryRegion,
  type MrLayoutInterleaved,
  type ProtectionDomain,
  type QueuePair,
  type WorkCompletion,
} from '../../../host/index.js';
import { noise } from '../../support/processes.js';
import { DelayLink } from './delay-link.js';
import {
  EVENT_MILLIS,
  FIRST_WAIT_MILLIS,
  MEMORY_BYTES,
  QKEY,
  type Completion,
  type ConnectOptions,
  type Peer,
  type PeerOptions,
  type Region,
  type Request,
} from './peer.js';

const ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC;
const FLUSHES = AccessFlag.FLUSH_GLOBAL | AccessFlag.FLUSH_PERSISTENT;
const DEVICE_BYTES = 16 * 2 ** 20;
const QUEUE_ENTRIES = 512;
/** As many FLUSHes and ATOMIC WRITEs as Linux has under way here: what it repeats is maimed. */
const HELD_MAX = 32;
const CQ_ENTRIES = 4096;

export class OurPeer implements Peer {
  readonly name = 'Verbena';
  readonly qpType: number;
  readonly address: string;
  readonly context: Context;
  readonly qp: QueuePair;
  readonly #pd: ProtectionDomain;
  readonly #cq: CompletionQueue;
  readonly #memory: Uint8Array;
  readonly #mr: MemoryRegion;
  #ah: AddressHandle | undefined;
  #events = 0;
  #peerQpn = 0;

  private constructor(context: Context, { qpType, sgesMax = 4 }: PeerOptions) {
    this.context = context;
    this.qpType = qpType;
    this.address = `${context.local.gid}`;
    this.#pd = context.allocPd();
    const channel = context.createCompChannel();
    this.#cq = context.createCq(CQ_ENTRIES, channel);
    void this.#countEvents(channel);
    this.#memory = context.alloc(MEMORY_BYTES);
    this.#mr = this.#pd.regMr(this.#memory, ACCESS);
    this.qp = this.#pd.createQp({
      qpType,
      sendCq: this.#cq,
      recvCq: this.#cq,
      cap: {
        maxSendWr: QUEUE_ENTRIES,
        maxRecvWr: QUEUE_ENTRIES,
        maxSendSge: sgesMax,
        maxRecvSge: sgesMax,
      },
    });
    const unreliable = qpType === QpType.UD ? { qkey: QKEY } : { qpAccessFlags: ACCESS | FLUSHES };
    this.qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, ...unreliable });
  }

  /** `address`: ours, of the right family. */
  static async open(address: string, options: PeerOptions): Promise<OurPeer> {
    const limits = { memoryBytes: DEVICE_BYTES, rdAtomicMax: HELD_MAX };
    const { rttMillis = 0 } = options;
    const context =
      rttMillis === 0
        ? await openDevice({ address, ...limits })
        : await openDevice({ link: new DelayLink(new UdpLink({ address }), rttMillis), ...limits });
    return new OurPeer(context, options);
  }

  get qpn(): number {
    return this.qp.qpNum;
  }

  get region(): Region {
    return this.#mr;
  }

  regMr(access: number, offset: number, length: number): Promise<Region> {
    const part = this.#memory.subarray(offset, offset + length);
    return Promise.resolve(this.#pd.regMr(part, access));
  }

  regInvalidatable(offset: number, length: number): Promise<Region> {
    const part = this.#memory.subarray(offset, offset + length);
    return Promise.resolve(this.#pd.regMr(part, ACCESS, { invalidatable: true }));
  }

  /** A new region of persistent memory: in its file is what was flushed, and nothing else. */
  async regPmem(path: string, access: number, bytes: number): Promise<Region> {
    const pmem = await this.context.openPmem(path, { bytes, store: 'file' });
    return this.#pd.regMr(pmem.buffer, access);
  }

  /** A memory layout over its memory, as peers name it. */
  layOut(make: (base: LayoutBase) => readonly MrLayoutInterleaved[]): LayoutMemoryRegion {
    const layout = this.#pd.regMr(null, 0, ACCESS | AccessFlag.ZERO_BASED);
    layout.setLayoutInterleaved(0, make(this.#mr));
    return layout;
  }

  connect(peer: Peer, options: ConnectOptions): Promise<void> {
    const { mtuBytes, sqPsn, rqPsn, timeout, retryCnt, rnrRetry, minRnrTimer } = options;
    const { doubledFlushIcrc = true } = options;
    const ahAttr = { dgid: peer.address, doubledFlushIcrc };
    this.#peerQpn = peer.qpn;
    if (this.qpType === QpType.UD) {
      this.#ah = this.#pd.createAh(ahAttr);
      this.qp.modify({ qpState: QpState.RTR });
      this.qp.modify({ qpState: QpState.RTS, sqPsn });
      return Promise.resolve();
    }
    const isReliable = this.qpType === QpType.RC;
    this.qp.modify({
      qpState: QpState.RTR,
      ahAttr,
      pathMtu: Mtu.MTU_256 + Math.log2(mtuBytes / 256),
      destQpNum: peer.qpn,
      rqPsn,
      // rxe counts neither FLUSHes nor ATOMIC WRITEs, and a disk may be slow (flush-faults.md).
      ...(isReliable ? { maxDestRdAtomic: HELD_MAX, minRnrTimer } : {}),
    });
    this.qp.modify({
      qpState: QpState.RTS,
      sqPsn,
      ...(isReliable ? { timeout, retryCnt, rnrRetry, maxRdAtomic: 16 } : {}),
    });
    return Promise.resolve();
  }

  postRecv(wrId: number, sgList: Request['sgList'] = []): Promise<void> {
    this.qp.postRecv({ wrId, sgList });
    return Promise.resolve();
  }

  postSend({ qkey = QKEY, ...request }: Request): Promise<void> {
    const ud = this.#ah && { ah: this.#ah, remoteQpn: this.#peerQpn, remoteQkey: qkey };
    this.qp.postSend(ud ? { ...request, ud } : request);
    return Promise.resolve();
  }

  async poll(count: number, millis = FIRST_WAIT_MILLIS): Promise<readonly Completion[]> {
    const found: WorkCompletion[] = [];
    while (found.length < count) {
      const some = await this.#next(count - found.length, millis);
      if (some.length === 0) break;
      found.push(...some);
    }
    return found;
  }

  armSolicited(): Promise<void> {
    this.#cq.reqNotify(true);
    return Promise.resolve();
  }

  async hadEvent(): Promise<boolean> {
    const deadline = performance.now() + EVENT_MILLIS;
    while (this.#events === 0 && performance.now() < deadline) await sleep(1);
    const count = this.#events;
    this.#events = 0;
    return count > 0;
  }

  state(): Promise<number> {
    return Promise.resolve(this.qp.state);
  }

  fill(offset: number, length: number, seed: number): Promise<void> {
    return this.write(offset, noise(length, seed));
  }

  same(offset: number, length: number, seed: number): Promise<number> {
    const wanted = noise(length, seed);
    const is = this.#memory.subarray(offset, offset + length);
    return Promise.resolve(is.findIndex((byte, index) => byte !== wanted[index]));
  }

  read(offset: number, length: number): Promise<Buffer> {
    return Promise.resolve(Buffer.from(this.#memory.slice(offset, offset + length)));
  }

  write(offset: number, bytes: Uint8Array): Promise<void> {
    this.#memory.set(bytes, offset);
    return Promise.resolve();
  }

  close(): Promise<void> {
    return this.context.close();
  }

  async #countEvents(channel: CompletionChannel): Promise<void> {
    for await (const queue of channel) if (queue === this.#cq) this.#events++;
  }

  /** Some completions, or none for so long. */
  async #next(count: number, millis: number): Promise<WorkCompletion[]> {
    const deadline = performance.now() + millis;
    for (;;) {
      const some = this.#cq.poll(count);
      if (some.length > 0 || performance.now() >= deadline) return some;
      await sleep(1);
    }
  }
}
