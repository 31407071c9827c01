/** The library answers every function of rdma-core's libraries: one that it misses gets structs of
 * ours and crashes. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { LIBRARY, checkMachine } from '../../../host/bridge/launch.js';
import { RefusalError } from '../../../host/errors/errors.js';

const test = suite('unit/bridge/exports');

const LIBRARIES = ['libibverbs', 'librdmacm'] as const;
const FOLDER = '/usr/lib/x86_64-linux-gnu';
/** Private to providers of the kernel's devices, of which a program has none. */
const PROVIDERS = /^(__|_verbs_|verbs_|execute_ioctl|ibv_cmd_|ibv_read_ibdev_|ibv_register_driver)/;
/** Functions of their arguments alone: text, rates, structs of the kernel. */
const PURE = /(_str|^ibv_copy_.*_kern|^ibv_rate_to_.*|^m(bps|ult)_to_ibv_rate|_sysfs_(path|file))$/;
/** librdmacm's own rsockets run on the verbs and ids of the library (connection.c fill_private). */
const SOCKET_CALLS = [
  ...['socket', 'bind', 'listen', 'accept', 'connect', 'shutdown', 'close', 'fcntl', 'poll'],
  ...['recv', 'recvfrom', 'recvmsg', 'send', 'sendto', 'sendmsg', 'read', 'readv', 'write'],
  ...['writev', 'select', 'getpeername', 'getsockname', 'getsockopt', 'setsockopt'],
  ...['iomap', 'iounmap', 'iowrite'],
];
const RSOCKETS = new RegExp(`^r(${SOCKET_CALLS.join('|')})$`);

/** Names that a shared library exports. */
function exportsOf(file: string): Set<string> {
  const text = execFileSync('nm', ['-D', '--defined-only', file], { encoding: 'utf8' });
  const names = [...text.matchAll(/ [TBDW] ([^@\s]+)/g)].map((match) => match[1]!);
  return new Set(names);
}

test('each function of libibverbs and librdmacm that has to do with a device is replaced', async () => {
  if (!existsSync(LIBRARY)) {
    const error = await checkMachine().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.instance(error, RefusalError);
    return;
  }
  const ours = exportsOf(LIBRARY);
  for (const name of LIBRARIES) {
    const theirs = [...exportsOf(`${FOLDER}/${name}.so.1`)];
    assert.ok(theirs.length > 50, `${name}: ${theirs.length} exports`);
    const missing = theirs.filter(
      (one) => !ours.has(one) && ![PROVIDERS, PURE, RSOCKETS].some((known) => known.test(one)),
    );
    assert.equal(missing, [], `${name}: not replaced`);
  }
});

test('a library that is not built is refused with the packages to install', async () => {
  const error = await checkMachine('/nowhere/libverbena-bridge.so').then(
    () => undefined,
    (reason: unknown) => reason as RefusalError,
  );
  assert.instance(error, RefusalError);
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    assert.match(error!.message, /is for linux-x64/);
    return;
  }
  assert.is(error!.code, 'ENOENT');
  assert.match(error!.message, /libibverbs-dev and librdmacm-dev .*npm run build/);
});

test.run();
