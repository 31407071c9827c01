/**
 * Two pairs, each a client and a server, in event mode: as four processes, the clients on one
 * shared device and the servers on another, against the same pairs in one process on one processor.
 */
import { execFileSync } from 'node:child_process';
import type { CompletionQueue, MemoryRegion, OpenOptions, QueuePair } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';
import {
  atLeast,
  atMost,
  interleave,
  medianOf,
  medians,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
  type Variant,
} from './harness.js';

const SECONDS = 0.5;
const SERVERS = '127.1.6.1';
const CLIENTS = '127.1.6.2';
/** The processor of the one process. */
const PROCESSOR = '0';
/** Requests of each pair under way: that of the bars, and others. */
const DEPTH = 64;
const OTHER_DEPTHS = [1, 4, 16, 256];
const PAIRS = [0, 1];

/** From when to when, in seconds since 1970: pairs of one process may have taken turns. */
interface Count {
  readonly messages: number;
  readonly from: number;
  readonly to: number;
}

/** State that a member keeps for one side of a pair, by its name: `client-0`. */
interface End {
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly mr: MemoryRegion;
  to: { readonly addr: number; readonly rkey: number };
}

/** The sides of a pair, as the functions of one member each, or of the same one. */
async function connectPair(client: Member, server: Member, pair: number): Promise<void> {
  const make = (member: Member, side: string) =>
    member.run(
      (world, device, name) => {
        const kept = world.kept as unknown as Record<string, unknown>;
        const context = (kept[device] as typeof world.context | undefined) ?? world.context;
        const pd = context.allocPd();
        const cq = context.createCq(512);
        const cap = { maxSendWr: 256, maxRecvWr: 16 };
        const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap });
        const memory = context.alloc(4096);
        const mr = pd.regMr(memory, world.pair.ALL_ACCESS);
        kept[name] = { cq, qp, mr };
        const { gid, port } = context.local;
        return { address: `${gid}`, port, qpNum: qp.qpNum, addr: Number(mr.addr), rkey: mr.rkey };
      },
      `context-${side}-${pair}`,
      `${side}-${pair}`,
    );
  const join = (member: Member, side: string, to: unknown, ours: number, theirs: number) =>
    member.run(
      ({ pair, verbena, kept }, name, there, a, b) => {
        const { address, port } = there as { address: string; port: number };
        const end = (kept as unknown as Record<string, { qp: never; to: unknown }>)[name]!;
        end.to = there;
        const context = { local: verbena.Endpoint.parse(address, port) };
        // As after `connect`: each sends the other runs of packets.
        const options = { attributes: { timeout: 16 }, ownKind: true };
        pair.connect(end.qp, { context, qp: there } as never, a, b, options);
      },
      `${side}-${pair}`,
      to,
      ours,
      theirs,
    );
  const there = await make(server, 'server');
  const here = await make(client, 'client');
  await join(client, 'client', there, 1, 2);
  await join(server, 'server', here, 2, 1);
}

/** 64-byte WRITEs, `depth` under way, waiting for the events of completions. */
async function pump(client: Member, name: string, depth: number, seconds: number): Promise<Count> {
  return client.run(
    async ({ kept, verbena }, which, under, length) => {
      const { cq, qp, mr, to } = (kept as unknown as Record<string, End>)[which]!;
      const write = {
        opcode: verbena.WrOpcode.RDMA_WRITE,
        sendFlags: verbena.SendFlag.SIGNALED,
        sgList: [{ addr: mr.addr, length: 64, lkey: mr.lkey }],
        rdma: { remoteAddr: to.addr, rkey: to.rkey },
      };
      const now = (): number => (performance.timeOrigin + performance.now()) / 1000;
      const from = now();
      let messages = 0;
      for (let left = under; left > 0; left--) qp.postSend(write);
      while (now() - from < length) {
        const done = await cq.wait();
        for (const { status } of done) if (status !== 0) throw new Error(`status ${status}`);
        messages += done.length;
        qp.postSend(done.map(() => write));
      }
      const end = now();
      for (let left = under; left > 0;) left -= (await cq.wait()).length;
      return { messages, from, to: end };
    },
    name,
    depth,
    seconds,
  );
}

async function cpuMicros(member: Member): Promise<number> {
  return member.run(() => {
    const { user, system } = process.cpuUsage();
    return user + system;
  });
}

/** Packets of these members that arrived at another one's socket. */
async function astray(member: Member): Promise<number> {
  return member.run(({ context }) =>
    context.device
      .shared!.processes()
      .reduce((sum, { mail, mailDropped }) => sum + mail + mailDropped, 0),
  );
}

