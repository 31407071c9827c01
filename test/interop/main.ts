/**
 * Verbena against programs of others. Slower than the tests, and in need of tools that
 * `npm install` does not bring; README.md tells which.
 *
 *     node build/test/interop/main.js [group…]
 *
 * Ends with `N passed, N failed`; the exit code is 1 unless all passed, 2 for a wrong argument.
 */
import { captureGroup } from './capture.js';
import { codecGroup } from './codec.js';
import { LineReport, runGroup, type Group } from './group.js';
import { vectorsGroup } from './vectors.js';

const GROUPS: readonly Group[] = [vectorsGroup, codecGroup, captureGroup];

async function main(names: readonly string[]): Promise<number> {
  const known = GROUPS.map(({ name }) => name);
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0) {
    console.error(`no group ${unknown.join(', ')}; there are ${known.join(', ')}`);
    return 2;
  }
  const report = new LineReport((line) => console.log(line));
  for (const group of GROUPS) {
    if (names.length > 0 && !names.includes(group.name)) continue;
    console.log(group.name);
    await runGroup(group, report);
  }
  console.log(`${report.passed} passed, ${report.failed} failed`);
  return report.failed === 0 && report.passed > 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
