/**
 * Streams of many queue pairs through one switch, in virtual time, and an auditor: what each
 * completes, what is sent again, and how equally a port is shared.
 */
import { asPosted } from '../support/any-request.js';
import {
  Endpoint,
  Mtu,
  QpState,
  SendFlag,
  WcStatus,
  WcStatusName,
  WrOpcode,
  openDevice,
  type Context,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
} from '../../host/index.js';
import type { DeviceOptions } from '../../host/device/device.js';
import { ALL_ACCESS } from '../support/pair.js';
import { DeviceClock, EventKind, EventQueue } from './queue.js';
import { Random, withRandomKeys } from './random.js';
import { Switch, type Line, type SwitchCounters } from './switch.js';

/** More than a packet takes that is kept ahead. */
const PLACE_BYTES = 4200;
const SLICE_MICROS = 100_000;

/** Streams of `senders` hosts to one more, or of READs from it. */
export interface FlowOptions {
  readonly seed: number;
  readonly line: Line;
  readonly seconds: number;
  readonly senders: number;
  /** Of each sender. */
  readonly queuePairs: number;
  /** Bytes of a request, and requests under way of each queue pair. */
  readonly size: number;
  readonly depth: number;
  readonly verb: 'write' | 'read' | 'send';
  readonly reorderPackets: number;
  /** Of each device; default: as much as all queue pairs may keep. */
  readonly reorderBytes?: number;
  /** When the last queue pair of each sender begins. Default: with the others. */
  readonly lastBegins?: number;
  /** Seconds during which nothing passes. */
  readonly outage?: readonly [from: number, to: number];
  /** Default: MTU_1024. */
  readonly pathMtu?: Mtu;
  /** Default: auto. */
  readonly congestionControl?: DeviceOptions['congestionControl'];
  /** Payload of a full packet, if it is more than that of the path MTU. */
  readonly payloadBytes?: number;
  /** From when on packets of more bytes, from BTH to ICRC, vanish. */
  readonly packetMax?: readonly [seconds: number, bytes: number];
  /** When the round trip changes, and to how many milliseconds. */
  readonly reroute?: readonly [seconds: number, rtt: number];
}

export interface FlowResult {
  /** Mbit/s of payload that completed, by sender and queue pair. */
  readonly mbps: readonly number[];
  /** The same in the second half of the time. */
  readonly later: readonly number[];
  /** Of all, in each tenth of a second. */
  readonly slices: readonly number[];
  readonly errors: readonly string[];
  /** The same, with when. */
  readonly ends: readonly FlowEnd[];
  /** Of all devices. */
  readonly packets: number;
  readonly retransmitted: number;
  readonly cnps: number;
  /** Packets at a port at once, in the second half of the time. */
  readonly laterQueue: number;
  /** Packets that the host sent to which all streams go, or from which READs come. */
  readonly responded: number;
  readonly counters: SwitchCounters;
  readonly events: number;
}

/** The first completion of a queue pair with an error. */
export interface FlowEnd {
  readonly seconds: number;
  readonly status: string;
  readonly vendorErr: number;
  /** Seconds since the last request of the queue pair was completed. */
  readonly silence: number;
}

interface Host {
  readonly context: Context;
  readonly clock: DeviceClock;
  readonly pd: ProtectionDomain;
  readonly mr: MemoryRegion;
}

interface Flow {
  readonly qp: QueuePair;
  readonly post: () => void;
  bytes: number;
  /** When half of the time had passed. */
  halfBytes: number;
  /** Seconds. */
  completed: number;
  end: FlowEnd | undefined;
}

async function openHost(network: Switch, index: number, options: FlowOptions): Promise<Host> {
  const clock = new DeviceClock(network.queue, index);
  const queuePairs = options.queuePairs * options.senders;
  const kept = Math.max(options.reorderPackets, 64) * PLACE_BYTES + 2 ** 17;
  const context = await openDevice({
    link: network.link(index),
    clock,
    reorderBytes: options.reorderBytes ?? queuePairs * kept,
    memoryBytes: 24 * 2 ** 20 + Math.ceil(queuePairs * (kept + options.depth * 256)),
    queuePairsMax: queuePairs,
    completionQueuesMax: 2 * queuePairs,
    regionsMax: 4,
    congestionControl: options.congestionControl ?? 'auto',
  });
  const pd = context.allocPd();
  const mr = pd.regMr(context.alloc(options.size), ALL_ACCESS);
  return { context, clock, pd, mr };
}

