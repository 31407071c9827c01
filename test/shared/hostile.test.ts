/** A process that scribbles over all that is shared: the others neither trap nor hang. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  INBOX_ENTRY_SIZE,
  INBOX_PACKET_SIZE,
  InboxEntryLayout,
  InboxState,
  KEY_ENTRY_SIZE,
  KeyEntryLayout,
  LOCAL_ENDPOINT_SIZE,
  LOCAL_MESSAGE_SIZE,
  LOCAL_VALUE_SIZE,
} from '#build/abi.js';
import { RefusalError, VerbenaError, openDevice, type Context } from '../../host/index.js';
import { structAt } from '../../host/engine/struct.js';
import { localRequests, open, type Told } from '../support/local-sides.js';
import { Member, freshName } from '../support/member.js';
import { ALL_ACCESS } from '../support/pair.js';
import { Client } from '../support/traffic.js';
import { sample } from '../support/sample.js';
import { Random } from '../simulation/random.js';

/** Whatever a survivor may want to do; refusals are right, anything else is not. */
function exercise(context: Context): number {
  let refused = 0;
  const attempt = (work: () => void): void => {
    try {
      work();
    } catch (error) {
      if (!(error instanceof VerbenaError)) throw error;
      refused++;
    }
  };
  attempt(() => context.free(context.alloc(1000)));
  attempt(() => {
    const pd = context.allocPd();
    attempt(() => pd.allocShpd(1));
    attempt(() => {
      const mr = pd.regMr(context.alloc(64), ALL_ACCESS);
      mr.dereg();
    });
    const cq = context.createCq(4);
    attempt(() => pd.createQp({ sendCq: cq, recvCq: cq }).destroy());
    attempt(() => pd.dealloc());
    cq.destroy();
  });
  attempt(() => context.sharePd(new Uint8Array(32).fill(9), 5));
  attempt(() => void context.importPd(65537));
  attempt(() => void context.attach(80 * 2 ** 20, 64));
  context.device.shared!.members.look();
  context.device.shared!.processes();
  return refused;
}

/** How many times faster this thread's clock runs below. */
const HASTE = 50;

/**
 * Runs `work` with a fast clock in this thread. A table of random bytes often says that an engine
 * is in a call: each time `dereg` waits 5 s for that engine, which are 0.1 s here.
 */
async function inHaste(work: () => Promise<void>): Promise<void> {
  const now = performance.now.bind(performance);
  const start = now();
  performance.now = () => start + (now() - start) * HASTE;
  try {
    await work();
  } finally {
    performance.now = now;
  }
}

test('tables full of chance are refused, not believed', () => inHaste(fillTablesWithChance));

async function fillTablesWithChance(): Promise<void> {
  const options = { name: freshName(), address: '127.1.5.1', memoryBytes: 8 * 2 ** 20 };
  const survivor = await openDevice(options);
  const scribbler = await openDevice(options);
  const random = new Random(11);
  const { arena } = scribbler.device;
  const tables = structAt(arena.memory, ArenaLayout, arena.address);
  const { contextSlots, protectionDomains, attachments, keys, keyNotes, blocks, services } = tables;
  const { localEndpoints, localChannels } = tables;
  const starts = [contextSlots, protectionDomains, attachments, keys, keyNotes, blocks, services];
  starts.push(localEndpoints, localChannels);
  const { words } = arena.memory;
  let refused = 0;
  try {
    for (let round = 0; round < 60; round++) {
      // A few words at first, whole tables in the end.
      for (let count = 0; count < 4 ** (round / 10); count++) {
        const at = random.pick(starts) + 4 * random.below(4 ** random.below(8));
        words[at >> 2] = random.below(2 ** 32);
      }
      refused += exercise(survivor);
    }
    const state = structAt(arena.memory, ArenaLayout, arena.address).state >> 2;
    for (let word = 0; word < ArenaLayout.size >> 2; word++) {
      words[state + word] = random.below(2 ** 32);
      refused += exercise(survivor);
    }
    assert.ok(refused > 0);
    assert.is(survivor.failure, undefined, 'its engine goes on');
  } finally {
    await scribbler.close().catch((error: unknown) => assert.instance(error, RefusalError));
    await survivor.close().catch((error: unknown) => assert.instance(error, RefusalError));
  }
}

