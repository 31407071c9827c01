/**
 * One process of a soak: serves the others, works against each of them, and sends datagrams, both
 * kinds. Its coordinator may kill it, or stop it, at any time. Argument: a Start as JSON.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { unlinkSync } from 'node:fs';
import {
  PortSpace,
  RefusalError,
  UdpLink,
  WrOpcode,
  createEventChannel,
  createFmrPool,
  faultLink,
  listen,
  openDevice,
  rds,
  type Context,
  type QueuePair,
} from '../../host/index.js';
import { RDMA_UDP_QKEY } from '../../host/cm/enums.js';
import type { FaultLink } from '../../host/link/faults/fault.js';
import { Random } from '../simulation/random.js';
import { RECORD_RING_BYTES, fillPattern, hasPattern } from './record-ring.js';
import { ledgerPath, type Order, type PeerPlace, type Report, type Start } from './messages.js';
import { Service } from './service.js';
import { Session } from './session.js';

const start = JSON.parse(process.argv[2]!) as Start;
const { member, incarnation, members, directory, isLossy } = start;
const random = new Random(start.seed).split(`member ${member}`, incarnation);
const MEMORY_BYTES = 64 * 2 ** 20;
const BEAT_MILLIS = 500;
const PAUSE_MILLIS = 100;
const EXTRA_BYTES = 4 * 2 ** 20;
const EXTRA_MILLIS = 2000;
const RDS_PORT = 4000;
const RDS_BYTES = 600;
const GRH_BYTES = 40;
const UD_BYTES = 256;
const UD_RECEIVES = 64;

const counts: Record<string, number> = {};
const pending = new Set<string>();
const peers = new Map<number, PeerPlace>();
let isOver = false;

function report(message: Report): void {
  process.send?.(message);
}
function violation(sentence: string): void {
  report({ kind: 'violation', sentence: `member ${member}.${incarnation}: ${sentence}` });
}
function done(what: string): void {
  counts[what] = (counts[what] ?? 0) + 1;
}
/** Keeps the name of pending work, for reports of a member that does not end. */
async function until(what: string, work: Promise<void>): Promise<void> {
  pending.add(what);
  await work;
  pending.delete(what);
}

/** Works with one other member, in each of its incarnations. */
async function workWith(peer: number, context: Context, pool: ReturnType<typeof createFmrPool>) {
  const own = random.split('session', peer);
  const events = {
    ...{ done, violation },
    acknowledged: (owner: number, count: number) => report({ kind: 'ring', owner, count }),
    found: (owner: number, count: number) => report({ kind: 'found', owner, count }),
  };
  while (!isOver) {
    const place = peers.get(peer);
    if (place) {
      try {
        await Session.run(context, pool, place, member, own, events, () => isOver);
      } catch (error) {
        // It is not there, at the moment, or does not answer.
        if (!(error instanceof RefusalError)) throw error;
        done(`refused ${error.code}`);
      }
    }
    await sleep(PAUSE_MILLIS);
  }
}

/** Numbered messages; a generation ends when the path says that something may be lost. */
async function sendReliably(peer: number, socket: rds.RdsSocket): Promise<void> {
  let [generation, number] = [0, 0];
  const bytes = new Uint8Array(RDS_BYTES);
  const view = new DataView(bytes.buffer);
  while (!isOver) {
    const place = peers.get(peer);
    await sleep(place ? 5 : PAUSE_MILLIS);
    if (!place) continue;
    fillPattern(bytes, generation * 7919 + number);
    [member, incarnation, generation, number].forEach((word, at) => view.setUint32(at * 4, word));
    try {
      const { udpPort } = place;
      socket.sendmsg({ name: { address: '127.0.0.1', port: RDS_PORT, udpPort }, iov: [bytes] });
      number++;
      done('rds');
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      done(`rds ${error.code}`);
      if (error.code !== 'EFAULT') continue;
      generation++;
      number = 0;
    }
  }
}

/** Within a generation of a sender each message once, and in order. */
async function receiveReliably(socket: rds.RdsSocket): Promise<void> {
  const next = new Map<string, number>();
  for (let got = await socket.recv(); got; got = await socket.recv()) {
    const { data } = got;
    const view = new DataView(data.buffer, data.byteOffset);
    const [from, life, generation, number] = [0, 4, 8, 12].map((at) => view.getUint32(at));
    const key = `${from}.${life} ${generation}`;
    const expected = next.get(key) ?? number!;
    if (number !== expected) violation(`of ${key} ${number} came in place of ${expected}`);
    next.set(key, number! + 1);
    const pattern = new Uint8Array(RDS_BYTES);
    fillPattern(pattern, generation! * 7919 + number!);
    if (data.length !== RDS_BYTES || data.some((byte, at) => at >= 16 && byte !== pattern[at])) {
      violation(`a reliable datagram of ${key} is not what was sent`);
    }
    done('rds received');
  }
}

