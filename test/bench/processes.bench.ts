/**
 * Two pairs, each a client and a server, in event mode: as four processes, the clients on one
 * shared device and the servers on another, against the same pairs in one process on one processor.
 */
import { execFileSync } from 'node:child_process';
import type { OpenOptions } from '../../host/index.js';
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
} from './harness.js';

const SECONDS = 1;
const SERVERS = '127.1.6.1';
const CLIENTS = '127.1.6.2';
/** The processor of the one process. */
const PROCESSOR = '0';

interface Count {
  readonly messages: number;
  readonly seconds: number;
  readonly cpuMicros: number;
}

/** A client and a server, as the functions of one member each, or of the same one. */
async function connectPair(client: Member, server: Member, index: number): Promise<void> {
  const make = (member: Member, which: string) =>
    member.run(({ context, pair, kept }, name) => {
      const contexts = kept as unknown as Record<string, unknown>;
      const own = (contexts[`context-${name}`] as typeof context | undefined) ?? context;
      const pd = own.allocPd();
      const cq = own.createCq(256);
      const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap: { maxSendWr: 128, maxRecvWr: 16 } });
      const memory = own.alloc(4096);
      const mr = pd.regMr(memory, pair.ALL_ACCESS);
      contexts[name] = { cq, qp, mr };
      const { gid, port } = own.local;
      return { address: `${gid}`, port, qpNum: qp.qpNum, addr: Number(mr.addr), rkey: mr.rkey };
    }, which);
  const join = (member: Member, which: string, to: unknown, ours: number, theirs: number) =>
    member.run(
      ({ pair, verbena, kept }, name, there, a, b) => {
        const { address, port } = there as { address: string; port: number };
        const end = (kept as unknown as Record<string, { qp: never; to: unknown }>)[name]!;
        end.to = there;
        const context = { local: verbena.Endpoint.parse(address, port) };
        const options = { attributes: { timeout: 16 } };
        pair.connect(end.qp, { context, qp: there } as never, a, b, options);
      },
      which,
      to,
      ours,
      theirs,
    );
  const server1 = await make(server, `server${index}`);
  const client1 = await make(client, `client${index}`);
  await join(client, `client${index}`, server1, 1, 2);
  await join(server, `server${index}`, client1, 2, 1);
}

/** 64-byte WRITEs, 64 under way, waiting for the events of completions. */
async function pump(client: Member, index: number, seconds: number): Promise<Count> {
  return client.run(
    async ({ kept, verbena }, name, length) => {
      interface End {
        cq: import('../../host/index.js').CompletionQueue;
        qp: import('../../host/index.js').QueuePair;
        mr: import('../../host/index.js').MemoryRegion;
        to: { addr: number; rkey: number };
      }
      const { cq, qp, mr, to } = (kept as unknown as Record<string, End>)[name]!;
      const write = {
        opcode: verbena.WrOpcode.RDMA_WRITE,
        sendFlags: verbena.SendFlag.SIGNALED,
        sgList: [{ addr: mr.addr, length: 64, lkey: mr.lkey }],
        rdma: { remoteAddr: to.addr, rkey: to.rkey },
      };
      const start = performance.now();
      const cpu = process.cpuUsage();
      let messages = 0;
      for (let left = 64; left > 0; left--) qp.postSend(write);
      while (performance.now() - start < length * 1000) {
        const done = await cq.wait();
        for (const { status } of done) if (status !== 0) throw new Error(`status ${status}`);
        messages += done.length;
        qp.postSend(done.map(() => write));
      }
      for (let left = 64; left > 0;) left -= (await cq.wait()).length;
      const { user, system } = process.cpuUsage(cpu);
      const took = (performance.now() - start) / 1000;
      return { messages, seconds: took, cpuMicros: user + system };
    },
    `client${index}`,
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

async function measure(
  clients: readonly Member[],
  members: readonly Member[],
  name: string,
  seconds: number,
): Promise<Figures> {
  const total = async (): Promise<number> =>
    (await Promise.all(members.map(cpuMicros))).reduce((sum, one) => sum + one, 0);
  const before = await total();
  const counts = await Promise.all(clients.map((client, index) => pump(client, index, seconds)));
  const used = (await total()) - before;
  const messages = counts.reduce((sum, count) => sum + count.messages, 0);
  const rate = counts.reduce((sum, count) => sum + count.messages / count.seconds, 0);
  return { [`${name}_mps`]: rate / 1e6, [`${name}_cpu_us_per_message`]: used / messages };
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
    // Before there are threads: they inherit it.
    execFileSync('taskset', ['-a', '-p', '-c', PROCESSOR, String(one.pid)], { stdio: 'ignore' });
    await one.run(
      async (world, addresses) => {
        const kept = world.kept as unknown as Record<string, unknown>;
        for (const [name, address] of addresses) {
          kept[`context-${name}`] = await world.verbena.openDevice({ address, port: 0 });
        }
      },
      ['client0', 'server0', 'client1', 'server1'].map(
        (name, at) => [name, `127.1.6.${10 + at}`] as const,
      ),
    );
    const [c0, s0, c1, s1] = members as [Member, Member, Member, Member];
    await connectPair(c0, s0, 0);
    await connectPair(c1, s1, 1);
    await connectPair(one, one, 0);
    await connectPair(one, one, 1);
    const seconds = SECONDS * pace.share;
    const rounds = await interleave(
      'processes',
      [
        () => measure([c0, c1], [c0, s0, c1, s1], 'four_processes', seconds),
        () => measure([one, one], [one], 'one_process', seconds),
      ],
      pace,
    );
    const lost = (await astray(c0)) + (await astray(s0));
    const figures = medians(rounds);
    const packets = rounds.length * 2 * figures['four_processes_mps']! * 1e6 * seconds;
    const share = lost / packets;
    figures['astray_share'] = share;
    const ratio = medianOf(rounds, (f) => f['four_processes_mps']! / f['one_process_mps']!);
    return {
      figures,
      bars: [
        atLeast('four processes against one on one processor, messages a second', ratio, 1.4),
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
