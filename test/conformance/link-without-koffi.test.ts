/** The UDP link of Node keeps the contract without the optional package koffi. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../host/link/endpoint.js';
import { loadPosix } from '../../host/link/posix.js';
import { UdpLink } from '../../host/link/udp/udp.js';
import { linkSuite } from './link.suite.js';

const INSIDE = 'VERBENA_TEST_WITHOUT_KOFFI';
const LIMIT_MILLIS = 100_000;

/** A module hook that hides koffi. */
const HOOK = `
  import { register } from 'node:module';
  register('data:text/javascript,' + encodeURIComponent(\`
    export function resolve(name, context, next) {
      if (name !== 'koffi') return next(name, context);
      throw Object.assign(new Error('no koffi'), { code: 'ERR_MODULE_NOT_FOUND' });
    }\`));`;

if (process.env[INSIDE]) {
  const test = suite('link: without koffi');
  test('koffi is hidden', async () => assert.match((await loadPosix()).reason!, 'koffi'));
  test.run();
  linkSuite(
    'udp without koffi',
    () =>
      (at = Endpoint.parse('127.0.0.1', 0)) =>
        new UdpLink({ address: at.gid.toString(), port: at.port }),
  ).run();
} else {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [
      '--import',
      `data:text/javascript,${encodeURIComponent(HOOK)}`,
      fileURLToPath(import.meta.url),
    ],
    { env: { ...process.env, [INSIDE]: '1' }, timeout: LIMIT_MILLIS },
  );
  process.stdout.write(stdout);
  process.stderr.write(stderr);
  process.exitCode = status ?? 1;
}