/** Datagrams may be lost; those that arrive are compared. */
function datagrams(context: Context): { qp: QueuePair; send: () => Promise<void> } {
  const channel = createEventChannel(context);
  const id = channel.createId(PortSpace.UDP);
  id.bindAddr({ port: 0 });
  const cq = context.createCq(4 * UD_RECEIVES);
  const recvCq = context.createCq(4 * UD_RECEIVES);
  const qp = id.createQp({ sendCq: cq, recvCq });
  const memory = context.alloc((UD_RECEIVES + 1) * (GRH_BYTES + UD_BYTES));
  const mr = qp.pd.regMr(memory, 1);
  const at = (index: number): number => index * (GRH_BYTES + UD_BYTES);
  const post = (index: number): void => {
    const length = GRH_BYTES + UD_BYTES;
    const addr = mr.addr + BigInt(at(index));
    qp.postRecv({ wrId: index, sgList: [{ addr, length, lkey: mr.lkey }] });
  };
  for (let index = 0; index < UD_RECEIVES; index++) post(index);
  void (async () => {
    for await (const { status, wrId, byteLen } of recvCq) {
      if (status !== 0) return;
      const index = Number(wrId);
      const from = at(index) + GRH_BYTES;
      const bytes = memory.slice(from, at(index) + byteLen);
      const seed = new DataView(bytes.buffer).getUint32(0);
      if (bytes.length !== UD_BYTES || !hasPattern(bytes.subarray(4), seed)) {
        violation('a datagram is not what was sent');
      }
      post(index);
      done('ud received');
    }
  })();
  const send = async (): Promise<void> => {
    const bytes = memory.subarray(at(UD_RECEIVES), at(UD_RECEIVES) + UD_BYTES);
    for (let seed = 1; !isOver; seed++) {
      await sleep(10);
      const place = [...peers.values()][seed % Math.max(1, peers.size)];
      if (!place) continue;
      new DataView(bytes.buffer, bytes.byteOffset).setUint32(0, seed);
      fillPattern(bytes.subarray(4), seed);
      const ah = qp.pd.createAh({ dgid: '127.0.0.1', port: place.udpPort });
      const addr = mr.addr + BigInt(at(UD_RECEIVES));
      qp.postSend({
        opcode: WrOpcode.SEND,
        sendFlags: 2,
        sgList: [{ addr, length: UD_BYTES, lkey: mr.lkey }],
        ud: { ah, remoteQpn: place.qpn, remoteQkey: RDMA_UDP_QKEY },
      });
      await cq.wait(1);
      ah.destroy();
      done('ud');
    }
  };
  return { qp, send };
}

/** Another file of persistent memory, made and thrown away: is there room? */
async function wantRoom(context: Context): Promise<void> {
  const path = `${directory}/extra-${member}`;
  while (!isOver) {
    await sleep(EXTRA_MILLIS);
    let code = 'room';
    try {
      const pmem = await context.openPmem(path, { bytes: EXTRA_BYTES, volatile: true });
      await pmem.close();
      unlinkSync(path);
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      code = error.code;
    }
    report({ kind: 'disk', code });
  }
}

/**
 * Ends when all resources of the member's device are returned; an error ends the process at once.
 */
async function run(): Promise<void> {
  let wire: FaultLink | undefined;
  if (isLossy)
    wire = faultLink(new UdpLink({ address: '127.0.0.1', port: 0 }), { seed: start.seed });
  const place = wire
    ? { link: wire, memoryBytes: MEMORY_BYTES }
    : { port: 0, memoryBytes: MEMORY_BYTES };
  const context = await openDevice(place);
  const pmem = await context.openPmem(ledgerPath(directory, member), {
    bytes: members * RECORD_RING_BYTES,
    volatile: true,
  });
  const listener = await listen('127.0.0.1:0', { context });
  const service = new Service(listener, pmem, violation);
  const pool = createFmrPool(context, undefined, { maxLength: 4096, mrsMax: 64 });
  const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
  socket.bind({ port: RDS_PORT });
  const ud = datagrams(context);
  process.on('message', (order: Order) => {
    if (order.kind === 'stop') isOver = true;
    if (order.kind === 'loss') wire?.change({ loss: order.loss });
    if (order.kind === 'peers') for (const peer of order.peers) peers.set(peer.member, peer);
  });
  const { device } = context;
  // Without the coordinator there is no work, and no command to end.
  process.once('disconnect', () => process.exit(1));
  // ctrl-C is for the coordinator, which has us end in order.
  process.on('SIGINT', () => {});
  const beat = setInterval(() => {
    const { rss, heapUsed: heap } = process.memoryUsage();
    const receives = socket.node.transports.receiveBytes;
    const engine = MEMORY_BYTES - device.arena.heap.bytesFree - receives;
    report({
      kind: 'beat',
      memory: { rss, heap, engine, receives },
      counts,
      pending: [...pending],
    });
  }, BEAT_MILLIS);
  report({
    ...{ kind: 'up', member, incarnation, port: listener.port },
    ...{ udpPort: context.local.port, qpn: ud.qp.qpNum },
  });
  const others = Array.from({ length: members }, (_, index) => index).filter((i) => i !== member);
  void receiveReliably(socket).catch((error: unknown) => violation(String(error)));
  await Promise.all([
    until('datagrams', ud.send()),
    until('room', wantRoom(context)),
    ...others.map((peer) => until(`work with ${peer}`, workWith(peer, context, pool))),
    ...others.map((peer) => until(`reliable datagrams to ${peer}`, sendReliably(peer, socket))),
  ]);
  await until('those it serves', service.close());
  socket.close();
  await until('its device', context.close());
  clearInterval(beat);
  process.removeAllListeners('disconnect');
  process.disconnect();
}

await run();
