/**
 * Every attack of the guide's ATTACKS page against real processes, one after the other. Ends with
 * `N passed, N failed`.
 *
 *     npm run attacks [-- [--record] part of a name …]
 */
import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { read } from '../support/script.js';
import { ATTACKS } from './attacks.js';
import { TABLE, withCosts } from './table.js';
import { words } from './words.js';

const { names, options } = read<{ readonly record?: boolean }>(words);
const costs = new Map<string, string>();
/** Every attack ends: one that waits for ever has failed. */
const LIMIT_SECONDS = 120;
async function within<T>(running: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new Error(`no end within ${LIMIT_SECONDS} s`);
    timer = setTimeout(() => reject(error), LIMIT_SECONDS * 1000);
  });
  return Promise.race([running, late]).finally(() => clearTimeout(timer));
}

const chosen = ATTACKS.filter(
  ({ name }) => names.length === 0 || names.some((part) => name.includes(part)),
);
let failed = 0;
for (const { name, position, unit = 'datagrams', run } of chosen) {
  const began = performance.now();
  const seconds = (): string => `${((performance.now() - began) / 1000).toFixed(1)} s`;
  try {
    const packets = await within(run());
    console.log(`ok    ${name} (${position}, ${packets} ${unit}, ${seconds()})`);
    costs.set(name, `${packets.toLocaleString('en')} ${unit}, ${seconds()}`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name} (${position}, ${seconds()})`);
    const { stack, details } = error as Error & { readonly details?: string };
    console.log(`${stack}\n${details ?? ''}`.replace(/^/gm, '      | '));
  }
}
// Killed processes leave their devices, which only the next one to open them would remove.
const base = `verbena-${process.geteuid!()}`;
for (const folder of readdirSync('/dev/shm').filter((name) => name.startsWith(base))) {
  for (const file of readdirSync(`/dev/shm/${folder}`)) {
    if (file.includes(`test-${process.pid}-`)) rmSync(`/dev/shm/${folder}/${file}`);
  }
}
if (options.record) {
  const { format } = await import('prettier');
  const text = withCosts(readFileSync(TABLE, 'utf8'), costs);
  writeFileSync(TABLE, await format(text, { parser: 'markdown', printWidth: 100 }));
}
console.log(`${chosen.length - failed} passed, ${failed} failed`);
// Processes of an attack that did not end go with this one.
process.exit(failed > 0 || chosen.length === 0 ? 1 : 0);
