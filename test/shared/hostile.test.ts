/** A process that scribbles over all that is shared: the others neither trap nor hang. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  ArenaLayout,
  ContextSlotLayout,
  INBOX_ENTRY_SIZE,
  INBOX_PACKET_SIZE,
  InboxEntryLayout,
  InboxState,
  KEY_ENTRY_SIZE,
  KeyEntryLayout,
} from '#build/abi.js';
import { RefusalError, VerbenaError, openDevice, type Context } from '../../host/index.js';
import { structAt } from '../../host/engine/struct.js';
import { Member, freshName } from '../support/member.js';
import { ALL_ACCESS } from '../support/pair.js';
import { Client } from '../support/traffic.js';
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
  const starts = [contextSlots, protectionDomains, attachments, keys, keyNotes, blocks, services];
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
