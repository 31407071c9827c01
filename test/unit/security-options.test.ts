/** Options about authentication are checked whatever their value is, and never ignored. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  NvmeRamStore,
  NvmeTarget,
  connect,
  connectNvme,
  listen,
  openDevice,
  rds,
  share,
  type Context,
} from '../../host/index.js';
import { putFile, receiveFiles } from '../../host/transfer/index.js';

const VALUES: readonly unknown[] = [null, false, 0, '', true, 7, 'key', [], {}];
const HERE = '127.0.83.1';
const REGION = { table: 64 };

type Call = (context: Context, value: never) => Promise<unknown>;

/** `argument`: the option that must be named. */
const CALLS: Readonly<Record<string, readonly [argument: string, call: Call]>> = {
  share: ['auth', (context, auth) => share(`rdma://${HERE}:1`, REGION, { context, auth })],
  'connect by URL': ['auth', (context, auth) => connect(`rdma://${HERE}:1`, { context, auth })],
  connect: ['auth', (context, auth) => connect(`${HERE}:1`, { context, auth })],
  listen: ['auth', (context, auth) => listen(`${HERE}:1`, { context, auth })],
  'RdsNode.of': ['auth', async (context, auth) => rds.RdsNode.of(context, { auth })],
  'NvmeTarget.open, auth': [
    'auth',
    (context, auth) =>
      NvmeTarget.open(context, { store: new NvmeRamStore(context, 4096), port: 1, auth }),
  ],
  'NvmeTarget.open, dhchap': [
    'dhchap',
    (context, dhchap) =>
      NvmeTarget.open(context, { store: new NvmeRamStore(context, 4096), port: 1, dhchap }),
  ],
  'connectNvme, auth': [
    'auth',
    (context, auth) => connectNvme(HERE, { context, nqn: 'nqn.2026-01.test:a', auth }),
  ],
  'connectNvme, dhchap': [
    'dhchap',
    (context, dhchap) => connectNvme(HERE, { context, nqn: 'nqn.2026-01.test:a', dhchap }),
  ],
  putFile: [
    'auth',
    (context, auth) =>
      putFile(context.local, new Blob(['x']), { context, auth, name: 'x', outageMillis: 1000 }),
  ],
  receiveFiles: [
    'auth',
    (context, auth) => receiveFiles({ context, auth, store: { open: () => undefined } as never }),
  ],
};

for (const [name, [argument, call]] of Object.entries(CALLS)) {
  test(`${name}: a value of ${argument} without keys is refused`, async () => {
    const context = await openDevice({ address: HERE, port: 0 });
    try {
      for (const value of VALUES) {
        const outcome = await call(context, value as never).then(
          () => 'accepted',
          (error: unknown) => error,
        );
        assert.instance(outcome, MisuseError, `${String(value)}: ${String(outcome)}`);
        assert.match((outcome as MisuseError).message, argument, String(value));
      }
    } finally {
      await context.close();
    }
  });
}

test.run();
