/** Attacks on the authentication of `verbena nvme-target`, as a process with a file of secrets. */
import { writeFile } from 'node:fs/promises';
import * as assert from 'uvu/assert';
import {
  RefusalError,
  connectNvme,
  makeDhchapSecret,
  openDevice,
  type Context,
} from '../../host/index.js';
import { authenticateHost } from '../../host/nvme/dhchap-host.js';
import {
  DhchapFailure,
  DhchapMessage,
  buildFailure,
  buildNegotiate,
  buildReply,
  readChallenge,
} from '../../host/nvme/dhchap-messages.js';
import { parseDhchapSecret } from '../../host/nvme/dhchap-secret.js';
import { rawHost, type RawHost } from '../support/nvme-authentication.js';
import { Workspace } from '../support/processes.js';
import type { Attack } from './attack.js';

const PORT = 4420;
const NQN = 'nqn.2026-01.dev.verbena:target';
const HOST_NQN = 'nqn.2026-01.test:honest';
const AUTHENTICATION_REQUIRED = 0x4191;
const secret = makeDhchapSecret();
const controllerSecret = makeDhchapSecret();

interface Scene {
  /** Of the target. */
  readonly address: string;
  readonly hostile: Context;
  /** Connects with the secret from another address, reads and writes a block. */
  honest(): Promise<void>;
  /** A queue of the attacker, in the name of the honest host. */
  queue(nqn?: string): Promise<RawHost>;
}

/** A target at `127.1.26.net`, with the attacker and an honest host behind it. */
function attack(
  net: number,
  words: readonly string[],
  run: (scene: Scene) => Promise<number>,
): () => Promise<number> {
  return async () => {
    const [address, from, other] = [0, 1, 2].map((add) => `127.1.26.${net + add}`) as [
      string,
      string,
      string,
    ];
    let count = 0;
    await Workspace.use(async (space) => {
      const file = space.path('secrets');
      await writeFile(file, `${HOST_NQN} ${secret} ${controllerSecret}\n`, { mode: 0o600 });
      const options = ['--ram', '1m', '--bind', address, ...words];
      const withFile = words.includes('--no-file') ? [] : ['--dhchap-file', file];
      const plain = options.filter((word) => word !== '--no-file');
      const target = space.start('nvme-target', ...plain, ...withFile);
      await target.printed('stdout', /serving memory/);
      await using hostile = await openDevice({ address: from, port: 0, memoryBytes: 2 ** 28 });
      await using context = await openDevice({ address: other, port: 0, memoryBytes: 2 ** 25 });
      const dhchap = { secret, controllerSecret };

      count = await run({
        address,
        hostile,
        async honest() {
          const options = { context, nqn: NQN, hostNqn: HOST_NQN, dhchap };
          const volume = await connectNvme(`${address}:${PORT}`, options);
          const memory = context.alloc(512);
          await volume.write(0, memory);
          await volume.read(0, memory);
          await volume.close();
        },
        queue: (nqn = HOST_NQN) => rawHost(hostile, nqn, { nqn: NQN, address }),
      });
    });
    return count;
  };
}

/** Fields of a REPLY with a random response. */
function guess(transaction: number, challenge?: Uint8Array): Uint8Array {
  const response = crypto.getRandomValues(new Uint8Array(32));
  const sequence = challenge ? 1 : 0;
  return buildReply({ transaction, sequence, response, challenge, value: new Uint8Array() });
}

async function fails(host: RawHost): Promise<void> {
  const message = await host.receive();
  assert.is((message as Uint8Array)[1], DhchapMessage.FAILURE1);
  await host.ended;
}

const NULL_GROUP = ['--dhchap-group', 'null'];