test('rings of random bytes have no effect on the other processes', async () => {
  const options = { name: freshName(), address: '127.1.5.3', memoryBytes: 8 * 2 ** 20 };
  const survivor = await Member.open(options);
  const scribbler = await openDevice(options);
  const client = new Client(await openDevice({ address: '127.1.5.4', port: 0 }));
  const random = new Random(12);
  try {
    const line = await client.connect(survivor);
    const { memory, address } = scribbler.device.arena;
    const tables = structAt(memory, ArenaLayout, address);
    const { inboxes, inboxEntries, contextSlots, steering } = tables;
    const entry = INBOX_ENTRY_SIZE + INBOX_PACKET_SIZE;
    const { mail, sleeping, wakePort } = ContextSlotLayout.fields;
    for (let round = 0; round < 40; round++) {
      for (let index = 0; index < inboxEntries; index++) {
        // Of the survivor, in slot 0: entries that say that they are there, of any length.
        const at = (inboxes + index * entry) >> 2;
        for (let word = 0; word < 64; word++) memory.words[at + word] = random.below(2 ** 32);
        memory.words[at + (InboxEntryLayout.fields.state[0] >> 2)] = InboxState.READY;
        memory.words[at + (InboxEntryLayout.fields.length[0] >> 2)] = random.pick([
          0,
          60,
          INBOX_PACKET_SIZE,
          INBOX_PACKET_SIZE + 1,
          0xffffffff,
        ]);
      }
      for (const [field] of [mail, sleeping, wakePort]) {
        memory.words[(contextSlots + field) >> 2] = random.below(2 ** 32);
      }
      const word = random.below(4 + options.memoryBytes / 2 ** 20);
      memory.words[(steering >> 2) + word] = random.below(2 ** 32);
      assert.equal(await client.write(line, 8), [], `round ${round}`);
    }
    const failure = await survivor.run(({ context }) => String(context.failure));
    assert.is(failure, 'undefined', 'its engine goes on');
  } finally {
    await client.context.close();
    survivor.kill();
    await survivor.ended;
    await scribbler.close().catch((error: unknown) => assert.instance(error, RefusalError));
  }
});

/** Completions of `count` requests of the process; 'late': none for 30 s. */
function exchange(member: Member, peer: Told, count: number): Promise<string[]> {
  return member.run(
    async ({ kept, pair, verbena }, { address, port, qpNum, addr, rkey }, count) => {
      const { qp, cq, mr } = kept;
      const at = { context: { local: verbena.Endpoint.parse(address, port) }, qp: { qpNum } };
      qp.modify({ qpState: verbena.QpState.RESET });
      const attributes = { timeout: 12, retryCnt: 3, rnrRetry: 3 };
      pair.connect(qp, at as never, 1, 1, { attributes });
      while (cq.poll(64).length > 0);
      const { RDMA_WRITE, SEND, SEND_WITH_IMM, RDMA_WRITE_WITH_IMM } = verbena.WrOpcode;
      const opcodes = [RDMA_WRITE, SEND, SEND_WITH_IMM, RDMA_WRITE_WITH_IMM];
      const sge = (length: number) => [{ addr: mr.addr, length, lkey: mr.lkey }];
      for (let wrId = 0; wrId < count; wrId++) qp.postRecv({ wrId, sgList: sge(1024) });
      const seen: string[] = [];
      for (let turn = 0; turn < count; turn++) {
        qp.postSend({
          wrId: 1000 + turn,
          opcode: opcodes[turn % 4]!,
          sendFlags: verbena.SendFlag.SIGNALED,
          sgList: sge([8, 100, 1000][turn % 3]!),
          rdma: { remoteAddr: addr, rkey },
        });
        // Eight at a time, as their peer and the third process go on meanwhile.
        while (turn % 8 === 7 && seen.length <= turn) {
          const got = await cq.wait(64, { timeout: 30_000 }).catch(() => []);
          if (got.length === 0) return [...seen, 'late'];
          for (const { wrId, status } of got) {
            if (wrId >= 1000) seen.push(verbena.WcStatusName[status]!);
          }
        }
      }
      return seen;
    },
    peer,
    count,
  );
}

