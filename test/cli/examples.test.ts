/** The examples, each as two real processes over UDP. */
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { Workspace, freePort, type Ended } from '../support/processes.js';

async function play(name: string): Promise<{ server: Ended; client: Ended }> {
  const file = fileURLToPath(new URL(`build/host/examples/${name}.js`, root));
  let ends: { server: Ended; client: Ended } | undefined;
  await Workspace.use(async (workspace) => {
    const udpPort = `${await freePort()}`;
    const start = (role: string) =>
      workspace.startProcess(process.execPath, [file, role, '127.0.0.1:7471', udpPort]);
    const server = start('server');
    await server.printed('stdout', /listening/);
    const client = await start('client').ended;
    ends = { client, server: await server.ended };
  });
  for (const [side, { code, stderr }] of Object.entries(ends!)) {
    assert.is(code, 0, `${name} ${side}: ${stderr}`);
  }
  return ends!;
}

const SAID: readonly [name: string, client: RegExp, server: RegExp][] = [
  ['connect', /the server says: welcome/, /127\.0\.0\.1 asks[^]*disconnected/],
  ['send', /received: RDMA ANYWHERE/, /received: rdma anywhere/],
  ['write', /written: SUCCESS/, /found in memory: written from afar/],
  ['read', /read: to be read/, /listening/],
  ['matrix', /128 columns read, 128 written/, /16384 cells, 0 of them wrong/],
  ['halo', /50 steps: 2048 cells, 0 of them wrong/, /50 steps: 2048 cells, 0 of them wrong/],
  ['atomic', /before the last addition: 45/, /counted to 50/],
];

for (const [name, client, server] of SAID) {
  test(`${name}: both sides say what they should`, async () => {
    const ends = await play(name);
    assert.match(ends.client.stdout, client);
    assert.match(ends.server.stdout, server);
  });
}

test('all-to-all: four ranks have what the others had for them', async () => {
  const file = fileURLToPath(new URL('build/host/examples/all-to-all.js', root));
  await Workspace.use(async (workspace) => {
    const { code, stdout, stderr } = await workspace.startProcess(process.execPath, [file]).ended;
    assert.is(code, 0, stderr);
    for (let rank = 0; rank < 4; rank++) {
      assert.match(stdout, new RegExp(`rank ${rank}: 4000 bytes, 0 of them wrong`));
    }
  });
});

test.run();