function makeQueuePair({ context, pd }: Host, options: FlowOptions): QueuePair {
  const { depth, reorderPackets } = options;
  const cap = { maxSendWr: depth, maxRecvWr: 4 * depth, reorderPackets };
  return pd.createQp({
    sendCq: context.createCq(2 * depth),
    recvCq: context.createCq(8 * depth),
    cap,
  });
}

function connect(qp: QueuePair, peer: Host, destQpNum: number, options: FlowOptions): void {
  const { reorderPackets, line, payloadBytes = 0 } = options;
  const { gid, port } = peer.context.local;
  const { receiveBufferBytes } = peer.context.device.info;
  qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: ALL_ACCESS });
  qp.modify({
    qpState: QpState.RTR,
    ahAttr: { dgid: gid, port, ownKind: true, receiveBufferBytes, reorderPackets, payloadBytes },
    pathMtu: options.pathMtu ?? Mtu.MTU_1024,
    destQpNum,
    rqPsn: 0,
    maxDestRdAtomic: 16,
    minRnrTimer: 12,
  });
  const tries = { timeout: 17, retryCnt: 7, rnrRetry: 7 };
  qp.modify({ qpState: QpState.RTS, sqPsn: 0, ...tries, maxRdAtomic: 16 });
  // As the handshake of a connection measures it, before others fill the queue.
  qp.seedRoundTrip(line.rtt * 1000);
}

const OPCODES = {
  write: WrOpcode.RDMA_WRITE,
  read: WrOpcode.RDMA_READ,
  send: WrOpcode.SEND,
} as const;

function makeFlow(here: Host, there: Host, options: FlowOptions): Flow {
  const qp = makeQueuePair(here, options);
  const peer = makeQueuePair(there, options);
  connect(qp, there, peer.qpNum, options);
  connect(peer, here, qp.qpNum, options);
  const { size, verb, depth } = options;
  const receive = { sgList: [{ addr: there.mr.addr, length: size, lkey: there.mr.lkey }] };
  if (verb === 'send') for (let n = 0; n < 2 * depth; n++) peer.postRecv(receive);
  const request = {
    opcode: OPCODES[verb],
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: here.mr.addr, length: size, lkey: here.mr.lkey }],
    ...(verb === 'send' ? {} : { rdma: { remoteAddr: there.mr.addr, rkey: there.mr.rkey } }),
  };
  const post = (): void => {
    if (verb === 'send') for (const _ of peer.recvCq.poll(depth)) peer.postRecv(receive);
    qp.postSend(asPosted(request));
  };
  return { qp, post, bytes: 0, halfBytes: 0, completed: 0, end: undefined };
}

/** Looks at what has completed, and posts as much again. Returns the bytes. */
function turn(flow: Flow, options: FlowOptions, seconds: number): number {
  let bytes = 0;
  for (const { status, vendorErr } of flow.qp.sendCq.poll(options.depth)) {
    if (status === WcStatus.SUCCESS) {
      bytes += options.size;
      flow.completed = seconds;
    } else if (!flow.end) {
      const silence = seconds - flow.completed;
      flow.end = { seconds, status: WcStatusName[status]!, vendorErr, silence };
    }
    if (flow.end === undefined) flow.post();
  }
  flow.bytes += bytes;
  return bytes;
}

/** Called each tenth of a second. */
export type Watch = (
  seconds: number,
  contexts: readonly Context[],
  qps: readonly QueuePair[],
) => void;

export function runFlows(options: FlowOptions, watch: Watch = () => {}): Promise<FlowResult> {
  return withRandomKeys(new Random(options.seed), () => run(options, watch));
}

/** Outages of the network, and the time from which it takes no long packets. */
function planFaults(queue: EventQueue, network: Switch, start: number, options: FlowOptions): void {
  for (const at of options.outage ?? []) {
    queue.plan(start + at * 1e6, () => void (network.isDown = !network.isDown));
  }
  if (options.packetMax) {
    const [at, bytes] = options.packetMax;
    queue.plan(start + at * 1e6, () => void (network.packetMax = bytes));
  }
  if (options.reroute) {
    const [at, rtt] = options.reroute;
    queue.plan(start + at * 1e6, () => void (network.rtt = rtt));
  }
}

