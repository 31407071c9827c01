/**
 * Attacks on memory by a connected peer that keeps to no rule but the packet formats: bounds,
 * rights, protection domains, keys of others, keys that it predicts (Rothenberger et al., ReDMArk,
 * USENIX Security 2021; Simpson et al., Securing RDMA, 2020). The victim is a server in a process
 * of its own. Its memory is a page between two pages of guard bytes; after each attack the guards
 * are intact and an honest client still writes.
 */
import type { AnyRequest } from '../support/any-request.js';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  openDevice,
  type Context,
  type RdmaConnection,
} from '../../host/index.js';
import type * as verbenaTypes from '../../host/index.js';
import type * as ManagerModule from '../../host/cm/manager.js';
import { freshName, Member } from '../support/member.js';
import type { Attack } from './attack.js';

const SERVICE = 7473;
const PAGE = 4096;
const GUARD = 0xa5;
const ALL = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ;

interface Key {
  readonly addr: bigint;
  readonly rkey: number;
}

class Victim {
  readonly #address: string;
  readonly #server: Member;

  private constructor(server: Member, address: string) {
    this.#server = server;
    this.#address = address;
  }

  static async start(address: string): Promise<Victim> {
    const server = await Member.open({ name: freshName(), address });
    await server.run(
      async ({ verbena, context, kept }, at, port, page, guard) => {
        kept.memory = context.alloc(3 * page).fill(guard);
        kept.other = context.allocPd();
        const listener = await verbena.listen({ address: at, port }, { context });
        void (async () => {
          const inbox = context.alloc(64);
          const prepare = (qp: verbenaTypes.QueuePair): void => {
            const { addr, lkey } = qp.pd.regMr(inbox, verbena.AccessFlag.LOCAL_WRITE);
            qp.postRecv({ wrId: 1, sgList: [{ addr, length: 64, lkey }] });
          };
          for await (const connection of listener.connections({}, prepare)) {
            kept.pd = connection.pd;
            void connection.disconnected.then(() => connection.close());
          }
        })();
      },
      address,
      SERVICE,
      PAGE,
      GUARD,
    );
    return new Victim(server, address);
  }

  /** Registers the page in the connections' domain, or in another one; the last one can be ended. */
  async register(access: number, domain: 'pd' | 'other' = 'pd'): Promise<Key> {
    const [addr, rkey] = await this.#server.run(
      async ({ kept }, rights, where, page) => {
        const own = where as 'pd' | 'other';
        while (!kept[own]) await new Promise((resolve) => setTimeout(resolve, 10));
        kept.mr = kept[own].regMr(kept.memory.subarray(page, 2 * page), rights);
        return [String(kept.mr.addr), kept.mr.rkey] as const;
      },
      access,
      domain,
      PAGE,
    );
    return { addr: BigInt(addr), rkey };
  }

  deregister(): Promise<void> {
    return this.#server.run(({ kept }) => void kept.mr.dereg());
  }

  /** Bytes of the page that differ from what it was filled with. */
  pageChanges(): Promise<number> {
    return this.#server.run(
      ({ kept }, page, guard) =>
        kept.memory.subarray(page, 2 * page).filter((byte) => byte !== guard).length,
      PAGE,
      GUARD,
    );
  }

  /** Free bytes of its arena, once it has that many connections. */
  bytesFree(connections: number): Promise<number> {
    return this.#server.run(async ({ context, load }, count) => {
      const { Manager } = (await load('build/host/cm/manager.js')) as typeof ManagerModule;
      const { core } = Manager.of(context);
      const end = performance.now() + 20_000;
      const live = (): number =>
        [...core.connections.values()].filter(({ state }) => state === 'ESTABLISHED').length;
      while (live() > count && performance.now() < end) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return context.device.arena.heap.bytesFree;
    }, connections);
  }

  connect(context: Context): Promise<RdmaConnection> {
    return connect({ address: this.#address, port: SERVICE }, { context });
  }

  /** The guards are intact, the device has not failed, and an honest client can write. */
  async judge(context: Context): Promise<void> {
    const [changed, failure] = await this.#server.run(
      ({ context: own, kept }, page, guard) => {
        const around = [kept.memory.subarray(0, page), kept.memory.subarray(2 * page)];
        const wrong = around.map((part) => part.filter((byte) => byte !== guard).length);
        return [wrong[0]! + wrong[1]!, String(own.failure)] as const;
      },
      PAGE,
      GUARD,
    );
    assert.is(failure, 'undefined');
    assert.is(changed, 0, 'guard bytes that changed');
    const honest = await this.connect(context);
    const { addr, rkey } = await this.register(ALL);
    const rdma = { remoteAddr: addr, rkey };
    assert.is(await post(honest, { opcode: WrOpcode.RDMA_WRITE, rdma }, 64), 'SUCCESS');
    await honest.close();
  }

  async end(): Promise<void> {
    this.#server.kill();
    await this.#server.ended;
  }
}

