/**
 * Finds the process that holds a UDP port, for the text of EADDRINUSE. Linux reports it in /proc;
 * on other systems, or if /proc is not readable, the text names no process.
 */
import { readdir, readFile, readlink } from 'node:fs/promises';
import type { Gid } from '../endpoint.js';

export interface PortHolder {
  readonly pid: number;
  /** The command line, at most 80 characters. */
  readonly command: string;
}

const COMMAND_LENGTH_MAX = 80;

/** The process whose UDP socket is in the way of binding `gid` and `port`, if it can be seen. */
export async function findPortHolder(gid: Gid, port: number): Promise<PortHolder | undefined> {
  const inodes = new Set([
    ...socketInodes(await read('/proc/net/udp'), gid, port),
    ...socketInodes(await read('/proc/net/udp6'), gid, port),
  ]);
  if (inodes.size === 0) return undefined;
  const wanted = new Set([...inodes].map((inode) => `socket:[${inode}]`));
  for (const pid of (await list('/proc')).filter((name) => /^\d+$/.test(name))) {
    for (const descriptor of await list(`/proc/${pid}/fd`)) {
      const target = await readlink(`/proc/${pid}/fd/${descriptor}`).catch(() => '');
      if (!wanted.has(target)) continue;
      // Only the first line: the argument of node --eval has many.
      const words = await read(`/proc/${pid}/cmdline`);
      const command = words.replace(/[\s\0]+/g, ' ').trim();
      return { pid: Number(pid), command: shorten(command) };
    }
  }
  return undefined;
}

/** `taken by process 7 (node app.js)`; `taken` if the process is not visible. */
export async function describeHolder(gid: Gid, port: number): Promise<string> {
  const holder = await findPortHolder(gid, port);
  if (!holder) return 'taken';
  if (holder.pid === process.pid) return `taken by this process, ${holder.pid}`;
  return `taken by process ${holder.pid} (${holder.command})`;
}

/** Does a socket of this machine use that port? Undefined: the system has no table of ports. */
export async function isPortTaken(gid: Gid, port: number): Promise<boolean | undefined> {
  const tables = [await read('/proc/net/udp'), await read('/proc/net/udp6')];
  if (tables.every((table) => table === '')) return undefined;
  return tables.some((table) => socketInodes(table, gid, port).length > 0);
}

/**
 * Inodes in a /proc/net/udp table whose local address keeps (gid, port) from being bound: the
 * same address or a wildcard. Addresses stand there as 32-bit words in the machine's order.
 */
export function socketInodes(table: string, gid: Gid, port: number): string[] {
  const words = [...gid.words].map((word) => word.toString(16).toUpperCase().padStart(8, '0'));
  const wanted = new Set([words.join(''), '0'.repeat(32)]);
  if (gid.isIpv4) wanted.add(words[3] ?? '').add('0'.repeat(8));
  const inodes: string[] = [];
  for (const line of table.split('\n').slice(1)) {
    const fields = line.trim().split(/\s+/);
    const [address = '', portText = ''] = (fields[1] ?? '').split(':');
    const inode = fields[9];
    if (inode && wanted.has(address) && parseInt(portText, 16) === port) inodes.push(inode);
  }
  return inodes;
}

function shorten(command: string): string {
  if (command.length <= COMMAND_LENGTH_MAX) return command;
  return `${command.slice(0, COMMAND_LENGTH_MAX - 1)}…`;
}

// Missing or forbidden files are the ordinary case here: they mean "cannot tell".
function read(path: string): Promise<string> {
  return readFile(path, 'latin1').catch(() => '');
}

function list(path: string): Promise<string[]> {
  return readdir(path).catch(() => []);
}
