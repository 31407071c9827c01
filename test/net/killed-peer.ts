/**
 * A host whose UDP server is killed, and a host that sends to it, with two wires between them:
 * ```
 *   unshare -n node --import …/offload.js killed-peer.js send gone|restarted|plain
 * ```
 * Prints a line of JSON (`Killed`). Namespaces and wires end with the processes.
 */
import { execFileSync, spawn } from 'node:child_process';
import dgram from 'node:dgram';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { askNodes } from '../../host/rds/info-server.js';
import type { RdpEvent, RdpSocketOptions, Socket } from '../../host/dgram/index.js';
import { root } from '../support/paths.js';

/**
 * `gone`: the server is not started again. `restarted`: at once, and its host sends no ICMP on the
 * first wire. `plain`: at once, as a program without RDP, and its host neither receives at port 4791
 * nor sends ICMP: the sender waits until its path fails.
 */
export type Death = 'gone' | 'restarted' | 'plain';

export interface Killed {
  /** Milliseconds from the death to the event `udp`. */
  readonly udpMillis: number;
  /** Datagrams that were sent before the event `udp`, and after the death. */
  readonly queued: number;
  /** Of these and the later ones: how many were sent, and how many the new server has. */
  readonly sent: number;
  readonly received: number;
  /** Milliseconds in which the new server did not run, each time longer than its buffer takes. */
  readonly awayMillis: number;
  /** Milliseconds from the death until the new server receives. */
  readonly readyMillis: number;
  /** Runs of numbers that did not arrive: the first, and how many. */
  readonly lost: readonly (readonly [number, number])[];
  /** Numbers arrive in ascending order. */
  readonly isInOrder: boolean;
  readonly events: readonly string[];
}

const [PORT, WIRES, LIMIT_MILLIS] = [5000, 2, 60_000];
const RATES = { gone: 1, restarted: 1, plain: 10 };
const TURN_MILLIS = 10;
/** A receive buffer takes 256 small datagrams; the outbox sends 8 a millisecond, the program 1. */
const BUFFER_MILLIS = 28;
/** Runs of lost datagrams that are reported. */
const LOST_RUNS = 20;
/** So long the sender continues after it has returned to UDP. */
const AFTER_MILLIS = 1000;
const address = (wire: number, host: number): string => `10.78.${wire}.${host}`;
const program = fileURLToPath(import.meta.url);
const offload = fileURLToPath(new URL('build/host/dgram/offload.js', root));

interface Received {
  readonly numbers: readonly number[];
  readonly awayMillis: number;
}

/** Prints what it has received, for each line. */
async function receive(): Promise<void> {
  const numbers: number[] = [];
  let [awayMillis, seen] = [0, performance.now()];
  setInterval(() => {
    const now = performance.now();
    if (now - seen > BUFFER_MILLIS) awayMillis += now - seen;
    seen = now;
  }, 1);
  const socket = dgram.createSocket('udp4');
  socket.on('message', (data) => void (data.length > 0 && numbers.push(Number(String(data)))));
  socket.bind(PORT, address(0, 2));
  await once(socket, 'listening');
  console.log('ready');
  const lines = createInterface({ input: process.stdin });
  lines.on('line', () => console.log(JSON.stringify({ numbers, awayMillis })));
  await once(lines, 'close');
  process.exit();
}

