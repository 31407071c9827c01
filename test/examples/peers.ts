/**
 * An example with a peer that is killed or disconnects at once: it ends with an exit code and at
 * most one sentence, without a stack trace, and does not spin meanwhile.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Test } from 'uvu';
import * as assert from 'uvu/assert';
import { connect, listen } from '../../host/index.js';
import { freePort } from '../support/processes.js';
import { root } from '../support/paths.js';
import { fileOf, inParallel } from './play.js';

const folder = fileURLToPath(new URL('host/examples/', root));
/** Examples of two commands: server and client (roles.ts `play`). */
const PAIRS = readdirSync(folder)
  .filter((file) => file.endsWith('.ts') && file !== 'end.ts' && file !== 'roles.ts')
  .filter((file) => /^await (run|play)\(/m.test(readFileSync(folder + file, 'utf8')))
  .map((file) => file.slice(0, -3));
/** Examples at a time: most of the time they wait. */
const TOGETHER = 14;
/** More than the timeouts of roles.ts, on a busy machine. */
const SECONDS_MAX = 40;
const CPU_SECONDS_MAX = 4;
/** Beyond the start of a client on a busy machine: it counts from there. */
const TIMEOUT_SECONDS = 15;
const TICKS_A_SECOND = 100;

class Side {
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  output = '';
  errors = '';

  constructor(file: string, args: readonly string[]) {
    const env = { ...process.env, EXAMPLE_TIMEOUT_SECONDS: `${TIMEOUT_SECONDS}` };
    this.child = fork(file, args, { silent: true, env });
    this.child.stdout!.setEncoding('utf8').on('data', (text: string) => (this.output += text));
    this.child.stderr!.setEncoding('utf8').on('data', (text: string) => (this.errors += text));
    this.ended = once(this.child, 'close').then(([code]) => code as number | null);
  }

  cpuSeconds(): number {
    try {
      const fields = readFileSync(`/proc/${this.child.pid}/stat`, 'latin1').split(') ')[1]!;
      const [user = 0, system = 0] = fields.split(' ').slice(11, 13).map(Number);
      return (user + system) / TICKS_A_SECOND;
    } catch {
      return 0;
    }
  }

  /** The fault in its end; undefined: it ended correctly. */
  async judge(name: string): Promise<string | undefined> {
    const before = this.cpuSeconds();
    let spent = 0;
    const watch = setInterval(() => (spent = Math.max(spent, this.cpuSeconds() - before)), 500);
    // The child keeps this process alive; a remaining timer must not.
    const hangs = sleep(SECONDS_MAX * 1000, 'hangs' as const, { ref: false });
    const code = await Promise.race([this.ended, hangs]);
    clearInterval(watch);
    if (code === 'hangs') return `did not end within ${SECONDS_MAX} s`;
    if (spent > CPU_SECONDS_MAX) return `spun for ${spent} s of processor time`;
    const lines = this.errors.split('\n').filter((line) => line !== '');
    if (code === 0 && lines.length === 0) return undefined;
    const isSentence = lines.length === 1 && lines[0]!.startsWith(`${name}: `);
    if (code === 1 && isSentence && !/^\s+at /m.test(this.errors)) return undefined;
    return `ended with ${code}: ${this.errors}`;
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.ended;
  }
}

async function startServer(name: string): Promise<{ server: Side; where: string[] }> {
  const server = new Side(fileOf(name), ['server', '127.0.0.1:0', '0']);
  const told = once(server.child, 'message') as Promise<[string[]]>;
  const first = await Promise.race([told, server.ended]);
  if (!Array.isArray(first)) throw new Error(`${name}: its server ended first: ${server.errors}`);
  return { server, where: first[0] };
}

/** Kills one side some time after the start of the client. */
async function killed(name: string, victim: 'server' | 'client', afterMillis: number) {
  const { server, where } = await startServer(name);
  const client = new Side(fileOf(name), ['client', ...where]);
  const [dead, left] = victim === 'server' ? [server, client] : [client, server];
  await Promise.race([once(client.child.stdout!, 'data').catch(() => {}), sleep(afterMillis)]);
  await dead.kill();
  // A server without a client correctly waits for one.
  if (victim === 'client' && !/./.test(client.output)) await sleep(100);
  const last = victim === 'client' ? new Side(fileOf(name), ['client', ...where]) : undefined;
  const complaint = await left.judge(name);
  await left.kill();
  await last?.kill();
  return complaint;
}

/** A client that connects and disconnects at once. */
async function left(name: string): Promise<string | undefined> {
  const { server, where } = await startServer(name);
  const [target = '', udpPort = ''] = where;
  let isMet = false;
  // As many clients as the example expects.
  for (let count = 0; count < 3; count++) {
    if (server.child.exitCode !== null) break;
    const options = { udpPort: Number(udpPort), device: { port: 0 }, maxCmRetries: 1 };
    await connect(target, options).then(
      (connection) => {
        isMet = true;
        return connection.close();
      },
      () => {},
    );
  }
  // A server that rejected them (an NVMe target requires private data) waits for a client.
  const last = isMet ? undefined : new Side(fileOf(name), ['client', ...where]);
  const complaint = await server.judge(name);
  await server.kill();
  await last?.kill();
  return complaint;
}

/** A server that accepts and disconnects at once. */
async function abandoned(name: string): Promise<string | undefined> {
  const device = { port: await freePort() };
  await using listener = await listen('127.0.0.1:0', { device });
  const client = new Side(fileOf(name), [
    ...['client', `127.0.0.1:${listener.port}`, `${device.port}`],
  ]);
  const request = await Promise.race([listener.getRequest(), client.ended]);
  if (request !== null && typeof request === 'object') {
    await request.accept().then(
      (connection) => connection.close(),
      () => {},
    );
  }
  const complaint = await client.judge(name);
  await client.kill();
  return complaint;
}

type Play = (name: string) => Promise<string | undefined>;

export const KILLED: ReadonlyMap<string, Play> = new Map([
  ['its client is killed', (name) => killed(name, 'client', 300)],
  ['its server is killed', (name) => killed(name, 'server', 300)],
]);
export const LEFT: ReadonlyMap<string, Play> = new Map([
  ['its client disconnects at once', left],
  ['its server disconnects at once', abandoned],
]);
/** Examples of datagrams, which have no connection. */
const CONNECTIONLESS = '08-datagrams';

interface Case {
  readonly name: string;
  readonly sentence: string;
  readonly complaint: Promise<string | undefined>;
}

function playCases(names: readonly string[], cases: ReadonlyMap<string, Play>): Case[] {
  const all = names.flatMap((name) => [...cases].map(([what, play]) => ({ name, what, play })));
  const complaints = inParallel(all, ({ name, play }) => play(name), TOGETHER);
  return all.map(({ name, what }, index) => {
    const sentence = `${name}: ends with a sentence when ${what}`;
    return { name, sentence, complaint: complaints[index]! };
  });
}

/** A test for each of these examples: a sample of what `playPeers` does. */
export function testPeers(
  test: Test,
  cases: ReadonlyMap<string, Play>,
  names: readonly string[],
): void {
  for (const { name, sentence, complaint } of playCases(names, cases)) {
    test(sentence, async () => {
      assert.ok(PAIRS.includes(name), `${name} is an example of two commands`);
      assert.is(await complaint, undefined);
    });
  }
}

/** Runs each example of two commands with each fault; counts passed and failed ends. */
export async function playPeers(
  wanted: (name: string) => boolean,
): Promise<[passed: number, failed: number]> {
  const names = PAIRS.filter(wanted);
  const connected = names.filter((name) => name !== CONNECTIONLESS);
  const counts: [number, number] = [0, 0];
  // One kind of fault after the other, so that the number of processes at a time is bounded.
  for (const cases of [() => playCases(names, KILLED), () => playCases(connected, LEFT)]) {
    for (const { sentence, complaint } of cases()) {
      const said = await complaint;
      counts[said === undefined ? 0 : 1]++;
      console.log(said === undefined ? `ok   ${sentence}` : `FAIL ${sentence}: ${said}`);
    }
  }
  return counts;
}
