/**
 * Serves the state of a node to other processes of this user, and takes a parameter: a socket in a
 * directory of the user's own, which is what /proc/driver/rds was (seed 003). `verbena rds-info`
 * asks there.
 */
import { lstatSync, mkdirSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MisuseError, RefusalError, VerbenaError } from '../errors/errors.js';
import type { RdsNode } from './node.js';

const QUESTION_BYTES_MAX = 256;
const ANSWER_BYTES_MAX = 1 << 24;
const ANSWER_MILLIS = 5000;

/** One node's answer. */
export interface NodeAnswer {
  /** Address and UDP port of the node's device. */
  readonly node: string;
  readonly text: string;
}

/** Undefined if the directory does not exist or another user owns it. */
function directory(): string | undefined {
  const uid = process.getuid?.();
  if (uid === undefined) return undefined;
  const base = process.env['XDG_RUNTIME_DIR'] ?? tmpdir();
  const path = join(base, `verbena-rds-${uid}`);
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    const { uid: owner, mode } = lstatSync(path);
    return owner === uid && (mode & 0o77) === 0 ? path : undefined;
  } catch {
    return undefined;
  }
}

/** Of this process's network namespace: others have the same addresses. */
function namespaceNumber(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/net'))?.[0] ?? '0';
  } catch {
    return '0';
  }
}

const fileOf = (node: RdsNode): string => {
  const { gid, port } = node.core.local;
  return `${`${gid}`.replaceAll(':', '_')}-${port}-${namespaceNumber()}`;
};

/** Removes socket files of processes that were killed. */
async function sweep(folder: string): Promise<void> {
  for (const name of readdirSync(folder)) await ask(join(folder, name), 'config', false);
}

/** Socket files of this process: process.exit() closes no server. */
const published = new Set<string>();
process.on('exit', () => {
  for (const path of published) rmSync(path, { force: true });
});

/** From now on other processes of this user may ask. Where that cannot be, they hear nothing. */
export function publishNode(node: RdsNode): void {
  const folder = directory();
  if (folder === undefined) return;
  const path = join(folder, fileOf(node));
  // One process owns the address, and with it the node: an existing socket file is stale.
  rmSync(path, { force: true });
  sweep(folder).catch(() => {});
  const server = createServer((socket) => {
    let question = '';
    socket.setEncoding('utf8').setTimeout(ANSWER_MILLIS, () => socket.destroy());
    socket.on('error', () => {});
    socket.on('data', (text: string) => {
      question += text;
      if (question.length > QUESTION_BYTES_MAX) socket.destroy();
      else if (question.includes('\n')) socket.end(answer(node, question.trim()));
    });
  });
  server.on('error', () => {});
  // `exclusive`: a cluster primary would hand connections to any of its workers.
  server.listen({ path, exclusive: true });
  server.unref();
  published.add(path);
  node.context.siblings.observers.add({
    asyncEvent: () => {},
    peerGone: () => {},
    stays: true,
    closing: async () => {
      published.delete(path);
      server.close();
    },
  });
}

function answer(node: RdsNode, question: string): string {
  try {
    return `ok\n${textOf(node, question)}`;
  } catch (error) {
    if (!(error instanceof VerbenaError)) throw error;
    const code = error instanceof RefusalError ? error.code : 'EINVAL';
    return `${code}\n${error.message}`;
  }
}

function textOf(node: RdsNode, question: string): string {
  const { core } = node;
  if (/^set\b/.test(question)) {
    node.writeConfig(question.slice(3));
    return node.config();
  }
  switch (question) {
    case 'config':
      return node.config();
    case 'stats':
      return node.stats();
    case 'info':
      return node.info();
    case 'counters':
      return table(
        ['CounterName', 'Value'],
        Object.entries(core.statistics).map(([name, value]) => [name, `${value}`]),
      );
    case 'sockets':
      return table(
        ['BoundAddr', 'BPort', 'ConnAddr', 'CPort', 'SndBuf', 'RcvBuf'],
        [...core.ports.values()].map((port) => [
          `${core.local.gid}`,
          `${port.number}`,
          core.local.gid.isIpv4 ? '0.0.0.0' : '::',
          '0',
          `${port.sendBytesLimit}`,
          `${port.receiveLimit}`,
        ]),
      );
    case 'connections':
      return table(
        ['LocalAddr', 'RemoteAddr', 'Pending', 'Flg', 'From', 'To', 'Routes'],
        [...node.paths].map(({ peer, state, pending, home, routes }) => [
          `${core.addresses[home]!.gid}`,
          `${peer.gid}`,
          `${pending}`,
          state === 'ACTIVE' ? '--C' : state === 'CONNECTING' ? '-c-' : '---',
          // The pair of addresses in use, of those that lead to the peer.
          `${core.addresses[routes.current.from]!.gid}`,
          `${routes.current.to.gid}`,
          `${routes.count}`,
        ]),
      );
    default:
      throw new MisuseError('question', `unknown query "${question}"; see verbena rds-info --help`);
  }
}

/** Columns to the right, as rds-info prints them. */
function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = titles.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => row[column]!.length)),
  );
  const line = (row: readonly string[]): string =>
    row.map((cell, column) => cell.padStart(widths[column]!)).join(' ');
  return [titles, ...rows].map((row) => `${line(row)}\n`).join('');
}

/**
 * Asks all nodes of this user in this network namespace, or one: `question` is config, stats, info,
 * counters, sockets, connections, or "set parameter=value". Rejects with what the node refused.
 */
export async function askNodes(question: string, only?: string): Promise<NodeAnswer[]> {
  const folder = directory();
  if (folder === undefined) return [];
  const answers: NodeAnswer[] = [];
  const namespace = namespaceNumber();
  for (const name of readdirSync(folder).sort()) {
    const [file, port, where] = name.split('-');
    if (where !== namespace) continue;
    const address = file!.replaceAll('_', ':');
    if (only !== undefined && only !== address && only !== `${address}:${port}`) continue;
    const text = await ask(join(folder, name), question);
    if (text === undefined) continue;
    const end = text.indexOf('\n');
    const [code, rest] = [text.slice(0, end), text.slice(end + 1)];
    if (code === 'EINVAL') throw new MisuseError('--set', rest);
    if (code !== 'ok') throw new RefusalError('EACCES', rest);
    answers.push({ node: `${address}:${port}`, text: rest });
  }
  return answers;
}

/** Undefined if the server process has ended; its file is removed. */
function ask(path: string, question: string, keepsAlive = true): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = createConnection(path);
    if (!keepsAlive) socket.unref();
    let text = '';
    socket.setEncoding('utf8').setTimeout(ANSWER_MILLIS, () => socket.destroy());
    socket.on('data', (part: string) => {
      text += part;
      if (text.length > ANSWER_BYTES_MAX) socket.destroy();
    });
    socket.on('error', ({ code }: NodeJS.ErrnoException) => {
      const isDead =
        code === 'ECONNREFUSED' && lstatSync(path, { throwIfNoEntry: false })?.isSocket();
      if (isDead) rmSync(path, { force: true });
    });
    socket.on('close', () => resolve(text.includes('\n') ? text : undefined));
    socket.write(`${question}\n`);
  });
}