/** Each queue pair posts its requests, the last one of each sender perhaps later. */
function beginFlows(
  queue: EventQueue,
  start: number,
  flows: readonly (readonly Flow[])[],
  { depth, lastBegins }: FlowOptions,
): void {
  const begin = (flow: Flow): void => {
    for (let n = 0; n < depth; n++) flow.post();
  };
  for (const ofHost of flows) {
    for (const flow of ofHost) {
      const waits = lastBegins !== undefined && flow === ofHost.at(-1);
      if (waits) queue.plan(start + lastBegins * 1e6, () => begin(flow));
      else begin(flow);
    }
  }
}

/** Counters of all devices together. */
function countAll(contexts: readonly Context[]) {
  let [packets, retransmitted, cnps] = [0, 0, 0];
  for (const context of contexts) {
    packets += Number(context.counters().sentPkts);
    retransmitted += Number(context.counters().retransmittedPkts);
    cnps += Number(context.counters().cnpsSent);
  }
  return { packets, retransmitted, cnps };
}

async function run(options: FlowOptions, watch: Watch): Promise<FlowResult> {
  // Times of 32 bits wrap at any time.
  const start = new Random(options.seed).split('start').u32();
  const queue = new EventQueue(start);
  const { senders, line, seconds } = options;
  const endpoints = Array.from({ length: senders + 1 }, (_, host) =>
    Endpoint.parse(`10.0.0.${host + 1}`, 4791),
  );
  const network = new Switch(queue, line, endpoints, new Random(options.seed).split('switch'));
  const hosts: Host[] = [];
  for (let host = 0; host <= senders; host++) hosts.push(await openHost(network, host, options));
  const flows: Flow[][] = hosts.map(() => []);
  for (let pair = 0; pair < options.queuePairs; pair++) {
    for (let host = 1; host <= senders; host++) {
      flows[host]!.push(makeFlow(hosts[host]!, hosts[0]!, options));
    }
  }
  const slices: number[] = [];
  const end = start + seconds * 1e6;
  planFaults(queue, network, start, options);
  let earlyQueue = 0;
  queue.plan(start + seconds * 5e5, () => {
    earlyQueue = network.counters.queueMax;
    network.counters.queueMax = 0;
    for (const flow of flows.flat()) flow.halfBytes = flow.bytes;
  });
  const contexts = hosts.map(({ context }) => context);
  const qps = flows.flat().map(({ qp }) => qp);
  for (let at = SLICE_MICROS; at <= seconds * 1e6; at += SLICE_MICROS) {
    queue.plan(start + at, () => watch(at / 1e6, contexts, qps));
  }
  beginFlows(queue, start, flows, options);
  while (queue.take() && queue.now < end) {
    let host = 0;
    if (queue.kind === EventKind.PACKET) host = network.deliver(queue.argument);
    else if (queue.kind === EventKind.TIMER) {
      host = queue.argument;
      hosts[host]!.clock.due();
    } else void queue.task(queue.argument)();
    const since = (queue.now - start) / 1e6;
    const slice = Math.floor((queue.now - start) / SLICE_MICROS);
    for (const flow of flows[host]!)
      slices[slice] = (slices[slice] ?? 0) + turn(flow, options, since);
  }
  const { counters } = network;
  const all = flows.flat();
  const result = {
    mbps: all.map(({ bytes }) => (bytes * 8) / 1e6 / seconds),
    later: all.map(({ bytes, halfBytes }) => ((bytes - halfBytes) * 16) / 1e6 / seconds),
    slices: Array.from(slices, (bytes) => ((bytes ?? 0) * 8) / SLICE_MICROS),
    errors: all.flatMap(({ end }) => (end === undefined ? [] : [end.status])),
    ends: all.flatMap(({ end }) => (end === undefined ? [] : [end])),
    ...countAll(contexts),
    laterQueue: counters.queueMax,
    counters: { ...counters, queueMax: Math.max(earlyQueue, counters.queueMax) },
    responded: Number(contexts[0]!.counters().sentPkts),
    events: queue.taken,
  };
  for (const context of contexts) await context.close();
  return result;
}

/** 1: all have the same; 1/n: one has everything. */
export function jain(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  const squares = shares.reduce((total, share) => total + share * share, 0);
  return squares === 0 ? 1 : (sum * sum) / (shares.length * squares);
}
