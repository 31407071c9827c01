/** Two programs, each with `verbena run` on an address of its own. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Workspace, type Ended, type Program } from '../../support/processes.js';

const SECONDS_MAX = 40;
const POLL_MILLIS = 20;
/** From the device's socket to rdma_listen, and from that of a group to posted receives. */
const LISTEN_MILLIS = 400;
const TCP_LISTEN = '0A';

let last = 0;

/** Two addresses that no other test has, and no pair before. */
export function nextAddresses(): [string, string] {
  last += 1;
  const [high, low] = [last >> 6, last & 63];
  return [`127.73.${high}.${2 * low + 1}`, `127.73.${high}.${2 * low + 2}`];
}

/** Does any process listen at this TCP port? */
function listens(port: number): boolean {
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  const pattern = new RegExp(`:${hex} [0-9A-F]+:0000 ${TCP_LISTEN} `);
  return ['tcp', 'tcp6'].some((name) => pattern.test(readFileSync(`/proc/net/${name}`, 'utf8')));
}

/** Does any process have UDP port 4791 of this address, or of this multicast group? */
function hasDevice(address: string): boolean {
  const bytes = address.split('.').reverse().map(Number);
  const hex = bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return readFileSync('/proc/net/udp', 'utf8').includes(`${hex.toUpperCase()}:12B7`);
}

/** How a server is known to wait for its client; `group`: by its multicast group. */
export type Ready = { readonly tcp: number } | 'cm' | 'group';

export async function untilReady(server: Program, address: string, ready: Ready): Promise<void> {
  const deadline = performance.now() + SECONDS_MAX * 1000;
  const place = ready === 'group' ? groupOf(address) : address;
  const isReady = () => (typeof ready === 'string' ? hasDevice(place) : listens(ready.tcp));
  let ended = false;
  void server.ended.then(() => (ended = true));
  while (!isReady()) {
    if (ended || performance.now() > deadline) throw new Error(`no server:\n${server.stderr}`);
    await sleep(POLL_MILLIS);
  }
  if (typeof ready === 'string') await sleep(LISTEN_MILLIS);
}

export interface Pair {
  readonly server: string;
  readonly client: string;
  readonly ready: Ready;
  /** Options of `verbena run` at both sides. */
  readonly options?: readonly string[];
  /** Commands of `verbena` itself in place of programs. */
  readonly ours?: 'server' | 'client';
  /** Both devices are one, at the first address. */
  readonly isOneDevice?: boolean;
  /** At loss: one side may have ended when the acknowledgement of the other's last message is lost. */
  readonly mayMissLastAck?: boolean;
  /** Exit codes of the server besides 0. */
  readonly serverCodes?: readonly number[];
  /** Expected output of the client. */
  readonly prints?: RegExp;
  /** Standard error of a client that has done all and ends with a code besides 0. */
  readonly endsWith?: RegExp;
}

/** A multicast group that no other pair has. */
function groupOf(server: string): string {
  return server.replace(/^127/, '239');
}

function words(text: string, [server, client]: readonly [string, string]): string[] {
  const places = { SERVER: server, CLIENT: client, GROUP: groupOf(server) };
  return text
    .replaceAll(/SERVER|CLIENT|GROUP/g, (name) => places[name as keyof typeof places])
    .split(' ');
}

function said({ code, signal, stdout, stderr }: Ended): string {
  return `${code ?? signal}\n${stdout.slice(-800)}\n${stderr.slice(-800)}`;
}

/** Ends a program that hangs. */
export async function bounded(program: Program, seconds = SECONDS_MAX): Promise<Ended> {
  // `verbena run` passes it to its program.
  const timer = setTimeout(() => program.kill('SIGTERM'), seconds * 1000);
  try {
    return await program.ended;
  } finally {
    clearTimeout(timer);
  }
}

/** Output of rdma-core, and of Verbena, if the last message is not acknowledged. */
const NO_LAST_ACK = /transport retry counter exceeded \(12\)|RETRY_EXC_ERR/;

/** Output of a client after a REJ for an invalid service id. */
const NOT_LISTENING = /RDMA_CM_EVENT_REJECTED[;,] error:? 8\b/;
const ATTEMPTS_MAX = 5;

/**
 * Runs both to their end. Throws when one fails. perftest -R connects twice, and its client does
 * not wait for the second listener of its server: such a pair starts anew, since a server that has
 * had its first client takes the next one for the second connection.
 */
export async function runPair(
  pair: Pair,
  env: readonly string[] = [],
  addresses = nextAddresses(),
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const failure = await runOnce(pair, env, attempt === 1 ? addresses : nextAddresses());
    if (failure === undefined) return;
    if (!NOT_LISTENING.test(failure) || attempt === ATTEMPTS_MAX) throw new Error(failure);
  }
}

/** Failure of the run; undefined: it passed. */
async function runOnce(
  pair: Pair,
  env: readonly string[],
  addresses: readonly [string, string],
): Promise<string | undefined> {
  const { options = [], isOneDevice, mayMissLastAck, serverCodes = [] } = pair;
  let failure: string | undefined;
  await Workspace.use(async (space) => {
    const start = (side: 'server' | 'client', address: string): Program => {
      const line = words(pair[side], addresses);
      if (pair.ours === side) return space.start(...line);
      return space.start('run', '--address', address, ...options, '--', 'env', ...env, ...line);
    };
    const server = start('server', addresses[0]);
    await untilReady(server, addresses[0], pair.ready);
    const ended = await bounded(start('client', isOneDevice ? addresses[0] : addresses[1]));
    const { prints, endsWith } = pair;
    const misses = ({ stdout, stderr }: Ended): boolean =>
      mayMissLastAck === true && NO_LAST_ACK.test(stdout + stderr);
    const lastAckOfClient = misses(ended);
    const hasEnded = ended.code === 0 || endsWith?.test(ended.stderr) || lastAckOfClient;
    const isDone = hasEnded && (!prints || prints.test(ended.stdout));
    // A server that failed first says why.
    if (!isDone) server.kill('SIGTERM');
    const served = await bounded(server);
    if (!isDone) {
      failure = `client: ${said(ended)}\nserver: ${said(served)}`;
      return;
    }
    // Not both: the other side has all messages.
    const lastAckOfServer = misses(served) && !lastAckOfClient;
    const isGood = served.code === 0 || lastAckOfServer || serverCodes.includes(served.code ?? -1);
    if (!isGood) failure = `server: ${said(served)}`;
  });
  return failure;
}
