/**
 * Processes of one device that do all kinds of things to the tables that they share, and are killed
 * at random moments; the tables are looked at after every death.
 *
 *     node build/test/shared/deaths.js [--rounds 300] [--members 4] [--seed 1]
 */
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { openDevice, type Context, type OpenOptions } from '../../host/index.js';
import { auditArena } from '../support/arena-audit.js';
import { Member, freshName, type MemberWorld } from '../support/member.js';
import { Client } from '../support/traffic.js';
import { Random } from '../simulation/random.js';

export interface DeathOptions {
  readonly rounds: number;
  readonly members: number;
  readonly seed: number;
  readonly address: string;
  /** Work of the members until they are killed; absent: a mix of all calls. */
  readonly work?: (member: Member) => Promise<void>;
  /** Hooks of this process in the device; `after` returns its complaints. */
  readonly before?: (watcher: Context) => void;
  readonly after?: (watcher: Context) => string[];
}

export interface DeathReport {
  rounds: number;
  /** Complaints, with their round. */
  readonly wrong: string[];
  /** Milliseconds from the kill to the moment when all that the dead one had is back. */
  readonly millis: number[];
  /** Changes of tables that the members have made. */
  changes: number;
  /** WRITEs that a peer has made to members that live. */
  writes: number;
}

const AUDIT_LOOKS = 50;
const AUDIT_MILLIS = 20;

/** Registers, binds, allocates and frees until it is killed; keeps some objects. */
async function changeTables(member: Member): Promise<void> {
  await member.run(({ context, verbena, pair, kept }) => {
    const { AccessFlag, MwType } = verbena;
    const access = pair.ALL_ACCESS | AccessFlag.MW_BIND;
    const pd = kept.pd;
    const cq = context.createCq(64);
    const tally = { changes: 0, isIdle: false };
    Object.assign(kept, { tally });
    const keptMemory: Uint8Array[] = [];
    const turn = (): void => {
      if (tally.isIdle) return void setTimeout(turn, 1);
      for (let step = 0; step < 20; step++) {
        const memory = context.alloc(64 + ((tally.changes * 977) % 30000));
        const mr = pd.regMr(memory, access, { invalidatable: true });
        const mw = pd.allocMw(MwType.TYPE_1);
        const qp = pd.createQp({ sendCq: cq, recvCq: cq });
        kept.qp.bindMw(mw, {
          wrId: 1,
          sendFlags: verbena.SendFlag.SIGNALED,
          bindInfo: {
            mr,
            addr: mr.addr,
            length: mr.length,
            mwAccessFlags: AccessFlag.REMOTE_WRITE,
          },
        });
        while (kept.cq.poll(16).length === 0);
        const layout = pd.regMr(null, 0, pair.ALL_ACCESS | AccessFlag.ZERO_BASED);
        const column = [{ addr: mr.addr, length: 8, lkey: mr.lkey }];
        layout.setLayoutSg(0, column);
        layout.setLayoutSg(0, [...column, ...column]);
        const other = context.allocPd();
        other.allocShpd(tally.changes);
        tally.changes += 9;
        qp.destroy();
        mw.dealloc();
        // Some blocks stay: dead processes leave memory behind.
        if (step % 7 === 0 && keptMemory.length < 200) keptMemory.push(memory);
        else {
          layout.dereg();
          mr.dereg();
          context.free(memory);
        }
        other.dealloc();
      }
      setImmediate(turn);
    };
    setImmediate(turn);
  });
}

/** Lets members go on with their work, or pause it. */
async function setIdle(members: readonly Member[], isIdle: boolean): Promise<void> {
  const set = ({ kept }: MemberWorld, value: boolean): void => {
    (kept as unknown as { tally: { isIdle: boolean } }).tally.isIdle = value;
  };
  await Promise.all(members.map((member) => member.run(set, isIdle)));
}

/** A new process, which opens the device while the others work in it. */
async function reborn(
  options: OpenOptions,
  client: Client,
  work: (member: Member) => Promise<void>,
  others: readonly Member[],
) {
  // Its start waits for the cores; before it opens the device it shares nothing with the others.
  await setIdle(others, true);
  const member = await Member.start();
  await setIdle(others, false);
  await member.run(async (world, wanted) => {
    world.context = await world.verbena.openDevice(wanted);
  }, options);
  // A busy machine may let a survivor wait for a second.
  const line = await client.connect(member, 16);
  await work(member);
  return { member, line };
}

