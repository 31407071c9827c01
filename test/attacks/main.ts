/**
 * Every attack of the guide's SECURITY page against real processes, one after the other. Ends with
 * `N passed, N failed`.
 *
 *     npm run attacks [-- part of a name …]
 */
import { readdirSync, rmSync } from 'node:fs';
import { read } from '../support/script.js';
import { ATTACKS } from './attacks.js';
import { words } from './words.js';

const { names } = read<Record<string, never>>(words);
const chosen = ATTACKS.filter(
  ({ name }) => names.length === 0 || names.some((part) => name.includes(part)),
);
let failed = 0;
for (const { name, position, unit = 'datagrams', run } of chosen) {
  const began = performance.now();
  const seconds = (): string => `${((performance.now() - began) / 1000).toFixed(1)} s`;
  try {
    const packets = await run();
    console.log(`ok    ${name} (${position}, ${packets} ${unit}, ${seconds()})`);
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
console.log(`${chosen.length - failed} passed, ${failed} failed`);
process.exitCode = failed > 0 || chosen.length === 0 ? 1 : 0;