/** `clients`: of both pairs. `members`: whose processor time counts. */
async function measure(
  clients: readonly Member[],
  members: readonly Member[],
  depth: number,
  seconds: number,
  name: string,
): Promise<Figures> {
  const total = async (): Promise<number> =>
    (await Promise.all(members.map(cpuMicros))).reduce((sum, one) => sum + one, 0);
  const before = await total();
  const counts = await Promise.all(
    PAIRS.map((pair) => pump(clients[pair]!, `client-${pair}`, depth, seconds)),
  );
  const cpu = (await total()) - before;
  const messages = counts.reduce((sum, count) => sum + count.messages, 0);
  // By one clock: pairs that had to wait for each other were not at it at the same time.
  const from = Math.min(...counts.map((count) => count.from));
  const to = Math.max(...counts.map((count) => count.to));
  return {
    [`${name}_mps`]: messages / (to - from) / 1e6,
    [`${name}_cpu_us_per_message`]: cpu / messages,
    [`${name}_processors`]: cpu / 1e6 / (to - from),
  };
}

/** All ends of both pairs in process `one`, on one processor. */
async function openAll(one: Member): Promise<void> {
  // Before there are threads: they inherit it.
  execFileSync('taskset', ['-a', '-p', '-c', PROCESSOR, String(one.pid)], { stdio: 'ignore' });
  await one.run(
    async (world, addresses) => {
      const kept = world.kept as unknown as Record<string, unknown>;
      for (const [name, address] of addresses) {
        kept[name] = await world.verbena.openDevice({ address, port: 0 });
      }
    },
    PAIRS.flatMap((pair) => [`context-client-${pair}`, `context-server-${pair}`]).map(
      (name, at) => [name, `127.1.6.${10 + at}`] as const,
    ),
  );
}

async function run(pace: Pace): Promise<BenchResult> {
  const device = (address: string): OpenOptions => ({
    name: freshName(),
    address,
    memoryBytes: 8 * 2 ** 20,
  });
  const servers = device(SERVERS);
  const clients = device(CLIENTS);
  const members: Member[] = [];
  try {
    for (const options of [clients, servers, clients, servers]) {
      members.push(await Member.open(options));
    }
    const one = await Member.start();
    members.push(one);
    await openAll(one);
    const [c0, s0, c1, s1] = members as [Member, Member, Member, Member];
    await connectPair(c0, s0, 0);
    await connectPair(c1, s1, 1);
    for (const pair of PAIRS) await connectPair(one, one, pair);
    const seconds = SECONDS * pace.share;
    const both = (depth: number, prefix: string): Variant[] => [
      () => measure([c0, c1], [c0, s0, c1, s1], depth, seconds, `${prefix}four_processes`),
      () => measure([one, one], [one], depth, seconds, `${prefix}one_process`),
    ];
    const rounds = await interleave(
      'processes',
      [...both(DEPTH, ''), ...OTHER_DEPTHS.flatMap((depth) => both(depth, `depth_${depth}_`))],
      pace,
    );
    const lost = (await astray(c0)) + (await astray(s0));
    const figures = medians(rounds);
    const ratio = (prefix: string): number =>
      medianOf(rounds, (f) => f[`${prefix}four_processes_mps`]! / f[`${prefix}one_process_mps`]!);
    for (const depth of OTHER_DEPTHS) figures[`depth_${depth}_ratio`] = ratio(`depth_${depth}_`);
    // Requests alone, of what was counted: acknowledgements and the rest make the share smaller.
    const messages = Object.entries(figures)
      .filter(([name]) => name.endsWith('four_processes_mps'))
      .reduce((sum, [, mps]) => sum + rounds.length * mps * 1e6 * seconds, 0);
    const share = lost / messages;
    figures['astray_share'] = share;
    return {
      figures,
      bars: [
        atLeast('four processes against one on one processor, messages a second', ratio(''), 1.4),
        atMost('packets that arrive at the wrong process', share, 0.01),
      ],
    };
  } finally {
    // A process does not end while threads of its devices sleep.
    await members[4]
      ?.run(async ({ kept }) => {
        for (const [name, value] of Object.entries(kept)) {
          if (name.startsWith('context-')) await (value as AsyncDisposable)[Symbol.asyncDispose]();
        }
      })
      .catch(() => undefined);
    for (const member of members) await member.close().catch(() => member.kill());
  }
}

export const bench: Bench = {
  name: 'processes',
  description: 'two pairs as four processes on shared devices, and in one process on one processor',
  run,
};
