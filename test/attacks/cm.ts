/** Attacks on the connection manager, against real processes. */
import { setTimeout as sleep } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import {
  RejectReason,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  openDevice,
  type RdmaConnection,
} from '../../host/index.js';
import type * as ManagerModule from '../../host/cm/manager.js';
import { freshName, Member } from '../support/member.js';
import { Attacker, request } from './attacker.js';
import type { Attack } from './attack.js';

const SERVICE = 7471;
const STARTS = 12;

/** Starts a server like the README's first program; ends it after `work`. */
async function withServer(
  address: string,
  work: (server: Member) => Promise<number>,
): Promise<number> {
  const server = await Member.open({ name: freshName(), address });
  try {
    await server.run(
      async ({ verbena, context }, at, port) => {
        const listener = await verbena.listen({ address: at, port }, { context });
        void (async () => {
          for await (const connection of listener.connections()) {
            void connection.disconnected.then(() => connection.close());
          }
        })();
      },
      address,
      SERVICE,
    );
    return await work(server);
  } finally {
    server.kill();
    await server.ended;
  }
}

/** Runs `work` with a connected honest client. */
async function withClient(
  address: string,
  from: string,
  work: (connection: RdmaConnection) => Promise<void>,
): Promise<void> {
  await using context = await openDevice({ address: from, port: 0 });
  await work(await connect({ address, port: SERVICE }, { context }));
}

/** Milliseconds that another honest client needs to connect. */
async function connectMillis(address: string, from: string): Promise<number> {
  const began = performance.now();
  let millis = Infinity;
  await withClient(address, from, async () => {
    millis = performance.now() - began;
  });
  return millis;
}

/** A WRITE of 0 bytes, which needs no key: one packet in each direction. */
async function exchange({ qp, sendCq }: RdmaConnection): Promise<string> {
  const rdma = { remoteAddr: 0n, rkey: 0 };
  qp.postSend({ opcode: WrOpcode.RDMA_WRITE, sendFlags: SendFlag.SIGNALED, rdma });
  for (let turn = 0; turn < 500; turn++) {
    const [completion] = sendCq.poll(1);
    if (completion) return WcStatusName[completion.status]!;
    await sleep(10);
  }
  return 'no completion';
}

/** Ids and queue pair number of the server's only connection, from the server. */
function idsOf(server: Member): Promise<{ localId: number; remoteId: number; localQpn: number }> {
  return server.run(async ({ context, load }) => {
    const { Manager } = (await load('build/host/cm/manager.js')) as typeof ManagerModule;
    const [connection] = [...Manager.of(context).core.connections.values()];
    const { localId, remoteId, localQpn } = connection!;
    return { localId, remoteId, localQpn };
  });
}

/** CA GUIDs of a Verbena device at UDP port 4791, and of no device of ours. */
const [OWN_KIND, LINUX_KIND] = [(0x56455242n << 32n) | (4791n << 16n) | 0x1200n, 5n];

/** REQs of forged addresses, `each` per address. Returns the number of datagrams. */
async function forge(
  address: string,
  sources: number,
  each: number,
  kind: bigint,
): Promise<number> {
  for (let source = 0; source < sources; source++) {
    const attacker = await Attacker.open(`127.1.${44 + (source >> 7)}.${1 + (source & 127)}`);
    for (let id = 1; id <= each; id++) {
      const fields = { localCommId: id, localQpn: id, localCaGuid: kind };
      const req = request(attacker.address, { address, port: SERVICE }, fields);
      await attacker.send(attacker.message(address, 'REQ', req), address);
    }
    attacker.close();
  }
  // A busy machine may take a while to read all of them; the places stay taken for 10 s.
  await sleep(1000);
  return sources * each;
}