/** All channels to a context (assembly/memory/local-channel.ts). */
function inboxBytes(contextsMax: number, localMessagesMax: number): number {
  const entry = LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE;
  return 64 + contextsMax * (128 + localMessagesMax * entry);
}

/** Random words in the endpoints and channels of a device, also where its members look first. */
function scribble(context: Context, random: Random, numbers: readonly number[]): void {
  const { memory, address } = context.device.arena;
  const arena = structAt(memory, ArenaLayout, address);
  const { localEndpoints, localEndpointsMax, contextsMax, localChannels } = arena;
  const { localMessagesMax, contextSlots } = arena;
  const entry = LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE;
  const inbox = inboxBytes(contextsMax, localMessagesMax);
  const { words } = memory;
  const channel = localChannels + random.below(2) * inbox + 64;
  const source = channel + random.below(2) * ((inbox - 64) / contextsMax);
  const message = source + 128 + entry * random.below(localMessagesMax);
  const { announced, sleeping } = ContextSlotLayout.fields;
  const slot = contextSlots + random.below(2) * CONTEXT_SLOT_SIZE;
  const number = random.pick(numbers);
  const index = (number >>> 16) * localEndpointsMax + (number & (localEndpointsMax - 1));
  const places = [
    localEndpoints + index * LOCAL_ENDPOINT_SIZE,
    channel - 64,
    source,
    source + 4,
    source + 64,
    message,
    message,
    slot + announced[0],
    slot + sleeping[0],
  ];
  const at = random.pick(places) >> 2;
  // Not the port in a slot: without it all requests go by packets.
  const near = at < localEndpoints >> 2 ? 0 : random.pick([0, random.below(8), random.below(48)]);
  const value = random.pick([random.below(2 ** 32), random.below(8), words[at + near]! + 1]);
  words[at + near] = value;
}

/**
 * Endpoints as they were published, and empty channels: otherwise all requests soon go by packets.
 * Between two rounds also for the members' next connections.
 */
class Repairer {
  readonly #words: Uint32Array;
  readonly #channels: readonly [number, number];
  readonly #endpoints: readonly { readonly at: number; readonly number: number; kept: number[] }[];

