/** Options of `openDevice`. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { openDevice } from '../../../host/index.js';
import { MisuseError } from '../../../host/errors/errors.js';
import { loadPosix } from '../../../host/link/posix.js';
import type { UdpOpenOptions } from '../../../host/verbs/open-device.js';

const test = suite('openDevice');
const { posix } = await loadPosix();
const WAYS = posix ? (['thread', 'poll', 'inline'] as const) : (['inline'] as const);
const BYTES = 65536;

for (const progress of WAYS) {
  test(`${progress}: socket buffers are as large as asked for`, async () => {
    const open = (more: UdpOpenOptions) => openDevice({ port: 0, progress, ...more });
    const small = await open({ socketBufferBytes: BYTES });
    const large = await open({});
    const [granted, usual] = [small, large].map(({ device }) => device.info.receiveBufferBytes);
    await small.close();
    await large.close();
    // Linux reports twice the requested size.
    assert.ok(granted === BYTES || granted === 2 * BYTES, `${granted}`);
    assert.ok(usual! > granted, `${usual}`);
    try {
      const context = await open({ socketBufferBytes: 0 });
      await context.close();
      assert.unreachable('no buffer has this size');
    } catch (error) {
      assert.instance(error, MisuseError);
      assert.is((error as MisuseError).argument, 'socketBufferBytes');
    }
  });
}

test.run();
