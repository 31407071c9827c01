/**
 * The connection manager between two processes over UDP loopback: connect, SEND, disconnect, one
 * after the other and many at a time; and what ten thousand connections at once cost.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import {
  AccessFlag,
  SendFlag,
  WcStatus,
  WrOpcode,
  connect,
  listen,
  openDevice,
  type Context,
  type ProtectionDomain,
  type RdmaConnection,
  type Sge,
} from '../../host/index.js';
import {
  Stopwatch,
  atLeast,
  atMost,
  interleave,
  median,
  medians,
  progress,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
} from './harness.js';

const PORT = 7471;
/** Connections one after the other, and those of a round with CONCURRENT of them at a time. */
const IN_TURN = 300;
const TOGETHER = 3000;
const CONCURRENT = 64;
const HELD = 10_000;
/** Below 0xc000: answers go to the port that requests come from. */
const UDP_PORTS = [24791, 24792] as const;
const MESSAGE_BYTES = 64;
/** How long the server's application may take to see the last messages. */
const TAKEN_MILLIS = 5000;
const DEVICE = {
  address: '127.0.0.1',
  queuePairsMax: HELD + 256,
  memoryBytes: 128 * 2 ** 20,
  rdAtomicMax: 1,
};
const CAP = { maxSendWr: 2, maxRecvWr: 2, maxSendSge: 1, maxRecvSge: 1 };

interface End {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  /** A message, or where one goes. */
  readonly sge: Sge;
}

async function open(port: number): Promise<End> {
  const context = await openDevice({ ...DEVICE, port });
  const pd = context.allocPd();
  const mr = pd.regMr(context.alloc(MESSAGE_BYTES), AccessFlag.LOCAL_WRITE);
  return { context, pd, sge: { addr: mr.addr, length: MESSAGE_BYTES, lkey: mr.lkey } };
}

/** In a process of its own: accepts each peer, and reports its memory on request. */
async function serve(): Promise<void> {
  const { context, pd, sge } = await open(UDP_PORTS[1]);
  const listener = await listen(`127.0.0.1:${PORT}`, { context });
  const cq = context.createCq(65536);
  let received = 0;
  process.on('message', () => process.send!({ rssBytes: process.memoryUsage().rss, received }));
  // The measuring process has ended.
  process.once('disconnect', () => process.exit());
  process.send!({ ready: true });
  void (async () => {
    for await (const { status } of cq) if (status === WcStatus.SUCCESS) received++;
  })();
  for await (const request of listener) {
    const qp = { sendCq: cq, recvCq: cq, cap: CAP };
    void request
      .accept({ pd, qp }, (made) => made.postRecv({ sgList: [sge] }))
      .then((connection) => connection.disconnected.then(() => connection.close()))
      .catch((error: unknown) => progress(`connect: the server: ${error as string}`));
  }
}

async function ask(child: ChildProcess): Promise<{ rssBytes: number; received: number }> {
  const answer = once(child, 'message');
  child.send('how much');
  return ((await answer) as [{ rssBytes: number; received: number }])[0];
}

/** Runs `work` with a server in a process of its own. */
async function withServer<T>(work: (server: ChildProcess) => Promise<T>): Promise<T> {
  const server = fork(fileURLToPath(import.meta.url), ['serve']);
  try {
    await once(server, 'message');
    return await work(server);
  } finally {
    server.kill();
    await once(server, 'exit');
  }
}

function send({ qp }: RdmaConnection, sge: Sge): void {
  qp.postSend({ opcode: WrOpcode.SEND, sgList: [sge], sendFlags: SendFlag.SIGNALED });
}

/** Connects, sends, disconnects. */
async function visit({ context, pd, sge }: End): Promise<void> {
  const options = { context, pd, udpPort: UDP_PORTS[1], qp: { cap: CAP } };
  const connection = await connect(`127.0.0.1:${PORT}`, options);
  send(connection, sge);
  const [completion] = await connection.sendCq.wait();
  if (completion?.status !== WcStatus.SUCCESS) throw new Error(`SEND: ${completion?.status}`);
  await connection.close();
}

