/**
 * Verbena against programs of others. Slower than the tests, and in need of tools that
 * `npm install` does not bring; README.md lists them.
 *
 *     node build/test/interop/main.js [group…]
 *
 * Ends with `N passed, N failed`; the exit code is 1 unless all passed, 2 for a wrong argument.
 */
import { fileURLToPath } from 'node:url';
import { bridgeGroup, bridgeRunsGroup } from './bridge.js';
import { bundlersGroup } from './bundlers.js';
import { captureGroup } from './capture.js';
import { clusterGroup } from './cluster.js';
import { cmGroup } from './cm.js';
import { codecGroup } from './codec.js';
import { diskErrorsGroup } from './disk-errors.js';
import { failuresGroup } from './failures.js';
import { firefoxGroup } from './firefox.js';
import { LineReport, hasTools, runGroup, type Group, type GuestGroup } from './group.js';
import { perftestGroup } from './perftest.js';
import { layoutsGroup } from './layouts.js';
import { nodeTestsGroup, nodesGroup } from './nodes.js';
import { nvmeAuthenticationGroup } from './nvme-authentication.js';
import { nvmeGroup } from './nvme.js';
import { packageGroup } from './package.js';
import { packagesGroup } from './packages.js';
import { persistenceGroup } from './persistence.js';
import { pingpongGroup } from './pingpong.js';
import { pyverbsGroup } from './pyverbs.js';
import { rdsGroup } from './rds.js';
import { rpmaGroup } from './rpma.js';
import { rxeGroup } from './rxe.js';
import { shmemGroup } from './shmem.js';
import { soakGroup } from './soak.js';
import { turnGroup } from './turn.js';
import { read } from '../support/script.js';
import { runInNamespace, runInside } from './rxe/namespace.js';
import { vectorsGroup } from './vectors.js';
import { wordsFor } from './words.js';

const GROUPS: readonly Group[] = [
  vectorsGroup,
  codecGroup,
  captureGroup,
  packageGroup,
  bundlersGroup,
  firefoxGroup,
  turnGroup,
  nodesGroup,
  clusterGroup,
  diskErrorsGroup,
  shmemGroup,
  bridgeGroup,
];
/** Only when they are named: minutes, and more on a busy machine. */
const LONG_GROUPS: readonly Group[] = [
  bridgeRunsGroup,
  nodeTestsGroup,
  packagesGroup,
  failuresGroup,
  soakGroup,
];
/** With Linux guests. */
const GUEST_GROUPS: readonly GuestGroup[] = [
  rxeGroup,
  pingpongGroup,
  cmGroup,
  perftestGroup,
  layoutsGroup,
  persistenceGroup,
  rpmaGroup,
  nvmeGroup,
  nvmeAuthenticationGroup,
  rdsGroup,
  pyverbsGroup,
];

const report = new LineReport((line) => console.log(line));

const words = wordsFor([...GROUPS, ...LONG_GROUPS, ...GUEST_GROUPS].map(({ name }) => name));

async function main(): Promise<number> {
  const { names } = read(words);
  const isWanted = ({ name }: { name: string }): boolean =>
    names.length === 0 || names.includes(name);
  const long = LONG_GROUPS.filter(({ name }) => names.includes(name));
  for (const group of [...GROUPS.filter(isWanted), ...long]) {
    console.log(group.name);
    await runGroup(group, report);
  }
  const ready: string[] = [];
  for (const group of GUEST_GROUPS.filter(isWanted)) {
    if (await hasTools(group, report)) ready.push(group.name);
  }
  if (ready.length > 0) await runInNamespace(fileURLToPath(import.meta.url), ready, report);
  console.log(`${report.passed} passed, ${report.failed} failed`);
  return report.failed === 0 && report.passed > 0 ? 0 : 1;
}

const [mode, folder = '', ...inside] = process.argv.slice(2);
if (mode === '--inside') {
  const groups = GUEST_GROUPS.filter(({ name }) => inside.includes(name));
  await runInside(folder, groups, report);
} else {
  process.exitCode = await main();
}