/** A namespace with both wires to it. */
async function startHost() {
  const holder = spawn('unshare', ['-n', 'sh', '-c', 'echo made; read line'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  await once(holder.stdout, 'data');
  const inside = ['-t', `${holder.pid}`, '-n'];
  const run = (name: string, ...words: string[]): void =>
    void execFileSync('nsenter', [...inside, name, ...words], { stdio: 'pipe' });
  run('ip', 'link', 'set', 'lo', 'up');
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  for (let wire = 0; wire < WIRES; wire++) {
    const other = ['peer', 'name', `p${wire}`, 'netns', `${holder.pid}`];
    execFileSync('ip', ['link', 'add', `w${wire}`, 'type', 'veth', ...other]);
    execFileSync('ip', ['addr', 'add', `${address(wire, 1)}/24`, 'dev', `w${wire}`]);
    execFileSync('ip', ['link', 'set', `w${wire}`, 'up']);
    run('ip', 'addr', 'add', `${address(wire, 2)}/24`, 'dev', `p${wire}`);
    run('ip', 'link', 'set', `p${wire}`, 'up');
  }
  const start = async (isOffloaded: boolean) => {
    const words = [process.execPath, ...(isOffloaded ? ['--import', offload] : [])];
    const child = spawn('nsenter', [...inside, ...words, program, 'receive'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const lines = createInterface({ input: child.stdout });
    const ready = once(lines, 'line');
    const report = async (): Promise<Received> => {
      const [[line]] = await Promise.all([once(lines, 'line'), child.stdin.write('report\n')]);
      return JSON.parse(line as string) as Received;
    };
    return { child, ready, report };
  };
  return { holder, run, start };
}

/** Rules of the peer's host. */
function mute(run: (...words: [string, ...string[]]) => void, how: Death): void {
  if (how === 'gone') return;
  run('nft', 'add', 'table', 'inet', 'mute');
  const chain = (hook: string): void =>
    run('nft', 'add', 'chain', 'inet', 'mute', hook, `{ type filter hook ${hook} priority 0 ; }`);
  chain('output');
  const first = how === 'restarted' ? ['oifname', 'p0'] : [];
  run('nft', 'add', 'rule', 'inet', 'mute', 'output', ...first, 'ip', 'protocol', 'icmp', 'drop');
  if (how === 'restarted') return;
  chain('input');
  run('nft', 'add', 'rule', 'inet', 'mute', 'input', 'udp', 'dport', '4791', 'drop');
}

async function send(how: Death): Promise<Killed> {
  const host = await startHost();
  const first = await host.start(true);
  await first.ready;
  const options: RdpSocketOptions = { type: 'udp4', rdp: { events: true } };
  const socket = dgram.createSocket(options) as Socket;
  const to = [PORT, address(0, 2)] as const;
  socket.bind(0, address(0, 1));
  await once(socket, 'listening');
  const until = performance.now() + LIMIT_MILLIS;
  const hasReserves = !process.env['VERBENA_DGRAM']?.includes('failover=off');
  const isReady = async (): Promise<boolean> =>
    socket.counters.rdpSent > 10 &&
    (!hasReserves || (await askNodes('connections'))[0]!.text.includes(` ${WIRES * WIRES}\n`));
  while (!(await isReady())) {
    if (performance.now() > until) throw new Error('the path by RDP is not ready');
    socket.send('', ...to);
    await sleep(TURN_MILLIS);
  }
  const events: string[] = [];
  let [sent, queued, udpMillis] = [0, 0, -1];
  mute(host.run, how);
  const since = performance.now();
  socket.on('rdp', ({ kind }: RdpEvent) => {
    const millis = Math.round(performance.now() - since);
    events.push(`${millis} ${kind}`);
    if (kind === 'udp' && udpMillis < 0) [udpMillis, queued] = [millis, sent];
  });
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  const second = how === 'gone' ? undefined : await host.start(how === 'restarted');
  let readyMillis = -1;
  void second?.ready.then(() => (readyMillis = Math.round(performance.now() - since)));
  const end = (): number => (udpMillis < 0 ? LIMIT_MILLIS : udpMillis + AFTER_MILLIS);
  while (performance.now() - since < end()) {
    for (let count = RATES[how]; count > 0; count--) socket.send(`${sent++}`, ...to);
    await sleep(TURN_MILLIS);
  }
  // Datagrams in the outbox leave, and arrive.
  for (let before = -1; socket.getSendQueueCount() !== before; await sleep(500)) {
    before = socket.getSendQueueCount();
  }
  const { numbers, awayMillis } = (await second?.report()) ?? { numbers: [], awayMillis: 0 };
  const isInOrder = numbers.every((number, index) => index === 0 || number > numbers[index - 1]!);
  second?.child.kill('SIGKILL');
  host.holder.stdin.end();
  await once(host.holder, 'close');
  const received = numbers.length;
  const lost = missing(numbers, sent).slice(0, LOST_RUNS);
  const counts = { queued, sent, received, lost };
  return { udpMillis, readyMillis, awayMillis, ...counts, isInOrder, events };
}

/** The runs below `count` that are not in `numbers`, which ascend. */
function missing(numbers: readonly number[], count: number): [number, number][] {
  const runs: [number, number][] = [];
  let next = 0;
  for (const number of [...numbers, count]) {
    if (number > next) runs.push([next, number - next]);
    next = number + 1;
  }
  return runs;
}

const [role, how] = process.argv.slice(2);
if (role === 'receive') await receive();
else if (role === 'send') {
  console.log(JSON.stringify(await send(how as Death)));
  process.exit();
}
