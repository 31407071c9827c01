/**
 * Packages of others that use `node:dgram`, unmodified, with and without `verbena/offload` on either
 * side: what both sides say must be what they say over plain UDP. `packages/programs` has a program
 * for each; `packages/package.json` the versions.
 */
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { Workspace, type Program } from '../support/processes.js';
import type { Group, Report } from './group.js';
import { cacheFolder, findVersions } from './node-versions.js';
import { run } from './tools.js';

const SOURCE = fileURLToPath(new URL('test/interop/packages', root));
const OFFLOAD = fileURLToPath(new URL('build/package/offload.js', root));
const INSTALL_SECONDS = 240;
/** A busy machine takes its time. */
const READY_MILLIS = 60_000;
const ARRIVE_MILLIS = 10_000;

/** Which sides have the offload. */
const WAYS = {
  'plain UDP': [false, false],
  'the offload on both sides': [true, true],
  'the offload at the client': [false, true],
  'the offload at the server': [true, false],
} as const;

/** The packages, installed once for each lock file; no script of theirs is run. */
async function install(): Promise<string> {
  const lock = readFileSync(join(SOURCE, 'package-lock.json'));
  const folder = cacheFolder(
    `packages-${createHash('sha256').update(lock).digest('hex').slice(0, 12)}`,
  );
  if (!existsSync(folder)) {
    const part = `${folder}.${process.pid}`;
    mkdirSync(part, { recursive: true });
    for (const name of ['package.json', 'package-lock.json'])
      cpSync(join(SOURCE, name), join(part, name));
    await run(
      'npm',
      ['ci', '--ignore-scripts', '--prefer-offline', '--prefix', part],
      INSTALL_SECONDS,
    );
    renameSync(part, folder);
  }
  // The programs as they are now.
  rmSync(join(folder, 'programs'), { recursive: true, force: true });
  for (const name of ['programs', 'run.mjs']) {
    cpSync(join(SOURCE, name), join(folder, name), { recursive: true });
  }
  return folder;
}

interface Side {
  readonly node: string;
  readonly folder: string;
  readonly name: string;
  readonly address: string;
}

function start(
  space: Workspace,
  { node, folder, name, address }: Side,
  role: string,
  offload: boolean,
) {
  const preload = offload ? ['--import', OFFLOAD] : [];
  const words = [...preload, join(folder, 'run.mjs'), name, role, address];
  return space.startProcess('env', ['NODE_DEBUG=verbena', node, ...words]);
}

/** Lines of a side, without the one that says that it is ready. */
const linesOf = ({ stdout }: Program): string[] =>
  stdout.split('\n').filter((line) => line !== '' && line !== 'ready');

/** Output of both sides, and the datagrams that the client sent by RDP. */
async function exchange(side: Side, [serves, asks]: readonly [boolean, boolean], expected: number) {
  let said: { readonly lines: string[]; readonly byRdp: number } = { lines: [], byRdp: 0 };
  await Workspace.use(async (space) => {
    const server = start(space, side, 'serve', serves);
    await server.printed('stdout', /^ready$/m, READY_MILLIS);
    const client = start(space, side, 'ask', asks);
    const { code, stdout, stderr } = await client.ended;
    if (code !== 0) throw new Error(`the client ended with ${code}\n${stdout}\n${stderr}`);
    const count = (): number => linesOf(client).length + linesOf(server).length;
    const deadline = performance.now() + ARRIVE_MILLIS;
    while (count() < expected && performance.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    server.kill('SIGTERM');
    const ended = await server.ended;
    if (ended.code !== 0) throw new Error(`the server ended with ${ended.code}\n${ended.stderr}`);
    const lines = [...linesOf(client), 'server:', ...linesOf(server)];
    said = { lines, byRdp: Number(/by RDP: (\d+) sent/.exec(stderr)?.[1] ?? 0) };
  });
  return said;
}

/** Runs a package's program in all ways; returns whether RDP carried datagrams. */
async function compare(side: Side): Promise<boolean> {
  const plain = await exchange(side, WAYS['plain UDP'], 1);
  if (plain.lines.length < 3) throw new Error(`over plain UDP: ${plain.lines.join('; ')}`);
  let hasRdp = false;
  for (const [way, sides] of Object.entries(WAYS).slice(1)) {
    const { lines, byRdp } = await exchange(side, sides, plain.lines.length - 1);
    hasRdp ||= byRdp > 0;
    if (lines.join('\n') === plain.lines.join('\n')) continue;
    const at = lines.findIndex((line, index) => line !== plain.lines[index]);
    const [ours, theirs] = [lines[at] ?? 'nothing', plain.lines[at] ?? 'nothing'];
    const counts = `${lines.length} and ${plain.lines.length} lines`;
    throw new Error(`${way}: line ${at} is "${ours}", over plain UDP "${theirs}"; ${counts}`);
  }
  return hasRdp;
}

async function checkVersion(
  report: Report,
  [version, node]: readonly [string, string],
  folder: string,
  names: readonly string[],
): Promise<void> {
  const queue = names.map((name, index) => ({ name, address: `127.0.61.${index + 1}` }));
  let byRdp = 0;
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next; next = queue.shift()) {
      const side = { ...next, node, folder };
      await report.check(`Node ${version}: ${next.name}`, async () => {
        if (await compare(side)) byRdp++;
      });
    }
  };
  // They wait for the second round most of the time.
  await Promise.all(Array.from({ length: availableParallelism() + 1 }, worker));
  await report.check(`Node ${version}: RDP carried datagrams of ${byRdp} packages`, () => {
    if (byRdp < names.length / 2) throw new Error(`of ${names.length}; at least half are expected`);
  });
}

export const packagesGroup: Group = {
  name: 'packages',
  tools: [],
  async run(report) {
    const folder = await install();
    const names = readdirSync(join(SOURCE, 'programs')).map((file) => file.replace('.mjs', ''));
    for (const version of await findVersions(report, [20, 22, 24])) {
      await checkVersion(report, version, folder, names);
    }
  },
};