function clean(watcher: Context, slots: number): boolean {
  const { shared } = watcher.device;
  shared!.members.look();
  return shared!.processes().length === slots;
}

/**
 * Complaints that remain. Binds of the living happen without the lock, and one of them may stand
 * still in the middle of one for as long as others have its processor.
 */
async function audit({ device }: Context): Promise<string[]> {
  const look = (): string[] => device.shared!.locked(() => auditArena(device.arena));
  let wrong = look();
  for (let looks = 0; wrong.length > 0 && looks < AUDIT_LOOKS; looks++) {
    await new Promise((resolve) => setTimeout(resolve, AUDIT_MILLIS));
    const again = new Set(look());
    wrong = wrong.filter((sentence) => again.has(sentence));
  }
  return wrong;
}

export async function runDeaths(options: DeathOptions): Promise<DeathReport> {
  const report: DeathReport = { rounds: 0, wrong: [], millis: [], changes: 0, writes: 0 };
  const random = new Random(options.seed);
  const { work = changeTables } = options;
  const device = { name: freshName(), address: options.address, memoryBytes: 64 * 2 ** 20 };
  // This process takes part, too, and survives.
  const watcher = await openDevice({ ...device, processesMax: options.members + 2 });
  const client = new Client(await openDevice({ address: '127.0.0.1', port: 0 }));
  options.before?.(watcher);
  const living: Awaited<ReturnType<typeof reborn>>[] = [];
  try {
    const others = (): Member[] =>
      living.map(({ member }) => member).filter(({ pid }) => pid !== dead);
    let dead: number | undefined;
    const born = () => reborn(device, client, work, others());
    while (living.length < options.members) living.push(await born());
    for (; report.rounds < options.rounds; report.rounds++) {
      const doomed = random.below(living.length);
      await new Promise((resolve) => setTimeout(resolve, random.below(30)));
      const { member } = living[doomed]!;
      const start = performance.now();
      dead = member.pid;
      member.kill();
      await member.ended;
      while (!clean(watcher, living.length)) {
        if (performance.now() - start > 20_000) {
          report.wrong.push(`round ${report.rounds}: what the dead one had did not come back`);
          return report;
        }
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      report.millis.push(performance.now() - start);
      const wrong = await audit(watcher);
      report.wrong.push(...wrong.map((sentence) => `round ${report.rounds}: ${sentence}`));
      for (const [index, { line }] of living.entries()) {
        if (index === doomed) continue;
        const bad = await client.write(line, 8, 4096);
        if (bad.length > 0)
          report.wrong.push(`round ${report.rounds}: a survivor's WRITE: ${bad[0]}`);
        report.writes += 8;
      }
      living[doomed] = await born();
    }
    for (const { member } of living) {
      report.changes += await member.run(({ kept }) => {
        return (kept as unknown as { tally: { changes: number } }).tally.changes;
      });
    }
  } finally {
    for (const { member } of living) member.kill();
    await Promise.all(living.map(({ member }) => member.ended));
    await client.context.close();
    while (!clean(watcher, 1)) await new Promise((resolve) => setTimeout(resolve, 5));
    report.wrong.push(...(options.after?.(watcher) ?? []), ...(await audit(watcher)));
    await watcher.close();
  }
  return report;
}

/** Runs what the command line says; `tell` says what it has measured. */
export async function runDeathsCommand(
  address: string,
  run: (options: DeathOptions) => Promise<DeathReport>,
  tell: (report: DeathReport) => string,
): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '300' },
      members: { type: 'string', default: '4' },
      seed: { type: 'string', default: '1' },
    },
  });
  const [rounds, members, seed] = [values.rounds, values.members, values.seed].map(Number);
  const report = await run({ rounds: rounds!, members: members!, seed: seed!, address });
  for (const sentence of report.wrong) console.log(sentence);
  console.log(tell(report));
  console.log(`${report.rounds - report.wrong.length} passed, ${report.wrong.length} failed`);
  process.exitCode = report.wrong.length > 0 ? 1 : 0;
}

function tellMillis(report: DeathReport): string {
  const sorted = [...report.millis].sort((a, b) => a - b);
  const at = (part: number): string => sorted[Math.floor(sorted.length * part)]?.toFixed(0) ?? '-';
  return `taken back after ${at(0.5)} ms (p50), ${at(0.99)} ms (p99); ${report.writes} WRITEs`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await runDeathsCommand('127.1.4.1', runDeaths, tellMillis);
}
