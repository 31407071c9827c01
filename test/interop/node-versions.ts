/** Programs of the releases of Node that this package is for. */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Report } from './group.js';
import { run } from './tools.js';

const MAJORS = [20, 22, 24, 26];
const FETCH_SECONDS = 240;

/** A folder that outlives the run. */
export function cacheFolder(name: string): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
  return join(cache, 'verbena', name);
}

/** Fetched once, as the packages that carry the binaries; no script of theirs is run. */
export async function fetchNode(major: number): Promise<string> {
  if (Number(process.versions.node.split('.')[0]) === major) return process.execPath;
  const folder = cacheFolder(`node-${major}`);
  const name = `node-${process.platform}-${process.arch}`;
  const file = join(folder, 'node_modules', name, 'bin', 'node');
  if (existsSync(file)) return file;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{"private":true}\n');
  const options = ['--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
  const args = ['install', ...options, '--prefix', folder, `${name}@${major}`];
  await run('npm', args, FETCH_SECONDS);
  return file;
}

/** Name of each version, and the path of its program. */
export type Versions = ReadonlyMap<string, string>;

/** A version that cannot be fetched is named as not run. */
export async function findVersions(
  report: Report,
  majors: readonly number[] = MAJORS,
): Promise<Versions> {
  const found = new Map<string, string>();
  for (const major of majors) {
    try {
      const file = await fetchNode(major);
      found.set((await run(file, ['--version'])).stdout.trim(), file);
    } catch (error) {
      const [why] = (error as Error).message.split('\n', 1);
      report.note(`NOT RUN: Node ${major} cannot be had: ${why}`);
    }
  }
  return found;
}