  constructor({ device }: Context, numbers: readonly number[]) {
    const { memory, address } = device.arena;
    const arena = structAt(memory, ArenaLayout, address);
    const { localEndpoints, localEndpointsMax, localChannels } = arena;
    this.#words = memory.words;
    const bytes = 2 * inboxBytes(arena.contextsMax, arena.localMessagesMax);
    this.#channels = [localChannels >> 2, (localChannels + bytes) >> 2];
    this.#endpoints = numbers.map((number) => {
      const index = (number >>> 16) * localEndpointsMax + (number & (localEndpointsMax - 1));
      return { at: (localEndpoints + index * LOCAL_ENDPOINT_SIZE) >> 2, number, kept: [] };
    });
  }

  /** The members are about to connect anew. */
  forget(): void {
    this.#words.fill(0, ...this.#channels);
    for (const endpoint of this.#endpoints) {
      endpoint.kept = [];
      this.#words.fill(0, endpoint.at, endpoint.at + LOCAL_ENDPOINT_SIZE / 4);
    }
  }

  /** Are both members connected? */
  find(): boolean {
    for (const endpoint of this.#endpoints) {
      const { at, number, kept } = endpoint;
      const words = [...this.#words.subarray(at, at + LOCAL_ENDPOINT_SIZE / 4)];
      if (kept.length === 0 && words[1] === number && words[0]! % 2 === 0) endpoint.kept = words;
    }
    return this.#endpoints.every(({ kept }) => kept.length > 0);
  }

  repair(): void {
    for (const { at, kept } of this.#endpoints) this.#words.set(kept, at);
  }
}

test('channels and endpoints of random bytes: every request of the others completes', async () => {
  const options = { name: freshName(), address: '127.1.5.5', memoryBytes: 32 * 2 ** 20 };
  const [a, b] = [await Member.open(options), await Member.open(options)];
  const scribbler = await openDevice(options);
  const random = new Random(13);
  try {
    const [one, other] = [await open(a), await open(b)];
    const numbers = [one.qpNum, other.qpNum];
    const repairer = new Repairer(scribbler, numbers);
    let completed = 0;
    for (let round = 0; round < sample(30, 300); round++) {
      repairer.forget();
      const both = Promise.all([exchange(a, other, 64), exchange(b, one, 64)]);
      let isOver = false;
      void both.finally(() => (isOver = true)).catch(() => undefined);
      while (!isOver) {
        if (repairer.find()) {
          for (let count = random.below(4); count > 0; count--) {
            scribble(scribbler, random, numbers);
          }
          if (random.below(2) === 0) repairer.repair();
        }
        await new Promise((resolve) => setImmediate(resolve));
      }
      for (const statuses of await both) {
        assert.is(statuses.length, 64);
        assert.not.ok(statuses.includes('late'), `round ${round}`);
        completed += statuses.filter((status) => status === 'SUCCESS').length;
      }
    }
    assert.ok(completed > 0);
    for (const member of [a, b]) {
      const failure = await member.run(({ context }) => String(context.failure));
      assert.is(failure, 'undefined', 'its engine goes on');
      assert.ok((await localRequests(member)) > 0, 'the local path was in use');
    }
  } finally {
    for (const member of [a, b]) member.kill();
    await Promise.all([a.ended, b.ended]);
    await scribbler.close().catch((error: unknown) => assert.instance(error, RefusalError));
  }
});

test('a key grants no access outside of shared memory, whatever its entry contains', async () => {
  const options = { name: freshName(), address: '127.1.5.2', memoryBytes: 8 * 2 ** 20 };
  const context = await openDevice(options);
  try {
    const { arena, engine } = context.device;
    const pd = context.allocPd();
    const memory = context.alloc(256);
    const mr = pd.regMr(memory, ALL_ACCESS);
    const { keys, keyMask, floor, limit } = structAt(arena.memory, ArenaLayout, arena.address);
    const index = (mr.rkey >>> 8) & keyMask;
    const entry = structAt(arena.memory, KeyEntryLayout, keys + index * KEY_ENTRY_SIZE);
    const look = (length: number): number => {
      const { address } = { address: memory.byteOffset };
      const need = AccessFlag.REMOTE_WRITE;
      return (
        arena.exports.lookupKey(engine.context, mr.rkey, pd.handle, 0, address, length, need) >>> 0
      );
    };
    assert.is(look(256), memory.byteOffset);
    entry.address = Number(limit) - 256;
    assert.is(look(256), Number(limit) - 256);
    entry.address = Number(limit) - 255;
    assert.is(look(256), 0);
    assert.is(look(255), Number(limit) - 255);
    // Below is the private memory of each process: its queues, its engine's state.
    entry.address = Number(floor);
    assert.is(look(256), Number(floor));
    entry.address = Number(floor) - 1;
    assert.is(look(256), 0);
    entry.address = 65536;
    assert.is(look(256), 0);
    entry.address = 0xffffffff;
    assert.is(look(256), 0);
    entry.length = 0xffffffff;
    assert.is(look(256), 0);
    entry.address = memory.byteOffset;
    entry.length = 256;
    mr.dereg();
  } finally {
    await context.close();
  }
});

test.run();
