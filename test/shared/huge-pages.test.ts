/** Devices on huge pages: a machine without mounts for them refuses in words. */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { hugePagesOf } from '../../host/device/sharing/huge-pages.js';
import { openDevice } from '../../host/index.js';
import { Member, freshName } from '../support/member.js';

/** Mounts of this machine with huge pages. Set by `VERBENA_HUGE_DIRECTORIES`, colons between. */
const DIRECTORIES = (process.env.VERBENA_HUGE_DIRECTORIES ?? '').split(':').filter(Boolean);
const MIB = 2 ** 20;

/** KiB of the mapping of a file that lie in huge pages (proc(5), smaps). */
function hugeKib(name: string): number {
  const mapping = readFileSync('/proc/self/smaps', 'utf8')
    .split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/)
    .find((part) => part.includes(`/verbena-${name}`));
  const counts = mapping?.matchAll(/(?:ShmemPmdMapped|\w+_Hugetlb):\s+(\d+) kB/g) ?? [];
  return [...counts].reduce((sum, [, kib]) => sum + Number(kib), 0);
}

test('a directory without huge pages is refused, with the reason and a remedy', async () => {
  const open = (directory: string): Promise<string> =>
    openDevice({ name: freshName(), port: 0, directory, hugePages: true }).then(
      (context) => context.close().then(() => 'opened'),
      (error: Error) => error.message,
    );
  assert.match(await open('/proc'), /neither hugetlbfs nor tmpfs.*directory.*EOPNOTSUPP/);
  const usual = hugePagesOf('/dev/shm');
  const expected = typeof usual === 'string' ? /huge=always.*EOPNOTSUPP/ : /opened/;
  assert.match(await open('/dev/shm'), expected);
  const odd = { name: freshName(), hugePages: 1 } as never;
  const message = await openDevice(odd).catch((error: Error) => error.message);
  assert.match(`${message}`, /hugePages/);
});

for (const directory of DIRECTORIES) {
  test(`processes share a device on ${directory}, in huge pages`, async () => {
    const name = freshName();
    const sizes = { memoryBytes: 21 * MIB + 5, localMemoryBytes: 17 * MIB };
    const context = await openDevice({ name, port: 0, directory, hugePages: true, ...sizes });
    try {
      const pd = context.allocPd();
      const bytes = pd.heap({ reserve: 8 * MIB }).alloc(4 * MIB, { common: true });
      bytes.fill(7);
      assert.ok(hugeKib(name) >= 4096, `${hugeKib(name)} KiB`);
      const member = await Member.open({ name, directory, hugePages: true });
      try {
        const byte = await member.run(
          ({ context }, handle, at) => context.importPd(handle).heap().bytes(at, 1)[0],
          pd.handle,
          bytes.byteOffset,
        );
        assert.is(byte, 7);
      } finally {
        await member.close();
      }
      const more = openDevice({
        name: freshName(),
        port: 0,
        directory,
        hugePages: true,
        memoryBytes: 3000 * MIB,
      });
      assert.match(await more.then(String, (error: Error) => error.message), /ENOSPC|ENOMEM/);
    } finally {
      await context.close();
    }
  });
}

test.run();