async function inTurn(end: End, count: number): Promise<Figures> {
  const millis: number[] = [];
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    await visit(end);
    millis.push(performance.now() - start);
  }
  return { connect_send_disconnect_p50_ms: median(millis) };
}

async function together(end: End, count: number): Promise<Figures> {
  const watch = new Stopwatch();
  await concurrently(count, () => visit(end));
  const seconds = watch.seconds();
  return {
    connect_send_disconnect_per_second: count / seconds,
    client_cpu_us_each: (watch.cpuSeconds() / count) * 1e6,
  };
}

/** `count` times, CONCURRENT at a time. */
async function concurrently(count: number, work: () => Promise<void>): Promise<void> {
  let left = count;
  const worker = async (): Promise<void> => {
    while (left-- > 0) await work();
  };
  await Promise.all(Array.from({ length: CONCURRENT }, worker));
}

/** All of them at once; a SEND on each of the last hundred shows that they are alive. */
async function hold(server: ChildProcess): Promise<Figures> {
  const { context, pd, sge } = await open(UDP_PORTS[0]);
  const cq = context.createCq(4096);
  const qp = { sendCq: cq, recvCq: cq, cap: CAP };
  const options = { context, pd, udpPort: UDP_PORTS[1], qp };
  const connections: RdmaConnection[] = [];
  const watch = new Stopwatch();
  await concurrently(HELD, async () => {
    connections.push(await connect(`127.0.0.1:${PORT}`, options));
  });
  const seconds = watch.seconds();
  const messages = 100;
  for (const connection of connections.slice(-messages)) send(connection, sge);
  for (let done = 0; done < messages;) done += (await cq.wait(messages)).length;
  // Acknowledged by its adapter they are; its application takes them out when it has the time.
  const deadline = performance.now() + TAKEN_MILLIS;
  let answer = await ask(server);
  while (answer.received < messages && performance.now() < deadline) answer = await ask(server);
  const { rssBytes, received } = answer;
  if (received !== messages) throw new Error(`${received} of ${messages} messages arrived`);
  return {
    held_connections: connections.length,
    held_connect_per_second: HELD / seconds,
    held_client_rss_mib: process.memoryUsage().rss / 2 ** 20,
    held_server_rss_mib: rssBytes / 2 ** 20,
  };
}

/** In a process that did nothing else before: what it holds is what connections cost. */
async function freshHold(): Promise<Figures> {
  progress(`connect: ${HELD} connections at once`);
  const child = fork(fileURLToPath(import.meta.url), ['hold']);
  const [figures] = (await once(child, 'message')) as [Figures];
  await once(child, 'exit');
  return figures;
}

async function run(pace: Pace): Promise<BenchResult> {
  const rounds = await withServer(async () => {
    const end = await open(UDP_PORTS[0]);
    const variants = [
      () => inTurn(end, IN_TURN * pace.share),
      () => together(end, TOGETHER * pace.share),
    ];
    const measured = await interleave('connect', variants, pace);
    await end.context.close();
    return measured;
  });
  const figures = medians(rounds);
  Object.assign(figures, await freshHold());
  const perSecond = figures['connect_send_disconnect_per_second']!;
  return {
    rounds,
    figures,
    bars: [
      atMost(
        'connect, SEND and disconnect, one after the other: median, ms',
        figures['connect_send_disconnect_p50_ms']!,
        3,
      ),
      atLeast(`the same, ${CONCURRENT} at a time, per second`, perSecond, 1000),
      atLeast('connections at once', figures['held_connections']!, HELD),
      atMost(
        'resident memory of the larger process then, MiB',
        Math.max(figures['held_client_rss_mib']!, figures['held_server_rss_mib']!),
        300,
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'connect',
  description: `connect, SEND, disconnect between two processes; ${CONCURRENT} at a time; ${HELD} at once`,
  run,
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === 'serve') await serve();
  if (process.argv[2] === 'hold') {
    process.send!(await withServer(hold));
    process.exit(0);
  }
}
