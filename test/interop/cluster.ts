/**
 * `node:cluster`: the suites of links, files, nodes of reliable datagrams and `verbena/dgram` pass
 * inside a worker as they do alone. There a socket of `verbena/dgram` has RDP if it is exclusive.
 */
import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { judge } from '../support/judge.js';
import { root } from '../support/paths.js';
import { runToEnd } from '../support/run-to-end.js';
import type { Group } from './group.js';

const FILE_SECONDS_MAX = 180;
const PRIMARY = fileURLToPath(new URL('build/test/interop/cluster/primary.js', root));
const built = fileURLToPath(new URL('build/test/', root));

/** Suites that bind, listen, lock or map. */
const WANTED = [
  /^unit\/(cm|device|dgram|pmem|rds|rpma)\//,
  /^unit\/link\/(udp|connections|data-channel)/,
  /^conformance\/link/,
  /^shared\/(coming|connections|domains|files|rds|steering)/,
];

/** In a worker a test's sockets without `exclusive` belong to the primary; ours never do. */
const OWN_LISTENS_NONE = /^unit\/(cm|device|rds|rpma)\/|^shared\//;

async function runInWorker(file: string): Promise<void> {
  const env = { ...process.env, FORCE_COLOR: '0' };
  const words = [PRIMARY, `${built}${file}.test.js`];
  const ran = await runToEnd(words, FILE_SECONDS_MAX, { env });
  const { failed, complaint, output } = judge(file, ran, FILE_SECONDS_MAX);
  if (failed > 0) throw new Error(`${complaint ?? `${failed} failed`}\n${output}`);
  const [, listens] = /^primary: (\d+) listens/m.exec(output) ?? [];
  if (listens === undefined || (OWN_LISTENS_NONE.test(file) && listens !== '0')) {
    throw new Error(`the primary listened ${listens} times\n${output}`);
  }
}

export const clusterGroup: Group = {
  name: 'cluster',
  tools: [],
  async run(report) {
    const ending = '.test.js';
    const files = readdirSync(built, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith(ending) && WANTED.some((each) => each.test(name)))
      .map((name) => name.slice(0, -ending.length));
    for (const file of files.sort()) {
      await report.check(`${file} in a worker`, () => runInWorker(file));
    }
  },
};
