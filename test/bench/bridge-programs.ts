/** Programs of `verbena run` for the bench `bridge`, and what they print. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { devicesOf, readOf } from '../support/bridge-devices.js';
import { Workspace, cliPath } from '../support/processes.js';
import { bounded, nextAddresses, untilReady } from '../interop/bridge/pair.js';

/** TCP ports of servers, one for each pair. */
let port = 28_300;

/** Words of `verbena run` in front of a program's own; none: a command of `verbena` itself. */
export type Side = (address: string) => readonly string[];

/** A program of both sides under `verbena run`, each on a device of its own. */
export const apart: Side = (address) => ['run', '--address', address, '--'];

/** Commands of `verbena` itself; `--bind` comes last. */
export const ours: Side = () => [];

/**
 * Runs `line` as server and, with the server's address behind, as client. Returns what the client
 * printed. Rejects if one of them fails.
 */
export async function runBoth(
  line: string,
  side: Side,
  options: { readonly portFlag?: string; readonly isOneDevice?: boolean } = {},
): Promise<string> {
  const tcp = port++;
  const [server, client] = nextAddresses();
  const theirs = options.isOneDevice ? server : client;
  const words = `${line} ${options.portFlag ?? '-p'} ${tcp}`.split(' ');
  const bind = (address: string): string[] => (side === ours ? ['--bind', address] : []);
  let printed = '';
  await Workspace.use(async (space) => {
    const first = space.start(...side(server), ...words, ...bind(server));
    await untilReady(first, server, { tcp });
    const second = space.start(...side(theirs), ...words, ...bind(theirs), server);
    const ended = await bounded(second);
    printed = ended.stdout;
    if (ended.code !== 0) first.kill('SIGTERM');
    const served = await bounded(first);
    if (ended.code === 0 && served.code === 0) return;
    throw new Error(`${line}: ${ended.stdout}${ended.stderr}${served.stdout}${served.stderr}`);
  });
  return printed;
}

/** Columns of the tables of perftest, and of `verbena perf`. */
const COLUMNS = { 't_typical[usec]': 4, 'BW average[': 3 } as const;

/** The number below a heading of such a table. */
export function parseTable(text: string, heading: keyof typeof COLUMNS): number {
  const lines = text.split('\n');
  const at = lines.findIndex((line) => line.trim().startsWith('#bytes') && line.includes(heading));
  const value = Number((lines[at + 1] ?? '').trim().split(/\s+/)[COLUMNS[heading]]);
  if (at < 0 || !(value > 0)) throw new Error(`no ${heading} in what was printed: ${text}`);
  return value;
}

/** Milliseconds that a program takes from its start to its end, whatever its exit code is. */
export async function millisOf(command: string, words: readonly string[]): Promise<number> {
  const start = performance.now();
  const child = spawn(command, words, { stdio: 'ignore' });
  await once(child, 'close');
  return performance.now() - start;
}

/** `ibv_devinfo`, bare or under `verbena run`. */
export function devinfoMillis(isBare: boolean): Promise<number> {
  if (isBare) return millisOf('ibv_devinfo', []);
  const [address] = nextAddresses();
  return millisOf(process.execPath, [cliPath, 'run', '--address', address, 'ibv_devinfo']);
}

/** Resident MiB of the process that has the device of a program that waits for its peer. */
export async function deviceMib(): Promise<Record<'VmRSS' | 'RssAnon' | 'RssFile', number>> {
  const tcp = port++;
  const [address] = nextAddresses();
  const kinds = { VmRSS: NaN, RssAnon: NaN, RssFile: NaN };
  await Workspace.use(async (space) => {
    const words = ['--', 'ibv_rc_pingpong', '-g', '0', '-p', tcp];
    const program = space.start('run', '--address', address, ...words);
    await untilReady(program, address, { tcp });
    const status = readOf(devicesOf(address)[0]!, 'status');
    for (const kind of ['VmRSS', 'RssAnon', 'RssFile'] as const) {
      kinds[kind] = Number(new RegExp(`${kind}:\\s+(\\d+) kB`).exec(status)?.[1]) / 1024;
    }
    program.kill('SIGTERM');
    await program.ended;
  });
  return kinds;
}
