/** The connection manager of a device that several processes share: queue pair 1 belongs to all. */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { connect, listen, openDevice, QpState, type RdmaConnection } from '../../host/index.js';
import { freshName, withMembers, type Member, type MemberError } from '../support/member.js';
import { longOnly, sample } from '../support/sample.js';

const longTest = longOnly(test);

const options = (address: string) => ({ name: freshName(), address, memoryBytes: 16 * 2 ** 20 });

/** Accepts all requests, with the name of the process as private data. */
async function listenAt(
  member: Member,
  address: string,
  port: number,
  processName: string,
  psk = '',
): Promise<void> {
  await member.run(
    async ({ verbena, context }, at, service, name, key) => {
      const target = { address: at, port: service };
      const auth = key === '' ? {} : { auth: { psk: new TextEncoder().encode(key) } };
      const listener = await verbena.listen(target, { context, ...auth });
      void (async () => {
        for await (const request of listener) {
          // The RTU may get lost with a process that dies; later requests are accepted all the
          // same.
          const accepting = request.accept({ privateData: new TextEncoder().encode(name) });
          accepting.catch(() => undefined);
        }
      })();
    },
    address,
    port,
    processName,
    psk,
  );
}

async function greeting(address: string, port: number, psk = ''): Promise<string> {
  const context = await openDevice({ address: '127.0.0.1', port: 0 });
  const auth = psk === '' ? {} : { auth: { psk: new TextEncoder().encode(psk) } };
  try {
    const connection = await connect({ address, port }, { context, ...auth });
    return new TextDecoder().decode(connection.privateData).replace(/\0+$/, '');
  } finally {
    await context.close();
  }
}

test('a request goes to the process that listens, wherever it arrives', async () => {
  const address = '127.1.3.1';
  await withMembers(3, options(address), async (a, b, c) => {
    await listenAt(a!, address, 7001, 'A');
    await listenAt(b!, address, 7002, 'B');
    await listenAt(c!, address, 7003, 'C');
    for (const [port, processName] of [
      [7003, 'C'],
      [7001, 'A'],
      [7002, 'B'],
    ] as const) {
      assert.is(await greeting(address, port), processName);
    }
    let taken: unknown;
    await listenAt(c!, address, 7001, 'C').catch((error: unknown) => (taken = error));
    assert.is((taken as MemberError).code, 'EADDRINUSE');
    // The first one's socket gets unmatched packets: it may die, the others are found.
    a!.kill();
    await a!.ended;
    assert.is(await greeting(address, 7003), 'C');
    assert.is(await greeting(address, 7002), 'B');
    // And its service can be had again.
    for (let turn = 0; ; turn++) {
      try {
        await listenAt(c!, address, 7001, 'C');
        break;
      } catch (error) {
        if (turn > 100) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    assert.is(await greeting(address, 7001), 'C');
  });
});

longTest('an authentication request goes to the process that listens', async () => {
  const address = '127.1.3.9';
  const psk = 'sixteen bytes or more';
  await withMembers(2, options(address), async (...members) => {
    for (const [index, member] of members.entries()) {
      await listenAt(member!, address, 7001 + index, `${index}`, psk);
    }
    for (const index of members.keys()) {
      assert.is(await greeting(address, 7001 + index, psk), `${index}`);
    }
  });
});

test('a process connects out of a device that others share', async () => {
  const address = '127.1.3.2';
  const server = '127.1.3.3';
  await withMembers(1, options(server), async (s) => {
    await listenAt(s!, server, 7010, 'S');
    await withMembers(2, options(address), async (a, b) => {
      for (const member of [b!, a!, b!]) {
        const found = await member.run(async ({ verbena, context }, to) => {
          const connection = await verbena.connect({ address: to, port: 7010 }, { context });
          const said = new TextDecoder().decode(connection.privateData).replace(/\0+$/, '');
          await connection.close();
          return said;
        }, server);
        assert.is(found, 'S');
      }
    });
  });
});

/** The keep-alive ends a connection after 20 s; the DREQs of a survivor end it before. */
const DREQ_MILLIS_MAX = 15_000;

/** Milliseconds until the end of this connection is detected; Infinity: not in time. */
async function untilItEnds({ disconnected }: RdmaConnection): Promise<number> {
  const began = performance.now();
  const [timeout, stop] = [DREQ_MILLIS_MAX, new AbortController()];
  const late = sleep(timeout, Infinity, { signal: stop.signal }).catch(() => Infinity);
  const ended = disconnected.then(() => performance.now() - began);
  const result = await Promise.race([ended, late]);
  stop.abort();
  return result;
}

for (const role of (['server', 'client'] as const).slice(0, sample(1, 2))) {
  test(`survivors send the DREQs of a killed ${role}, and no other connection ends`, async () => {
    const address = role === 'server' ? '127.1.3.4' : '127.1.3.5';
    await withMembers(3, options(address), async (killed, survivor, bystander) => {
      await listenAt(survivor!, address, 7020, 'S');
      // This process has no connection manager, and may be the first to detect the dead process.
      await bystander!.run(({ context }) => void context.allocPd());
      const context = await openDevice({ address: '127.0.0.1', port: 0 });
      try {
        const connections: RdmaConnection[] = [];
        if (role === 'server') {
          await listenAt(killed!, address, 7021, 'K');
          for (let count = 0; count < 20; count++) {
            connections.push(await connect({ address, port: 7021 }, { context }));
          }
        } else {
          const listener = await listen({ address: '127.0.0.1', port: 7022 }, { context });
          const { port } = context.device.info.local;
          const connecting = killed!.run(async ({ verbena, context: from }, udpPort) => {
            const to = { address: '127.0.0.1', port: 7022 };
            for (let count = 0; count < 20; count++) {
              await verbena.connect(to, { context: from, udpPort });
            }
          }, port);
          while (connections.length < 20) {
            const request = await listener.getRequest();
            connections.push(await request!.accept());
          }
          await connecting;
        }
        const kept = await connect({ address, port: 7020 }, { context });
        killed!.kill();
        await killed!.ended;
        const times = await Promise.all(connections.map(untilItEnds));
        assert.ok(Math.max(...times) < DREQ_MILLIS_MAX, `${times}`);
        assert.is(kept.id.qp!.query().qpState, QpState.RTS, 'a connection of a survivor');
        assert.is(await greeting(address, 7020), 'S');
      } finally {
        await context.close();
      }
    });
  });
}

longTest('a survivor that sends the DREQs of a killed process may be killed itself', async () => {
  const address = '127.1.3.6';
  await withMembers(3, options(address), async (first, second, third) => {
    for (const [index, member] of [first!, second!, third!].entries()) {
      await listenAt(member, address, 7030 + index, String(index));
    }
    const context = await openDevice({ address: '127.0.0.1', port: 0 });
    try {
      const connections: RdmaConnection[] = [];
      for (const port of [7030, 7031, 7030, 7031]) {
        connections.push(await connect({ address, port }, { context }));
      }
      first!.kill();
      second!.kill();
      await Promise.all([first!.ended, second!.ended]);
      const times = await Promise.all(connections.map(untilItEnds));
      assert.ok(Math.max(...times) < DREQ_MILLIS_MAX, `${times}`);
    } finally {
      await context.close();
    }
  });
});

test.run();
