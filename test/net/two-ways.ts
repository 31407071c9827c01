/**
 * Two hosts with two wires between them, of which one fails under a UDP program:
 * ```
 *   unshare -n node --import …/offload.js two-ways.js send down|silent|address
 * ```
 * The program knows `node:dgram` only and one address of each host. Prints a line of JSON (`Ways`).
 * Namespaces and wires end with the processes.
 */
import { execFileSync, spawn } from 'node:child_process';
import dgram from 'node:dgram';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { askNodes } from '../../host/rds/info-server.js';
import type { Socket } from '../../host/dgram/index.js';
import { root } from '../support/paths.js';

/** How the wire fails: its interface goes down, it carries no packet, or the address is removed. */
export type Failure = 'down' | 'silent' | 'address';

export interface Ways {
  /** Messages that the receiver has, as numbers, differ from 0, 1, 2 … first at this place. */
  readonly firstWrong: number;
  readonly received: number;
  readonly sent: number;
  /** Addresses that messages came from, and that answers came from. */
  readonly sources: readonly string[];
  readonly answerSources: readonly string[];
  readonly answers: number;
  readonly asked: number;
  readonly byUdpAfterFailure: number;
  /** Output of `rds-info --connections` before the failure and after it. */
  readonly before: string;
  readonly after: string;
  readonly seconds: number;
}

const [PORT, WIRES, MESSAGES, BURST, ANSWER_EVERY] = [5000, 2, 3000, 500, 10];
const LIMIT_MILLIS = 60_000;
const address = (wire: number, host: number): string => `10.77.${wire}.${host}`;

const ip = (...words: string[]): void => void execFileSync('ip', words, { stdio: 'pipe' });
const nft = (...words: string[]): void => void execFileSync('nft', words, { stdio: 'pipe' });

function raise(name: string, own: string): void {
  ip('addr', 'add', `${own}/24`, 'dev', name);
  ip('link', 'set', name, 'up');
}

function fail(how: Failure): void {
  if (how === 'down') ip('link', 'set', 'w0', 'down');
  else if (how === 'address') ip('addr', 'del', `${address(0, 1)}/24`, 'dev', 'w0');
  else deafen('w0');
}

/** Drops what the interface receives; senders see no error. */
function deafen(name: string): void {
  nft('add', 'table', 'inet', 'cut');
  nft('add', 'chain', 'inet', 'cut', 'input', '{ type filter hook input priority 0 ; }');
  nft('add', 'rule', 'inet', 'cut', 'input', 'iifname', name, 'drop');
}

/** Answers each tenth message; reports what it has on request. */
async function receive(): Promise<void> {
  const numbers: number[] = [];
  const sources = new Set<string>();
  const lines = createInterface({ input: process.stdin });
  console.log('started');
  for await (const line of lines) {
    if (line === 'wired') {
      ip('link', 'set', 'lo', 'up');
      for (let wire = 0; wire < WIRES; wire++) raise(`p${wire}`, address(wire, 2));
      const socket = dgram.createSocket('udp4');
      socket.on('message', (data, from) => {
        if (data.length === 0) return;
        const number = Number(String(data));
        numbers.push(number);
        sources.add(from.address);
        if (number % ANSWER_EVERY === 0) socket.send(data, from.port, from.address);
      });
      socket.bind(PORT, address(0, 2));
      await once(socket, 'listening');
    }
    if (line === 'deafen') deafen('p0');
    const firstWrong = numbers.findIndex((number, index) => number !== index);
    console.log(JSON.stringify({ received: numbers.length, firstWrong, sources: [...sources] }));
  }
  process.exit();
}

async function routesOf(): Promise<string> {
  const [answer] = await askNodes('connections');
  return answer?.text ?? '';
}

interface Report {
  readonly received: number;
  readonly firstWrong: number;
  readonly sources: string[];
}

/** The receiver, in a network of its own, and the wires between both. */
async function startPeer() {
  const program = fileURLToPath(import.meta.url);
  const offload = fileURLToPath(new URL('build/host/dgram/offload.js', root));
  const words = ['-n', process.execPath, '--import', offload, program, 'receive'];
  const peer = spawn('unshare', words, { stdio: ['pipe', 'pipe', 'inherit'] });
  peer.on('exit', (code) => {
    if (code !== 0) throw new Error(`the receiver ended with ${code}`);
  });
  const lines = createInterface({ input: peer.stdout });
  const ask = async (line: string): Promise<Report> => {
    const [[said]] = await Promise.all([once(lines, 'line'), peer.stdin.write(`${line}\n`)]);
    return JSON.parse(said as string) as Report;
  };
  await once(lines, 'line');
  ip('link', 'set', 'lo', 'up');
  for (let wire = 0; wire < WIRES; wire++) {
    const other = ['peer', 'name', `p${wire}`, 'netns', `${peer.pid}`];
    ip('link', 'add', `w${wire}`, 'type', 'veth', ...other);
    raise(`w${wire}`, address(wire, 1));
  }
  await ask('wired');
  return { peer, ask };
}

async function send(how: Failure): Promise<Ways> {
  const { peer, ask } = await startPeer();
  const socket = dgram.createSocket('udp4') as Socket;
  const answerSources = new Set<string>();
  let answers = 0;
  socket.on('message', (_, from) => {
    answers++;
    answerSources.add(from.address);
  });
  socket.bind(0, address(0, 1));
  await once(socket, 'listening');
  const to = [PORT, address(0, 2)] as const;
  const isReady = async (): Promise<boolean> => (await routesOf()).includes(` ${WIRES * WIRES}\n`);
  const until = performance.now() + LIMIT_MILLIS;
  while (!(await isReady())) {
    const { udpSent, rdpSent } = socket.counters;
    if (performance.now() > until) throw new Error(`not ready: ${udpSent} UDP, ${rdpSent} RDP`);
    socket.send('', ...to);
    await sleep(20);
  }
  const before = await routesOf();
  const { udpSent } = socket.counters;
  let sent = 0;
  let since = 0;
  while (sent < MESSAGES) {
    const isFailing = since === 0 && sent >= MESSAGES / 3;
    for (let count = isFailing ? BURST : 1; count > 0; count--) socket.send(`${sent++}`, ...to);
    if (isFailing) {
      since = performance.now();
      if (how === 'silent') await ask('deafen');
      fail(how);
    }
    await sleep(1);
  }
  const asked = sent / ANSWER_EVERY;
  const isDone = async (): Promise<boolean> =>
    (await ask('report')).received >= sent && answers >= asked;
  while (!(await isDone()) && performance.now() < since + LIMIT_MILLIS) await sleep(50);
  const seconds = (performance.now() - since) / 1000;
  const { received, firstWrong, sources } = await ask('report');
  const after = await routesOf();
  peer.stdin.end();
  await once(peer, 'close');
  return {
    ...{ received, firstWrong, sources, sent, answers, asked, before, after, seconds },
    answerSources: [...answerSources],
    byUdpAfterFailure: socket.counters.udpSent - udpSent,
  };
}

const [role, how] = process.argv.slice(2);
if (role === 'receive') await receive();
else if (role === 'send') {
  console.log(JSON.stringify(await send(how as Failure)));
  process.exit();
}
