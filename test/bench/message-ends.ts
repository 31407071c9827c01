/**
 * Ways to send messages from one process to another, all driven by the same code: SENDs of a queue
 * pair, RDS sockets, `verbena/dgram`, UDP with acknowledgements in JavaScript, and udx-native.
 */
import { asPosted } from '../support/any-request.js';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import dgram from '../../host/dgram/index.js';
import {
  AccessFlag,
  Endpoint,
  Mtu,
  QpState,
  SendFlag,
  WrOpcode,
  openDevice,
  rds,
  type Context,
  type QueuePair,
} from '../../host/index.js';
import { AcknowledgedUdp } from './acknowledged-udp.js';
import { check } from './stack.js';

export type Way =
  | 'send'
  | 'write'
  /** Out of memory that is never the same. */
  | 'write-anew'
  | 'rds'
  /** From where the application has them. */
  | 'zero'
  /** Written into memory that the peer has named, out of the same memory each time. */
  | 'directed'
  /** The same out of memory that is never the same. */
  | 'directed-anew'
  | 'dgram'
  | 'acks'
  | 'udx';

export interface WayOptions {
  readonly way: Way;
  /** Of `send`, `write`, `rds` and `directed`. */
  readonly progress: 'inline' | 'thread';
  /** Of each message, at most. */
  readonly bytesMax: number;
  /** The end that answers. */
  readonly isPartner?: boolean;
  /** `rds`: a device that both ends share. Default: each has its own. */
  readonly name?: string;
}

/** One end. The other one gets its `where`. */
export interface MessageEnd {
  readonly where: number[];
  /** Of each message; both ends must have the same. */
  bytes: number;
  connect(there: readonly number[]): Promise<void>;
  /** Undefined: it was taken; else it is sent when that has come. */
  send(): Promise<void> | undefined;
  heard: () => void;
  close(): Promise<void>;
}

const ADDRESS = '127.0.0.1';
/** Each has a node at the port of nodes. */
const OWN_ADDRESSES = ['127.0.78.41', '127.0.78.42'];
const RDS_PORT = 4000;
/** Of a device that both ends share: no two of them live at the same time. */
const SHARED_PORT = 47_918;
const AGAIN_MILLIS = 100;
/** Between two datagrams that wait for the change to RDP. */
const SWITCH_MILLIS = 5;
/** Of a message that only says that something was written. */
const TICKET_BYTES = 8;
/** More than a node keeps registered. */
const BUFFERS = 300;
/** Messages under way; as many as RDS lets go to one port. */
const UNDER_WAY = 64;

export function openEnd(options: WayOptions): Promise<MessageEnd> {
  return WAYS[options.way](options);
}

const WAYS: { readonly [way in Way]: (options: WayOptions) => Promise<MessageEnd> } = {
  send: (options) => openVerbs(options, false),
  write: (options) => openVerbs(options, true),
  'write-anew': (options) => openVerbs(options, true, BUFFERS),
  rds: openRds,
  zero: openRds,
  directed: openRds,
  'directed-anew': openRds,

  dgram: async ({ bytesMax, isPartner = false }) => {
    const [ours, theirs] = isPartner ? [...OWN_ADDRESSES].reverse() : OWN_ADDRESSES;
    // Callbacks are the flow control of this end, also while a busy machine is slow. An option,
    // since a process reads its environment once, maybe for a socket of another bench.
    const rdp = { callbackMillis: 100_000, retryMillis: 100_000 };
    const socket = dgram.createSocket({ type: 'udp4', rdp });
    socket.bind(0, ours);
    await once(socket, 'listening');
    const memory = new Uint8Array(bytesMax);
    let there = 0;
    const end: MessageEnd = {
      where: [socket.address().port],
      bytes: bytesMax,
      heard: () => {},
      // By UDP a flow would lose messages.
      connect: async ([port]) => {
        there = port!;
        while (socket.counters.rdpSent === 0) {
          socket.send('', there, theirs);
          await new Promise((resolve) => setTimeout(resolve, SWITCH_MILLIS));
        }
      },
      send: () => {
        const message = memory.subarray(0, end.bytes);
        if (socket.getSendQueueCount() < UNDER_WAY) {
          socket.send(message, there, theirs);
          return undefined;
        }
        return new Promise((resolve) => socket.send(message, there, theirs, () => resolve()));
      },
      close: async () => {
        const { rdpSent, udpSent } = socket.counters;
        if (udpSent > rdpSent) throw new Error('most messages went by UDP');
        socket.close();
      },
    };
    socket.on('message', (data) => {
      if (data.length > 0) end.heard();
    });
    return end;
  },

  acks: async ({ bytesMax }) => {
    const socket = createSocket('udp4');
    socket.bind(0, ADDRESS);
    await once(socket, 'listening');
    socket.setRecvBufferSize(4 << 20);
    const link = new AcknowledgedUdp(socket, UNDER_WAY);
    const memory = new Uint8Array(bytesMax);
    const end: MessageEnd = {
      where: [socket.address().port],
      bytes: bytesMax,
      heard: () => {},
      connect: async ([port]) => {
        socket.connect(port!, ADDRESS);
        await once(socket, 'connect');
      },
      send: () => link.send(memory.subarray(0, end.bytes)),
      close: async () => link.close(),
    };
    link.heard = () => end.heard();
    return end;
  },

  udx: async ({ bytesMax }) => {
    // It has no types.
    const name = 'udx-native';
    const { default: Udx } = (await import(name)) as { default: new () => UdxLibrary };
    const library = new Udx();
    const socket = library.createSocket();
    socket.bind(0, ADDRESS);
    const stream = library.createStream(process.pid);
    const memory = Buffer.alloc(bytesMax);
    const end: MessageEnd = {
      where: [socket.address().port, process.pid],
      bytes: bytesMax,
      heard: () => {},
      connect: async ([port, id]) => stream.connect(socket, id!, port!, ADDRESS),
      send: () => {
        // The stream keeps the buffer until it is acknowledged.
        const message = memory.subarray(0, end.bytes);
        return stream.write(message) ? undefined : once(stream, 'drain').then(() => {});
      },
      close: async () => {
        stream.destroy();
        await new Promise((resolve) => setTimeout(resolve, 50));
        await socket.close();
      },
    };
    stream.on('error', () => {});
    let count = 0;
    stream.on('data', (data) => {
      for (count += data.length; count >= end.bytes; count -= end.bytes) end.heard();
    });
    return end;
  },
};