/** Milliseconds until a peer like Linux, which repeats its REQ each second, receives a REP. */
async function linuxReplyMillis(address: string, from: string): Promise<number> {
  // Below 0xc000: the answer goes to this port.
  const peer = await Attacker.open(from, 5555);
  const packet = peer.message(
    address,
    'REQ',
    request(from, { address, port: SERVICE }, { localCaGuid: LINUX_KIND }),
  );
  const began = performance.now();
  try {
    for (let turn = 0; turn < 500; turn++) {
      if (turn % 50 === 0) await peer.send(packet, address);
      await sleep(20);
      if (peer.heard.some(({ name }) => name === 'REP')) return performance.now() - began;
    }
    return Infinity;
  } finally {
    peer.close();
  }
}

export const CM_ATTACKS: readonly Attack[] = [
  {
    name: 'a process starts, listens and accepts while 20,000 messages a second arrive',
    position: 'any host',
    async run() {
      const [address, from] = ['127.1.12.1', '127.1.12.2'];
      const attacker = await Attacker.open(from);
      const stop = new AbortController();
      const packets = [...'REQ,REP,RTU,REJ,DREQ'.split(',')].map((name, index) => {
        const fields = { ...request(from, { address, port: SERVICE }), localCommId: index + 1 };
        return attacker.message(address, name as 'REQ', fields);
      });
      const make = (index: number): Buffer => packets[index % packets.length]!;
      const flood = attacker.flood(address, make, { perSecond: 20_000, stop: stop.signal });
      try {
        for (let start = 0; start < STARTS; start++) {
          await withServer(address, async (server) => {
            const failure = await server.run(({ context }) => String(context.failure));
            assert.is(failure, 'undefined', `start ${start}`);
            return 0;
          });
        }
      } finally {
        stop.abort();
        await flood;
        attacker.close();
      }
      return attacker.sent;
    },
  },
  {
    name: 'a flood of messages does not block the event loop, and clients connect after it',
    position: 'any host',
    run: () =>
      withServer('127.1.12.3', async (server) => {
        const address = '127.1.12.3';
        const attacker = await Attacker.open('127.1.12.4');
        const stop = new AbortController();
        const fields = request(attacker.address, { address, port: SERVICE + 1 });
        const packets = Array.from({ length: 64 }, (_, index) =>
          attacker.message(address, 'REQ', { ...fields, localCommId: index + 1 }),
        );
        const flood = attacker.flood(address, (index) => packets[index % 64], {
          perSecond: 50_000,
          stop: stop.signal,
        });
        const watched = server.run(async () => {
          let [longest, last] = [0, performance.now()];
          const timer = setInterval(() => {
            longest = Math.max(longest, performance.now() - last);
            last = performance.now();
          }, 5);
          await new Promise((resolve) => setTimeout(resolve, 4000));
          clearInterval(timer);
          return longest;
        });
        const longest = await watched;
        stop.abort();
        await flood;
        attacker.close();
        const connected = await connectMillis(address, '127.1.12.5');
        assert.ok(longest < 500, `the event loop was blocked for ${longest.toFixed(0)} ms`);
        assert.ok(connected < 5000, `connected after ${connected.toFixed(0)} ms`);
        return attacker.sent;
      }),
  },
  {
    name: 'a REQ without an RTU, whatever timeouts it names, delays no client',
    position: 'any host',
    run: () =>
      withServer('127.1.12.6', async () => {
        const address = '127.1.12.6';
        const attacker = await Attacker.open('127.1.12.7');
        for (const exponent of [0, 20, 31]) {
          await attacker.send(
            attacker.message(address, 'REQ', {
              ...request(attacker.address, { address, port: SERVICE }),
              localCommId: 0x100 + exponent,
              localQpn: 0x200 + exponent,
              localCmResponseTimeout: exponent,
              remoteCmResponseTimeout: exponent,
              maxCmRetries: exponent === 0 ? 0 : 15,
            }),
            address,
          );
        }
        const times = [];
        for (let client = 0; client < 3; client++) {
          times.push(await connectMillis(address, '127.1.12.8'));
          await new Promise((resolve) => setTimeout(resolve, 4000));
        }
        attacker.close();
        assert.ok(Math.max(...times) < 3000, `${times.map(Math.round)} ms`);
        return attacker.sent;
      }),
  },
  {
    name: 'a REQ with a forged source sends its victim at most three datagrams, to no port that it names',
    position: 'forged source',
    run: () =>
      withServer('127.1.12.9', async () => {
        const address = '127.1.12.9';
        const attacker = await Attacker.open('127.1.12.10', 5555);
        const named = await Attacker.open('127.1.12.10', 6666);
        const ownKind = (0x56455242n << 32n) | (6666n << 16n) | 0x1200n;
        await attacker.send(
          attacker.message(address, 'REQ', {
            ...request(attacker.address, { address, port: SERVICE }),
            localCaGuid: ownKind,
            localCmResponseTimeout: 0,
          }),
          address,
        );
        await new Promise((resolve) => setTimeout(resolve, 12_000));
        const [received, elsewhere] = [attacker.received, named.received];
        attacker.close();
        named.close();
        assert.is(elsewhere, 0, 'at the port named in the REQ');
        assert.ok(received > 0 && received <= 3, `${received} datagrams`);
        return attacker.sent;
      }),
  },
  {
    name: 'a REJ without one of the two ids ends no connection',
    position: 'forged source',
    run: () =>
      withServer('127.1.12.11', async (server) => {
        const [address, from] = ['127.1.12.11', '127.1.12.12'];
        let sent = 0;
        await withClient(address, from, async (connection) => {
          // The server's own id: more than an attacker knows.
          const { localId } = await idsOf(server);
          const attacker = await Attacker.open(from);
          for (const localCommId of [0, 1, 0xffffffff]) {
            for (const reason of [RejectReason.CONSUMER_DEFINED, RejectReason.TIMEOUT]) {
              const fields = { localCommId, remoteCommId: localId, reason, messageRejected: 2 };
              await attacker.send(attacker.message(address, 'REJ', fields), address);
            }
          }
          const over = connection.disconnected.then(() => 'over');
          const result = await Promise.race([over, sleep(1000, 'it lives')]);
          attacker.close();
          sent = attacker.sent;
          assert.is(result, 'it lives');
          assert.is((await idsOf(server)).localId, localId);
        });
        return sent;
      }),
  },
  {
    name: 'a DREQ without one of the two ids, or without the queue pair number, ends no connection',
    position: 'forged source',
    run: () =>
      withServer('127.1.12.13', async (server) => {
        const [address, from] = ['127.1.12.13', '127.1.12.14'];
        let sent = 0;
        await withClient(address, from, async (connection) => {
          const { localId, remoteId, localQpn } = await idsOf(server);
          const attacker = await Attacker.open(from);
          for (const [localCommId, remoteCommId, remoteQpn] of [
            [remoteId, localId, localQpn + 1],
            [remoteId, localId, 0],
            [remoteId + 1, localId, localQpn],
            [0, localId, localQpn],
            [remoteId, 0, localQpn],
          ] as const) {
            const fields = { localCommId, remoteCommId, remoteQpn };
            await attacker.send(attacker.message(address, 'DREQ', fields), address);
          }
          const over = connection.disconnected.then(() => 'over');
          const result = await Promise.race([over, sleep(1000, 'it lives')]);
          attacker.close();
          sent = attacker.sent;
          assert.is(result, 'it lives');
        });
        return sent;
      }),
  },
  {
    name: 'a REQ that names the queue pair of a live connection, guessed or known, does not end it',
    position: 'forged source',
    run: () =>
      withServer('127.1.12.15', async (server) => {
        const [address, from] = ['127.1.12.15', '127.1.12.16'];
        let sent = 0;
        await withClient(address, from, async (connection) => {
          const attacker = await Attacker.open(from, 5555);
          // All data of the client except its socket: its CA GUID, and every queue pair number.
          const [remoteGuid, remoteQpn] = await server.run(async ({ context, load }) => {
            const { Manager } = (await load('build/host/cm/manager.js')) as typeof ManagerModule;
            const [known] = [...Manager.of(context).core.connections.values()];
            return [String(known!.remoteGuid), known!.remoteQpn] as const;
          });
          assert.is(remoteQpn, connection.qp.qpNum);
          const named = (localQpn: number): Buffer =>
            attacker.message(address, 'REQ', {
              ...request(from, { address, port: SERVICE }),
              localCommId: 0x10000 + attacker.sent,
              localCaGuid: BigInt(remoteGuid),
              localQpn,
            });
          const over = connection.disconnected.then(() => 'over');
          const numbers = 1000;
          const first = remoteQpn - numbers / 2;
          const sweep = (index: number): Buffer | undefined =>
            index < numbers ? named(first + index) : undefined;
          await attacker.flood(address, sweep, { perSecond: 10_000 });
          // And the correct number for longer than a doubted connection is probed.
          for (let time = 0; time < 40; time++) {
            await attacker.send(named(remoteQpn), address);
            await sleep(100);
          }
          const stale = attacker.heard.filter(
            (message) => message.name === 'REJ' && message.reason === RejectReason.STALE_CONN,
          );
          assert.ok(stale.length > 0, 'the server received a REQ with the correct number');
          assert.is(await Promise.race([over, sleep(1000, 'it lives')]), 'it lives');
          assert.is(await exchange(connection), 'SUCCESS');
          attacker.close();
          sent = attacker.sent;
        });
        return sent;
      }),
  },
  {
    name: '1,000 REQs of one address leave room for the clients of others',
    position: 'any host',
    run: () =>
      withServer('127.1.12.17', async () => {
        const address = '127.1.12.17';
        const attacker = await Attacker.open('127.1.12.18');
        const ask = (index: number): Buffer | undefined =>
          index < 1000
            ? attacker.message(address, 'REQ', {
                ...request(attacker.address, { address, port: SERVICE }),
                localCommId: index + 1,
                localQpn: 0x1000 + index,
              })
            : undefined;
        await attacker.flood(address, ask, { perSecond: 2000 });
        const times = [];
        for (let client = 0; client < 3; client++) {
          times.push(await connectMillis(address, '127.1.12.19'));
        }
        attacker.close();
        assert.ok(Math.max(...times) < 3000, `${times.map(Math.round)} ms`);
        return attacker.sent;
      }),
  },
  {
    name: '1,200 REQs of 300 forged addresses leave queue pairs to peers of both kinds',
    position: 'forged source',
    run: () =>
      withServer('127.1.12.20', async () => {
        const address = '127.1.12.20';
        let sent = 0;
        for (const kind of [OWN_KIND, LINUX_KIND]) sent += await forge(address, 300, 4, kind);
        const own = await connectMillis(address, '127.1.12.21');
        const linux = await linuxReplyMillis(address, '127.1.12.22');
        assert.ok(own < 1000, `own kind: ${own.toFixed(0)} ms`);
        assert.ok(linux < 5000, `Linux: ${linux.toFixed(0)} ms`);
        return sent;
      }),
  },
  {
    name: 'forged addresses fill a backlog of 8 that is not accepted; a peer of our own kind connects',
    position: 'forged source',
    async run() {
      const [address, honest] = ['127.1.12.23', '127.1.12.24'];
      const server = await Member.open({ name: freshName(), address });
      try {
        await server.run(
          async ({ verbena, context }, at, port, from) => {
            const listener = await verbena.listen({ address: at, port }, { context, backlog: 8 });
            void (async () => {
              for await (const request of listener) {
                if (request.peer.address === from) void request.accept();
              }
            })();
          },
          address,
          SERVICE,
          honest,
        );
        let sent = 0;
        for (const kind of [OWN_KIND, LINUX_KIND]) sent += await forge(address, 50, 1, kind);
        const millis = await connectMillis(address, honest);
        assert.ok(millis < 1000, `${millis.toFixed(0)} ms`);
        return sent;
      } finally {
        server.kill();
        await server.ended;
      }
    },
  },
];
