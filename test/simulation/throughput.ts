/**
 * Goodput under loss, in virtual time. RDMA WRITEs of one size, as many under way as the queue
 * takes, over a link of 10 Gbit/s and 50 us each way, to a peer that does no selective repeat; and
 * READs and WRITEs between Verbena peers through networks. The tables are deterministic to the last
 * digit, so a change of the engine's behaviour under loss is a line of a diff.
 * ```
 *   npm run -s sim -- --table      writes throughput.snapshot.txt
 * ```
 */
import { readFileSync, writeFileSync } from 'node:fs';
import {
  AccessFlag,
  Endpoint,
  Mtu,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  openDevice,
  type Context,
  type QueuePair,
} from '../../host/index.js';
import { root } from '../support/paths.js';
import { runFlows } from './flows.js';
import { Network } from './network.js';
import { PERFECT, optionsOf, type SimulationOptions } from './options.js';
import { DeviceClock, EventKind, EventQueue } from './queue.js';
import { Random, withRandomKeys } from './random.js';
import type { Line } from './switch.js';

const LOSSES = [0, 0.001, 0.01, 0.05, 0.1, 0.2];
const SIZES: readonly { readonly name: string; readonly bytes: number; readonly count: number }[] =
  [
    { name: '64 B', bytes: 64, count: 2000 },
    { name: '1 KiB', bytes: 1024, count: 2000 },
    { name: '4 KiB', bytes: 4096, count: 1000 },
    { name: '64 KiB', bytes: 65536, count: 100 },
    { name: '1 MiB', bytes: 2 ** 20, count: 8 },
  ];
const LATENCY_MICROS = 50;
const BYTES_PER_MICRO = 1250;
const DEPTH = 128;
const SEED = 1;

function optionsFor(loss: number): SimulationOptions {
  return {
    ...optionsOf(SEED),
    ...PERFECT,
    seed: SEED,
    loss,
    latencyMicros: LATENCY_MICROS,
    bytesPerMicro: BYTES_PER_MICRO,
    windowBytes: 4 * 2 ** 20,
  };
}

interface End {
  readonly context: Context;
  readonly clock: DeviceClock;
  readonly qp: QueuePair;
  readonly addr: bigint;
  readonly key: number;
}

async function open(index: number, network: Network, bytes: number): Promise<End> {
  const clock = new DeviceClock(network.queue, index);
  const context = await openDevice({
    link: network.link(index),
    clock,
    memoryBytes: 8 * 2 ** 20 + bytes,
    queuePairsMax: 1,
    completionQueuesMax: 1,
    regionsMax: 4,
  });
  const pd = context.allocPd();
  const cq = context.createCq(2 * DEPTH);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap: { maxSendWr: DEPTH } });
  const access = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
  const mr = pd.regMr(context.alloc(bytes), access);
  return { context, clock, qp, addr: mr.addr, key: mr.rkey };
}

function connect({ qp }: End, peer: End): void {
  const { gid, port } = peer.context.local;
  qp.modify({
    qpState: QpState.INIT,
    pkeyIndex: 0,
    portNum: 1,
    qpAccessFlags: AccessFlag.REMOTE_WRITE,
  });
  qp.modify({
    qpState: QpState.RTR,
    ahAttr: { dgid: gid, port },
    pathMtu: Mtu.MTU_4096,
    destQpNum: peer.qp.qpNum,
    rqPsn: 0,
    maxDestRdAtomic: 1,
    minRnrTimer: 12,
  });
  qp.modify({
    qpState: QpState.RTS,
    sqPsn: 0,
    timeout: 9,
    retryCnt: 7,
    rnrRetry: 7,
    maxRdAtomic: 1,
  });
}

/** Mbit/s of `count` messages; undefined: the connection did not survive. */
async function measure(loss: number, bytes: number, count: number): Promise<number | undefined> {
  const queue = new EventQueue(1_000_000);
  const endpoints = ['10.0.0.1', '10.0.0.2'].map((address) => Endpoint.parse(address, 4791));
  const network = new Network(queue, optionsFor(loss), endpoints, new Random(SEED));
  const ends = [await open(0, network, bytes), await open(1, network, bytes)] as const;
  connect(ends[0], ends[1]);
  connect(ends[1], ends[0]);
  const { qp, addr, key } = ends[0];
  const request = {
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr, length: bytes, lkey: key }],
    rdma: { remoteAddr: ends[1].addr, rkey: ends[1].key },
  };
  const start = queue.now;
  let posted = 0;
  let complete = 0;
  let failed = false;
  while (complete < count && !failed) {
    while (posted < count && posted - complete < DEPTH) qp.postSend({ wrId: posted++, ...request });
    if (!queue.take()) throw new Error('nothing is due, but not done');
    if (queue.kind === EventKind.PACKET) network.deliver(queue.argument);
    else if (queue.kind === EventKind.TIMER) ends[queue.argument]!.clock.due();
    for (const { status } of qp.sendCq.poll(DEPTH)) {
      if (status !== WcStatus.SUCCESS) failed = true;
      complete++;
    }
  }
  for (const { context } of ends) await context.close();
  return failed ? undefined : (bytes * count * 8) / (queue.now - start);
}

