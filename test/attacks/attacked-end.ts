/**
 * One end of the connections that a relay attacks (relay.ts). Each process loads this file, opens a
 * device behind the relay, and listens or connects; the runner calls `attackedEnd` by `Member.run`.
 */
import type { AnyRequest } from '../support/any-request.js';
import {
  AccessFlag,
  SendFlag,
  WcStatus,
  WcStatusName,
  WrOpcode,
  connect,
  listen,
  openDevice,
  type AuthOptions,
  type Context,
  type MemoryRegion,
  type QueuePair,
  type RdmaConnection,
} from '../../host/index.js';
import { createSocket } from '../../host/link/plain-dgram.js';
import { UdpLink } from '../../host/link/udp/udp.js';
import { Manager } from '../../host/cm/manager.js';

const SLOT = 64;
/** Slot 0 holds the counter of FETCH_AND_ADD. */
const SLOTS = 64;
const RECEIVES = 128;
const WAIT_MILLIS = 30_000;
/** 67 ms: what a relay drops is soon sent again, and a busy machine has answered by then. */
const ACK_TIMEOUT = 14;
const ALL =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.REMOTE_ATOMIC;

/** Description of a process's memory for the other one; BigInts do not pass as JSON. */
export interface RemoteMemory {
  readonly addr: string;
  readonly rkey: number;
}

export interface AuthChoice {
  /** As text; undefined: no authentication. */
  readonly psk?: string;
  readonly encrypt?: boolean;
}

function authOf({ psk, encrypt }: AuthChoice): { auth?: AuthOptions } {
  if (psk === undefined) return {};
  return { auth: { psk: Buffer.from(psk), ...(encrypt === undefined ? {} : { encrypt }) } };
}

/** An accepted connection of the listening process. */
interface Accepted {
  readonly connection: RdmaConnection;
  readonly memory: Uint8Array;
  readonly mr: MemoryRegion;
  readonly inbox: Uint8Array;
  readonly inboxMr: MemoryRegion;
}

function postReceive(qp: QueuePair, { addr, lkey }: MemoryRegion, slot: number): void {
  const sgList = [{ addr: addr + BigInt(slot * SLOT), length: SLOT, lkey }];
  qp.postRecv({ wrId: slot, sgList });
}

class AttackedEnd {
  #context: Context | undefined;
  readonly #accepted: Accepted[] = [];
  readonly #connections: RdmaConnection[] = [];
  #ended = 0;

  get context(): Context {
    return this.#context!;
  }

  /** Packets to `peer` go to the relay's port there. */
  async open(address: string, peer: string, relayPort: number): Promise<void> {
    const link = new UdpLink({ address, port: 4791 }, (options) => {
      const socket = createSocket(options as 'udp4');
      const send = socket.send.bind(socket) as (...args: unknown[]) => void;
      const rerouted = (packet: Uint8Array, port: number, to: string, done: () => void): void =>
        send(packet, to === peer ? relayPort : port, to, done);
      socket.send = rerouted as typeof socket.send;
      return socket;
    });
    this.#context = await openDevice({ link, memoryBytes: 32 * 2 ** 20 });
  }

