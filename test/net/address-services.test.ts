/** A host gets another address: what its services to another host do then. */
import { setTimeout as sleep } from 'node:timers/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { printed } from '../support/hook.js';
import type { Program } from '../support/processes.js';
import { moduleOf } from './loads.js';
import { Network, addressOf, missingForNetwork } from './network.js';
import type { ServiceKind, ServiceResult } from './services.js';
import { longOnly } from '../support/sample.js';

const test = suite('net/address-services');
const longTest = longOnly(test);
const LINK = { rate: 100, queue: 1000, rtt: 1 };
const [CLIENT, SERVER] = [1, 2];
const KINDS: readonly ServiceKind[] = ['rds', 'nvme', 'remote', 'remote-common'];
/** Before the change, and after the last service goes on. */
const MILLIS = 500;
/** Longer than everything takes on a busy machine. */
const SECONDS = 60;

if (missingForNetwork() === undefined) {
  const results = new Map<ServiceKind, ServiceResult>();

  /** The host `moves` gets another address while services are in use. */
  const run = async (kinds: readonly ServiceKind[], moves: number): Promise<void> => {
    const network = await Network.open(2);
    try {
      network.set(LINK);
      const start = (host: number, ...words: string[]): Program =>
        network.start(host, process.execPath, [moduleOf('services'), ...words]);
      const servers = kinds.map((kind) => start(SERVER, 'serve', kind, addressOf(SERVER)));
      await Promise.all(servers.map((server) => server.printed('stdout', /listening/)));
      const users = kinds.map((kind) =>
        start(CLIENT, 'use', kind, addressOf(SERVER), `${SECONDS}`),
      );
      await Promise.all(users.map((user) => user.printed('stderr', /begins/)));
      await sleep(MILLIS);
      network.changeAddress(moves);
      await Promise.all(users.map((user) => user.printed('stderr', /goes on/)));
      await sleep(MILLIS);
      for (const user of users) user.kill('SIGTERM');
      for (const [index, kind] of kinds.entries()) {
        const { stdout, stderr } = await users[index]!.ended;
        assert.ok(stdout.startsWith('{'), `${kind}: ${stderr}`);
        results.set(kind, JSON.parse(stdout) as ServiceResult);
      }
    } finally {
      await network.close();
    }
  };

  test.before(printed(() => run(KINDS, CLIENT)));

  const check = (kind: ServiceKind): ServiceResult => {
    const result = results.get(kind)!;
    const shown = `${kind}: ${JSON.stringify(result)}`;
    assert.is(result.wrong, 0, shown);
    assert.ok(result.longestGapSeconds < SECONDS / 2, shown);
    return result;
  };

  test('reliable datagrams go on, each once and in order, and no send fails', () => {
    assert.equal(check('rds').errors, []);
  });

  test('an NVMe volume reconnects from the new address, and no command fails', () => {
    assert.equal(check('nvme').errors, []);
  });

  test('memory by name reconnects from the new address over a device of its own', () => {
    check('remote');
  });

  test('memory by name reconnects from the new address over the common device', () => {
    check('remote-common');
  });

  longTest(
    'reliable datagrams go on when the host that only answers gets another address',
    async () => {
      await run(['rds'], SERVER);
      assert.equal(check('rds').errors, []);
    },
  );
} else {
  console.log(`not run: ${missingForNetwork()}`);
}

test.run();