/** WRITEs by loss and size. */
function throughputTable(rowsMax: number): Promise<string> {
  return withRandomKeys(new Random(SEED), async () => {
    const lines = ['Goodput of RDMA WRITE in Mbit/s: 10 Gbit/s, 50 us each way, path MTU 4096', ''];
    const cell = (text: string): string => text.padStart(10);
    lines.push('loss    ' + SIZES.map(({ name }) => cell(name)).join(''));
    for (const loss of LOSSES.slice(0, rowsMax)) {
      let line = `${loss * 100} %`.padEnd(8);
      for (const { bytes, count } of SIZES) {
        const rate = await measure(loss, bytes, count);
        line += cell(rate === undefined ? 'broken' : rate.toFixed(1));
      }
      lines.push(line);
    }
    return lines.join('\n') + '\n';
  });
}

const NETWORKS: readonly (readonly [name: string, line: Line])[] = [
  ['200 Mbit/s, 50 ms', { rate: 200, queue: 833, rtt: 50, loss: 0, late: [0, 0] }],
  ['200 Mbit/s, 50 ms, 1 % lost', { rate: 200, queue: 833, rtt: 50, loss: 0.01, late: [0, 0] }],
  ['400 Mbit/s, 0.2 ms', { rate: 400, queue: 333, rtt: 0.2, loss: 0, late: [0, 0] }],
  ['400 Mbit/s, 0.2 ms, 1 % lost', { rate: 400, queue: 333, rtt: 0.2, loss: 0.01, late: [0, 0] }],
  [
    '400 Mbit/s, 0.2 ms, 5 % 1 ms late',
    { rate: 400, queue: 333, rtt: 0.2, loss: 0, late: [0.05, 1] },
  ],
  [
    '400 Mbit/s, 10 ms, 5 % 1 ms late',
    { rate: 400, queue: 333, rtt: 10, loss: 0, late: [0.05, 1] },
  ],
];
const NETWORK_SECONDS = 2;

/** Of streams between Verbena peers: requests of 64 KiB, 128 under way. */
async function networkTable(rowsMax: number): Promise<string> {
  const lines = [
    `READ and WRITE between Verbena peers: Mbit/s in ${NETWORK_SECONDS} s, path MTU 1024, and packets of the`,
    'responder for each packet of payload',
    '',
    'network'.padEnd(36) + ['READ', 'packets', 'WRITE'].map((name) => name.padStart(10)).join(''),
  ];
  for (const [name, line] of NETWORKS.slice(0, rowsMax)) {
    const options = { seed: SEED, line, seconds: NETWORK_SECONDS, senders: 1, queuePairs: 1 };
    const stream = { ...options, size: 65536, depth: DEPTH, reorderPackets: 4096 };
    const read = await runFlows({ ...stream, verb: 'read' });
    const write = await runFlows({ ...stream, verb: 'write' });
    const needed = (read.mbps[0]! * NETWORK_SECONDS * 1e6) / 8 / 1024;
    const cells = [read.mbps[0]!, read.responded / needed, write.mbps[0]!];
    const text = cells.map((value, at) => value.toFixed(at === 1 ? 3 : 1).padStart(10)).join('');
    lines.push(name.padEnd(36) + text);
  }
  return lines.join('\n') + '\n';
}

/** Both tables, of each at most the first `rowsMax` rows. */
export async function throughputTables(rowsMax = Infinity): Promise<string> {
  return `${await throughputTable(rowsMax)}\n${await networkTable(rowsMax)}`;
}

const snapshot = new URL('test/simulation/throughput.snapshot.txt', root);

export function readSnapshot(): string {
  return readFileSync(snapshot, 'utf8');
}

export async function writeSnapshot(): Promise<string> {
  const table = await throughputTables();
  writeFileSync(snapshot, table);
  return table;
}