export const NVME_AUTHENTICATION_ATTACKS: readonly Attack[] = [
  {
    name: 'a host without the secret gets no command served by an NVMe target with secrets',
    position: 'any host',
    unit: 'commands',
    run: attack(10, NULL_GROUP, async ({ queue, honest }) => {
      let count = 0;
      for (let round = 0; round < 6; round++) {
        const host = await queue();
        await host.send(buildNegotiate(round));
        assert.ok((await host.receive()) instanceof Uint8Array);
        for (const name of ['PROPERTY_GET', 'PROPERTY_SET', 'IDENTIFY', 'SET_FEATURES'] as const) {
          assert.is((await host.ask(name, {})).status, AUTHENTICATION_REQUIRED, name);
          count++;
        }
        await host.send(guess(round));
        await fails(host);
        count += 4;
      }
      await honest();
      return count;
    }),
  },
  {
    name: 'a REPLY that was recorded from an honest host authenticates no other queue',
    position: 'any host',
    unit: 'commands',
    run: attack(20, NULL_GROUP, async ({ queue }) => {
      const recorded: Uint8Array[] = [];
      const honest = await queue();
      const transport = {
        send: async (message: Uint8Array) => {
          recorded.push(message.slice());
          assert.is(await honest.send(message), 'SUCCESS');
        },
        receive: async () => (await honest.receive()) as Uint8Array,
      };
      await authenticateHost(transport, {
        ...{ hostNqn: HOST_NQN, subNqn: NQN, controllerSecret: undefined },
        secret: parseDhchapSecret(secret, 'secret'),
      });
      // The same queue, authenticated again, and another one.
      for (const host of [honest, await queue()]) {
        await host.send(recorded[0]!);
        await host.receive();
        await host.send(recorded[1]!);
        await fails(host);
      }
      return 8;
    }),
  },
  {
    name: 'a host that is not in the file of secrets connects no queue',
    position: 'any host',
    unit: 'commands',
    run: attack(30, NULL_GROUP, async ({ queue }) => {
      const names = [
        'nqn.2026-01.test:other',
        `${HOST_NQN}2`,
        'nqn.2026-01.test:hones',
        '__proto__',
      ];
      for (const name of names) {
        const error = await queue(name).then(
          () => undefined,
          (reason: unknown) => reason,
        );
        assert.match(String(error), /CONNECT_INVALID/, name);
      }
      return names.length;
    }),
  },
  {
    name: 'a controller computes no response to its own challenge, or before the host has proved its secret',
    position: 'any host',
    unit: 'commands',
    run: attack(40, NULL_GROUP, async ({ queue }) => {
      const [one, other] = [await queue(), await queue()];
      await one.send(buildNegotiate(1));
      const { challenge } = readChallenge((await one.receive()) as Uint8Array);
      await other.send(buildNegotiate(2));
      await other.receive();
      // The challenge of one queue as the host's challenge on the other one, and on its own.
      await other.send(guess(2, challenge));
      await fails(other);
      await one.send(guess(1, challenge));
      await fails(one);
      return 8;
    }),
  },
  {
    name: 'a host with a secret connects no impostor that asks for no authentication',
    position: 'any host',
    unit: 'commands',
    run: attack(50, ['--no-file'], async ({ honest }) => {
      const error = await honest().then(
        () => undefined,
        (reason: unknown) => reason,
      );
      assert.instance(error, RefusalError);
      assert.match((error as Error).message, 'does not ask for authentication');
      return 1;
    }),
  },
  {
    name: 'failing authentications of one address with ffdhe8192 delay no host at another one',
    position: 'any host',
    unit: 'authentications',
    run: attack(60, ['--dhchap-group', 'ffdhe8192'], async ({ queue, honest }) => {
      let [count, refused, isOver] = [0, 0, false];
      const flood = (async () => {
        while (!isOver) {
          try {
            const host = await queue();
            await host.send(buildNegotiate(1));
            await host.receive();
            await host.send(buildFailure('FAILURE2', 1, DhchapFailure.FAILED));
            host.close();
            count++;
          } catch {
            refused++;
          }
          await new Promise((resolve) => setImmediate(resolve));
        }
      })();
      const began = performance.now();
      for (let round = 0; round < 5; round++) await honest();
      const seconds = (performance.now() - began) / 1000;
      isOver = true;
      await flood;
      assert.ok(seconds < 10, `five hosts took ${seconds.toFixed(1)} s`);
      assert.ok(refused > 0 && count <= 8 * (1 + Math.ceil(seconds / 10)), `${count} were served`);
      return count + refused;
    }),
  },
  {
    name: 'queues of one address that are not authenticated keep no host at another one away',
    position: 'any host',
    unit: 'queues',
    run: attack(70, NULL_GROUP, async ({ queue, honest }) => {
      const held: RawHost[] = [];
      for (let index = 0; index < 40; index++) {
        const host = await queue().catch(() => undefined);
        if (host) held.push(host);
      }
      assert.ok(held.length <= 16, `${held.length} queues without authentication`);
      const began = performance.now();
      await honest();
      const seconds = (performance.now() - began) / 1000;
      assert.ok(seconds < 5, `another host took ${seconds.toFixed(1)} s`);
      return 40;
    }),
  },
];