  async listen(address: string, port: number, choice: AuthChoice): Promise<void> {
    const { context } = this;
    const listener = await listen({ address, port }, { context, ...authOf(choice) });
    void (async () => {
      const made = new Map<QueuePair, Omit<Accepted, 'connection'>>();
      const prepare = (qp: QueuePair): void => {
        const [memory, inbox] = [context.alloc(SLOTS * SLOT), context.alloc(RECEIVES * SLOT)];
        const mr = qp.pd.regMr(memory, ALL);
        const inboxMr = qp.pd.regMr(inbox, AccessFlag.LOCAL_WRITE);
        for (let slot = 0; slot < RECEIVES; slot++) postReceive(qp, inboxMr, slot);
        made.set(qp, { memory, mr, inbox, inboxMr });
      };
      const qp = { cap: { maxSendWr: 64, maxRecvWr: RECEIVES } };
      const options = { qp, ackTimeout: ACK_TIMEOUT };
      for await (const connection of listener.connections(options, prepare)) {
        this.#accepted.push({ connection, ...made.get(connection.qp)! });
        void connection.disconnected.then(() => this.#ended++);
      }
    })();
  }

  /** Number of accepted connections, of those that ended, and what was counted. */
  state(): Record<'accepted' | 'ended' | 'dropTag' | 'dropReplay' | 'unauthentic', number> {
    const { dropTag, dropReplay } = this.context.counters();
    const { unauthentic } = Manager.of(this.context).core.counters;
    return {
      accepted: this.#accepted.length,
      ended: this.#ended,
      dropTag: Number(dropTag),
      dropReplay: Number(dropReplay),
      unauthentic,
    };
  }

  /** Memory of accepted connection `index`, once there is one. */
  async memoryOf(index: number): Promise<RemoteMemory> {
    const end = performance.now() + WAIT_MILLIS;
    while (!this.#accepted[index] && performance.now() < end) await turn();
    const { addr, rkey } = this.#accepted[index]!.mr;
    return { addr: String(addr), rkey };
  }

  /** The FETCH_AND_ADD counter, and text in the slots behind it. */
  contents(index: number): { readonly count: number; readonly slots: string[] } {
    const { memory } = this.#accepted[index]!;
    const count = Number(Buffer.from(memory.slice(0, 8)).readBigUInt64LE());
    const slots = Array.from({ length: SLOTS - 1 }, (_, slot) => text(memory, slot + 1));
    return { count, slots };
  }

  /** Text of the messages that arrived, in their order; their receives are posted again. */
  messages(index: number): string[] {
    const { connection, inbox, inboxMr } = this.#accepted[index]!;
    const found: string[] = [];
    for (const { wrId, status } of connection.recvCq.poll(RECEIVES)) {
      if (status === WcStatus.WR_FLUSH_ERR) continue;
      const slot = Number(wrId);
      found.push(status === 0 ? text(inbox, slot) : WcStatusName[status]!);
      if (status === 0) postReceive(connection.qp, inboxMr, slot);
    }
    return found;
  }

  /** Undefined: connected; else the code of the error. */
  async connect(
    address: string,
    port: number,
    choice: AuthChoice,
    maxCmRetries = 15,
  ): Promise<string | undefined> {
    try {
      const qp = { cap: { maxSendWr: 64 } };
      const options = { context: this.context, qp, ackTimeout: ACK_TIMEOUT, maxCmRetries };
      const target = { address, port };
      const connection = await connect(target, { ...options, ...authOf(choice) });
      this.#connections.push(connection);
      void connection.disconnected.then(() => this.#ended++);
      return undefined;
    } catch (error) {
      return (error as { code?: string }).code ?? String(error);
    }
  }

  /** Both ends are authenticated, or none. */
  isAuthenticated(index: number): boolean {
    const qp = (this.#connections[index] ?? this.#accepted[index]?.connection)!.qp;
    return qp.isAuthenticated;
  }

  qpNum(index: number): number {
    return (this.#connections[index] ?? this.#accepted[index]?.connection)!.qp.qpNum;
  }

  rotateKey(index: number): void {
    this.#connections[index]!.qp.rotateKey();
  }

  async disconnect(index: number): Promise<void> {
    await this.#connections[index]!.disconnect();
  }

  /**
   * Rounds of a WRITE (`slot` of the other side), a SEND, a FETCH_AND_ADD and a READ of the slot.
   * Resolves to the first fault, or undefined.
   */
  async rounds(
    index: number,
    { addr, rkey }: RemoteMemory,
    from: number,
    count: number,
  ): Promise<string | undefined> {
    const { qp, sendCq, context } = this.#connections[index]!;
    const memory = context.alloc(4 * SLOT);
    const mr = qp.pd.regMr(memory, AccessFlag.LOCAL_WRITE);
    const sge = (slot: number, length = SLOT) => [
      { addr: mr.addr + BigInt(slot * SLOT), length, lkey: mr.lkey },
    ];
    const base = BigInt(addr);
    for (let round = from; round < from + count; round++) {
      const remoteAddr = base + BigInt(SLOT * (1 + (round % (SLOTS - 1))));
      write(memory, 0, `write ${round}`);
      write(memory, 1, `message ${round}`);
      const atomic = { remoteAddr: base, rkey, compareAdd: 1n };
      const requests: Omit<AnyRequest, 'sendFlags'>[] = [
        { opcode: WrOpcode.RDMA_WRITE, sgList: sge(0), rdma: { remoteAddr, rkey } },
        { opcode: WrOpcode.SEND, sgList: sge(1) },
        { opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, sgList: sge(2, 8), atomic },
        { opcode: WrOpcode.RDMA_READ, sgList: sge(3), rdma: { remoteAddr, rkey } },
      ];
      for (const wr of requests) qp.postSend({ ...wr, sendFlags: SendFlag.SIGNALED });
      const end = performance.now() + WAIT_MILLIS;
      for (let done = 0; done < requests.length;) {
        if (performance.now() > end) return `round ${round}: no completion`;
        for (const { status } of sendCq.poll(requests.length)) {
          if (status !== 0) return `round ${round}: ${WcStatusName[status]}`;
          done++;
        }
        await turn();
      }
      if (text(memory, 3) !== `write ${round}`) return `round ${round}: READ ${text(memory, 3)}`;
    }
    return undefined;
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function write(memory: Uint8Array, slot: number, value: string): void {
  memory.fill(0, slot * SLOT, (slot + 1) * SLOT).set(Buffer.from(value), slot * SLOT);
}

function text(memory: Uint8Array, slot: number): string {
  const bytes = Buffer.from(memory.slice(slot * SLOT, (slot + 1) * SLOT));
  return bytes.toString('latin1').replace(/\0+$/, '');
}

export type { AttackedEnd };
export const attackedEnd = new AttackedEnd();