/** Posts a request with `length` bytes of the attacker's; the name of its completion's status. */
async function post(
  { qp, sendCq, context }: RdmaConnection,
  wr: Omit<AnyRequest, 'sgList' | 'sendFlags'>,
  length: number,
): Promise<string> {
  const mr = qp.pd.regMr(context.alloc(Math.max(length, 8)).fill(0x11), AccessFlag.LOCAL_WRITE);
  const sgList = length > 0 ? [{ addr: mr.addr, length, lkey: mr.lkey }] : [];
  qp.postSend({ ...wr, sendFlags: SendFlag.SIGNALED, sgList } as AnyRequest);
  for (let turn = 0; turn < 1000; turn++) {
    const [completion] = sendCq.poll(1);
    if (completion) return WcStatusName[completion.status]!;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return 'no completion';
}

interface Scene {
  readonly victim: Victim;
  readonly context: Context;
  readonly connection: RdmaConnection;
}

let places = 0;

/** Runs `work` with a victim and a connected attacker, then judges the victim. */
function against(work: (scene: Scene) => Promise<number>): () => Promise<number> {
  return async () => {
    const host = (places += 2);
    const victim = await Victim.start(`127.1.24.${host}`);
    const context = await openDevice({ address: `127.1.24.${host + 1}`, port: 0 });
    try {
      const connection = await victim.connect(context);
      const requests = await work({ victim, context, connection });
      await victim.judge(context);
      return requests;
    } finally {
      await context.close();
      await victim.end();
    }
  };
}

/** One request that the victim must refuse: status, and nothing of the page changes. */
function refused(
  access: number,
  status: string,
  request: (key: Key) => {
    readonly wr: Omit<AnyRequest, 'sgList' | 'sendFlags'>;
    length: number;
  },
): () => Promise<number> {
  return against(async ({ victim, connection }) => {
    const { wr, length } = request(await victim.register(access));
    assert.is(await post(connection, wr, length), status);
    assert.is(await victim.pageChanges(), 0, 'bytes of the page that changed');
    return 1;
  });
}

const DENIED = 'REM_ACCESS_ERR';

function write({ addr, rkey }: Key, offset: bigint): Omit<AnyRequest, 'sgList' | 'sendFlags'> {
  const remoteAddr = BigInt.asUintN(64, addr + offset);
  return { opcode: WrOpcode.RDMA_WRITE, rdma: { remoteAddr, rkey } };
}

function read({ addr, rkey }: Key, offset: bigint): Omit<AnyRequest, 'sgList' | 'sendFlags'> {
  return { opcode: WrOpcode.RDMA_READ, rdma: { remoteAddr: addr + offset, rkey } };
}

const BOUNDS: readonly Attack[] = [
  ['one byte behind it', (key: Key) => ({ wr: write(key, BigInt(PAGE - 63)), length: 64 })],
  ['one byte before it', (key: Key) => ({ wr: write(key, -1n), length: 64 })],
  [
    'an end beyond 2^64',
    (key: Key) => ({ wr: write({ ...key, addr: 2n ** 64n - 8n }, 0n), length: 64 }),
  ],
  ['more packets than fit', (key: Key) => ({ wr: write(key, 0n), length: 4 * PAGE })],
].map(([name, request]) => ({
  name: `a WRITE to a region with ${name as string} changes no byte outside the region`,
  position: 'peer',
  unit: 'requests',
  run: against(async ({ victim, connection }) => {
    const { wr, length } = (request as (key: Key) => { wr: never; length: number })(
      await victim.register(ALL),
    );
    assert.is(await post(connection, wr, length), DENIED);
    return 1;
  }),
}));

export const MEMORY_ATTACKS: readonly Attack[] = [
  ...BOUNDS,
  {
    name: 'a READ past the end of a region returns no byte behind it',
    position: 'peer',
    unit: 'requests',
    run: refused(ALL, DENIED, (key) => ({ wr: read(key, BigInt(PAGE - 63)), length: 64 })),
  },
  {
    name: 'a READ of a region without the right to read returns nothing',
    position: 'peer',
    unit: 'requests',
    run: refused(AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE, DENIED, (key) => ({
      wr: read(key, 0n),
      length: 64,
    })),
  },
  {
    name: 'a WRITE to a region without the right to write changes nothing',
    position: 'peer',
    unit: 'requests',
    run: refused(AccessFlag.REMOTE_READ, DENIED, (key) => ({ wr: write(key, 0n), length: 64 })),
  },
  {
    name: 'an atomic without the right to atomics changes nothing',
    position: 'peer',
    unit: 'requests',
    run: refused(ALL, DENIED, ({ addr, rkey }) => ({
      wr: {
        opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
        atomic: { remoteAddr: addr, rkey, compareAdd: 1n },
      },
      length: 8,
    })),
  },
  {
    name: 'an atomic at an odd address changes nothing',
    position: 'peer',
    unit: 'requests',
    run: refused(ALL | AccessFlag.REMOTE_ATOMIC, 'REM_INV_REQ_ERR', ({ addr, rkey }) => ({
      wr: {
        opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
        atomic: { remoteAddr: addr + 4n, rkey, compareAdd: 1n },
      },
      length: 8,
    })),
  },
  {
    name: 'a key of another protection domain opens nothing',
    position: 'peer',
    unit: 'requests',
    run: against(async ({ victim, connection }) => {
      const key = await victim.register(ALL, 'other');
      assert.is(await post(connection, write(key, 0n), 64), DENIED);
      assert.is(await victim.pageChanges(), 0);
      return 1;
    }),
  },
  {
    name: 'a key opens nothing after its region is deregistered',
    position: 'peer',
    unit: 'requests',
    run: against(async ({ victim, connection }) => {
      const key = await victim.register(ALL);
      await victim.deregister();
      assert.is(await post(connection, write(key, 0n), 64), DENIED);
      assert.is(await victim.pageChanges(), 0);
      return 1;
    }),
  },
  {
    name: 'a peer cannot invalidate a region that only its owner may invalidate',
    position: 'peer',
    unit: 'requests',
    run: against(async ({ victim, context, connection }) => {
      const key = await victim.register(ALL);
      const other = await victim.connect(context);
      const status = await post(
        connection,
        { opcode: WrOpcode.SEND_WITH_INV, invalidateRkey: key.rkey },
        8,
      );
      // A class J fault (IBA 9.9.6.3): the responder's queue pair ends without a NAK.
      assert.is(status, 'RETRY_EXC_ERR');
      assert.is(await post(other, write(key, 0n), 64), 'SUCCESS');
      return 1;
    }),
  },
  {
    name: 'of 100 guessed keys each costs the attacker its connection, and none opens a region',
    position: 'peer',
    unit: 'requests',
    run: against(async ({ victim, context }) => {
      const { addr, rkey } = await victim.register(ALL);
      const guesses = 100;
      for (let guess = 0; guess < guesses; guess++) {
        const guessed = (rkey + 1 + Math.floor(Math.random() * (2 ** 32 - 1))) >>> 0;
        const connection = await victim.connect(context);
        assert.is(await post(connection, write({ addr, rkey: guessed }, 0n), 8), DENIED);
        assert.is(await post(connection, write({ addr, rkey }, 0n), 8), 'WR_FLUSH_ERR');
        await connection.close();
      }
      assert.is(await victim.pageChanges(), 0);
      return guesses;
    }),
  },
  {
    name: 'keys that follow from 64 known ones by their differences open nothing',
    position: 'peer',
    unit: 'requests',
    run: against(async ({ victim, context }) => {
      const known: number[] = [];
      let addr = 0n;
      for (let count = 0; count < 64; count++) {
        const key = await victim.register(ALL);
        known.push(key.rkey);
        ({ addr } = key);
      }
      const secret = (await victim.register(ALL)).rkey;
      const last = known.at(-1)!;
      const steps = known.slice(1).map((key, at) => key - known[at]!);
      const guesses = new Set(
        [...steps, 1, -1, 0x100, -0x100, 0x101].map((step) => (last + step) >>> 0),
      );
      assert.not.ok(guesses.has(secret), 'the next key is among the guesses');
      let requests = 0;
      for (const rkey of [...guesses].slice(0, 20)) {
        if (known.includes(rkey)) continue;
        const connection = await victim.connect(context);
        assert.is(await post(connection, write({ addr, rkey }, 0n), 8), DENIED);
        await connection.close();
        requests++;
      }
      return requests;
    }),
  },
  {
    name: '200 connections that come and go leave the server what it had',
    position: 'peer',
    unit: 'connections',
    run: against(async ({ victim, context }) => {
      const rounds = 200;
      const comeAndGo = async (): Promise<void> => (await victim.connect(context)).close();
      await comeAndGo();
      const before = await victim.bytesFree(1);
      for (let round = 0; round < rounds; round++) await comeAndGo();
      assert.is(await victim.bytesFree(1), before, 'bytes of the arena that are free');
      return rounds;
    }),
  },
];