interface UdxStream extends NodeJS.EventEmitter {
  connect(socket: UdxSocket, id: number, port: number, host: string): void;
  write(data: Uint8Array): boolean;
  destroy(): void;
  on(event: 'data', listener: (data: Uint8Array) => void): this;
  on(event: 'error', listener: () => void): this;
}

interface UdxSocket {
  bind(port: number, host: string): void;
  address(): { port: number };
  close(): Promise<void>;
}

interface UdxLibrary {
  createSocket(): UdxSocket;
  createStream(id: number): UdxStream;
}

/**
 * SENDs, or WRITEs with immediate data. `locals`: how many places the bytes come from in turn; 0:
 * from any free place.
 */
async function openVerbs(
  { progress, bytesMax }: WayOptions,
  isWrite: boolean,
  locals = 0,
): Promise<MessageEnd> {
  const context = await openDevice({ address: ADDRESS, port: 0, progress });
  const pd = context.allocPd();
  const cq = context.createCq(1024);
  const cap = { maxSendWr: UNDER_WAY, maxRecvWr: 4 * UNDER_WAY, reorderPackets: 64 };
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap });
  const memory = context.alloc(bytesMax * (cap.maxRecvWr + Math.max(locals, UNDER_WAY)));
  const access = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
  const mr = pd.regMr(memory, access);
  const sge = (index: number, length: number) => [
    { addr: Number(mr.addr) + index * bytesMax, length, lkey: mr.lkey },
  ];
  const receive = (wrId: number): void => qp.postRecv({ wrId, sgList: sge(wrId, bytesMax) });
  const [SENT, LOCAL] = [1_000_000, cap.maxRecvWr];
  const { local, device } = context;
  let [room, turn] = [UNDER_WAY, 0];
  let rdma: { readonly remoteAddr: number; readonly rkey: number };
  let next: (() => void) | undefined;
  const end: MessageEnd = {
    where: [local.port, qp.qpNum, device.info.receiveBufferBytes, Number(mr.addr), mr.rkey],
    bytes: bytesMax,
    heard: () => {},
    connect: async ([port, destQpNum, receiveBufferBytes, addr, rkey]) => {
      rdma = { remoteAddr: addr!, rkey: rkey! };
      qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: access });
      for (let index = 0; index < cap.maxRecvWr; index++) receive(index);
      makeReady(qp, port!, destQpNum!, receiveBufferBytes!);
    },
    send: () => {
      if (room === 0) {
        return new Promise<void>((resolve) => (next = resolve)).then(() => end.send());
      }
      room--;
      const sgList = sge(LOCAL + (locals > 0 ? turn++ % locals : room), end.bytes);
      const opcode = isWrite ? WrOpcode.RDMA_WRITE_WITH_IMM : WrOpcode.SEND;
      const request = { wrId: SENT, opcode, sendFlags: SendFlag.SIGNALED, sgList };
      qp.postSend(asPosted(isWrite ? { ...request, rdma } : request));
      return undefined;
    },
    close: async () => context.close(),
  };
  void (async () => {
    for (;;) {
      const completions = await cq.wait(64).catch(() => []);
      if (completions.length === 0) return;
      for (const { status, wrId } of completions) {
        if (device.closed) return;
        check(status);
        if (Number(wrId) === SENT) room++;
        else {
          receive(Number(wrId));
          end.heard();
        }
      }
      if (room > 0) {
        next?.();
        next = undefined;
      }
    }
  })();
  return end;
}

