/** The UDP link of Node keeps the contract without the optional package koffi. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../host/link/endpoint.js';
import { loadPosix } from '../../host/link/posix.js';
import { UdpLink } from '../../host/link/udp/udp.js';
import { WITHOUT_KOFFI } from '../support/without-koffi.js';
import { linkSuite } from './link.suite.js';

const INSIDE = 'VERBENA_TEST_WITHOUT_KOFFI';
const LIMIT_MILLIS = 100_000;

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
    [...WITHOUT_KOFFI, fileURLToPath(import.meta.url)],
    { env: { ...process.env, [INSIDE]: '1' }, timeout: LIMIT_MILLIS },
  );
  process.stdout.write(stdout);
  process.stderr.write(stderr);
  process.exitCode = status ?? 1;
}
