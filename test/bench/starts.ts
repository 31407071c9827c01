/**
 * Many processes that open one named device at the same time, against as many that only start
 * Node: seconds until the last one has opened it, processor time and memory of each.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { openDevice } from '../../host/index.js';
import { root } from '../support/paths.js';
import { freshName } from '../support/member.js';
import type { Figures } from './harness.js';

/** proc(5): user and system time of children that have ended, in ticks of 10 ms. */
const [CHILDREN_USER, CHILDREN_SYSTEM] = [13, 14];
const TICK_MILLIS = 10;
const KIB_PER_MB = 1000;
/** Node parses all certificates of that file, and its own, before a program begins: 32 ms here. */
const { NODE_EXTRA_CA_CERTS: _certificates, ...ENVIRONMENT } = process.env;
const END = `process.send('ready'); process.on('disconnect', () => process.exit());`;

/** Programs of the processes, by the name of their figures. */
function programs(name: string): Readonly<Record<string, string>> {
  const open = (entry: string): string => {
    const url = new URL(`build/package/${entry}.js`, root).href;
    return `import { openDevice } from '${url}'; await openDevice({ name: '${name}' }); ${END}`;
  };
  return { bare: END, verbs: open('verbs'), index: open('index') };
}

function childMillis(): number {
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1]!.split(' ');
  return (Number(fields[CHILDREN_USER]) + Number(fields[CHILDREN_SYSTEM])) * TICK_MILLIS;
}

/** Megabytes of the processes' mean: resident, and proportional (proc(5), smaps_rollup). */
function memoryOf(children: readonly ChildProcess[]): { resident: number; proportional: number } {
  const texts = children.map(({ pid }) => readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'));
  const mean = (field: string): number =>
    texts.reduce(
      (sum, text) => sum + Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(text)![1]),
      0,
    ) /
    texts.length /
    KIB_PER_MB;
  return { resident: mean('Rss'), proportional: mean('Pss') };
}

/** Of `count` processes each; they start at once. */
export async function measureStarts(count: number): Promise<Figures> {
  const name = freshName();
  const memoryBytes = 16 * 2 ** 20;
  const first = await openDevice({ name, port: 0, memoryBytes, processesMax: count + 1 });
  const figures: Figures = { starts: count };
  try {
    for (const [what, program] of Object.entries(programs(name))) {
      const [start, before] = [performance.now(), childMillis()];
      const children = Array.from({ length: count }, () =>
        spawn(process.execPath, ['--input-type=module', '-e', program], {
          env: ENVIRONMENT,
          stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
        }),
      );
      await Promise.all(children.map((child) => once(child, 'message')));
      figures[`start_${what}_s`] = (performance.now() - start) / 1000;
      const { resident, proportional } = memoryOf(children.slice(0, 10));
      figures[`start_${what}_resident_mb`] = resident;
      figures[`start_${what}_proportional_mb`] = proportional;
      const ended = children.map((child) => once(child, 'exit'));
      for (const child of children) child.disconnect();
      await Promise.all(ended);
      figures[`start_${what}_cpu_ms`] = (childMillis() - before) / count;
    }
  } finally {
    await first.close();
  }
  return figures;
}