/** From INIT to RTS. */
function makeReady(qp: QueuePair, port: number, destQpNum: number, receiveBufferBytes: number) {
  const { gid } = Endpoint.parse(ADDRESS, port);
  qp.modify({
    qpState: QpState.RTR,
    ahAttr: { dgid: gid, port, receiveBufferBytes, reorderPackets: 64, ownKind: true },
    pathMtu: Mtu.MTU_4096,
    destQpNum,
    rqPsn: 1000,
    maxDestRdAtomic: 1,
    minRnrTimer: 1,
  });
  // A busy machine is no dead peer.
  const patience = { timeout: 18, retryCnt: 7, rnrRetry: 7 };
  qp.modify({ qpState: QpState.RTS, sqPsn: 1000, ...patience, maxRdAtomic: 1 });
}

/** Messages; directed: what they are about is written into the peer's memory in front of them. */
function openRdsDevice({ progress, name }: WayOptions): Promise<Context> {
  return openDevice(
    name === undefined
      ? { address: ADDRESS, port: 0, progress }
      : { name, address: ADDRESS, port: SHARED_PORT, progress },
  );
}

/** On a busy machine the path may fail before it is there: then it is made again. */
async function untilSent(socket: rds.RdsSocket, name: rds.RdsAddress): Promise<void> {
  for (let isThere = false; !isThere;) {
    isThere = await socket.send(name).then(
      () => true,
      () => new Promise<false>((resolve) => setTimeout(resolve, AGAIN_MILLIS, false)),
    );
  }
}

async function openRds(options: WayOptions): Promise<MessageEnd> {
  const { way, bytesMax, name: device } = options;
  const isDirected = way === 'directed' || way === 'directed-anew';
  const context = await openRdsDevice(options);
  // Sockets of one device are at one address.
  const [ours, theirs] = device === undefined ? [0, 0] : options.isPartner ? [1, 0] : [0, 1];
  if (way === 'zero') rds.RdsNode.of(context, { zeroCopyBytes: 0 });
  const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
  socket.bind({ port: RDS_PORT + ours });
  const ticket = new Uint8Array(TICKET_BYTES);
  const memory = way === 'zero' ? context.alloc(bytesMax) : new Uint8Array(bytesMax);
  const room = [new Uint8Array(isDirected ? TICKET_BYTES : bytesMax)];
  const count = way === 'directed' ? 1 : BUFFERS;
  const locals = isDirected ? Array.from({ length: count }, () => context.alloc(bytesMax)) : [];
  let turn = 0;
  const target = isDirected ? context.alloc(bytesMax) : undefined;
  const cookie = target ? socket.getMr(target) : 0n;
  let there = 0n;
  let name: rds.RdsAddress;
  const flags = way === 'zero' ? rds.MessageFlag.ZEROCOPY : 0;
  const type = rds.ControlMessageType.RDMA_ARGS;
  const message = (): rds.SendMessage => {
    if (!isDirected) return { name, iov: [memory.subarray(0, end.bytes)], flags };
    const local = locals[turn++ % count]!.subarray(0, end.bytes);
    const args = { type, cookie: there, local, flags: rds.RdmaFlag.READWRITE };
    return { name, iov: [ticket], control: [args] };
  };
  let next: (() => void) | undefined;
  let hasAnswered = (): void => {};
  const answered = new Promise<void>((resolve) => (hasAnswered = resolve));
  const end: MessageEnd = {
    where: [context.local.port, Number(cookie >> 32n), Number(cookie & 0xffffffffn)],
    bytes: bytesMax,
    heard: () => {},
    connect: async ([udpPort, high, low]) => {
      there = (BigInt(high!) << 32n) | BigInt(low!);
      name = { address: ADDRESS, port: RDS_PORT + theirs, udpPort: udpPort! };
      await untilSent(socket, { ...name, port: 0 });
      await answered;
    },
    send: () => {
      try {
        socket.sendmsg(message());
        return undefined;
      } catch (error) {
        const { code } = error as { code?: string };
        if (code !== 'EWOULDBLOCK' && code !== 'ENOBUFS') throw error;
        return new Promise<void>((resolve) => (next = resolve)).then(() => end.send());
      }
    },
    close: async () => context.close(),
  };
  const read = (): void => {
    while (socket.revents & rds.PollEvent.IN) {
      // Port 0 is reserved: its messages answer probes of the path.
      if (socket.recvmsg(room).name.port === 0) hasAnswered();
      else end.heard();
    }
  };
  const write = (): void => {
    next?.();
    next = undefined;
  };
  socket.listener = { readable: read, writable: write };
  return end;
}
