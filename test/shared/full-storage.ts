/**
 * Heaps of processes on a file system that is full. `full-storage.test.ts` starts it in a namespace
 * of mounts; it prints what it saw as JSON.
 */
import { execFileSync } from 'node:child_process';
import { statfsSync } from 'node:fs';
import { Member, freshName } from '../support/member.js';

const MIB = 2 ** 20;
const STORAGE_BYTES = 48 * MIB;
const ALLOCATION_BYTES = 60_000;

export interface FullStorage {
  /** Allocations of the first heap until it was refused, and the refusal. */
  readonly first: number;
  readonly refusal: string;
  /** The message that other calls got on the full file system. */
  readonly otherHeap: string;
  readonly contextAlloc: string;
  readonly open: string;
  /** Blocks that 50 refused calls of `context.alloc` left: allocations afterwards, of 10. */
  readonly later: number;
  /** Allocations that the second heap got of 200 that the first one freed, all of zeros. */
  readonly moved: number;
  readonly areZero: boolean;
  /** Are the bytes that the first heap kept as they were? */
  readonly isIntact: boolean;
  /** Bytes that the file system has free after both heaps are empty and trimmed. */
  readonly freeBytes: number;
  /** Allocations of a heap after the processes with memory were killed. */
  readonly afterKill: number;
}

const [directory] = process.argv.slice(2);
if (!directory) throw new Error('usage: full-storage.js DIRECTORY');
execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${STORAGE_BYTES},mode=700`, 'tmpfs', directory]);
const name = freshName();
const sizes = { memoryBytes: 4 * MIB, memoryBytesMax: 512 * MIB };
const owner = await Member.open({ name, directory, port: 0, ...sizes });
const other = await Member.open({ name, directory });
const third = await Member.open({ name, directory });
await owner.run(({ context, kept }) => {
  kept.named = context.allocPd().publish('db', { shareKey: 1, outlive: true });
});
for (const one of [other, third]) {
  await one.run(async ({ context, kept }) => void (kept.named = await context.openDomain('db', 1)));
}
const free = (): number => statfsSync(directory).bfree * statfsSync(directory).bsize;

/** Allocates until a refusal; each allocation is filled with `value`. */
function fill(member: Member, heap: string, value: number, most = 10_000) {
  return member.run(
    ({ kept }, name, bytes, value, most) => {
      const heap = kept.named.pd.heap({ name, reserve: 128 * 2 ** 20 });
      let [count, areZero, refusal] = [0, true, ''];
      try {
        for (; count < most; count++) {
          const block = heap.alloc(bytes);
          areZero &&= block.every((byte) => byte === 0);
          block.fill(value);
          ((kept as unknown as { blocks?: Uint8Array[] }).blocks ??= []).push(block);
        }
      } catch (error) {
        refusal = (error as Error).message;
      }
      return { count, areZero, refusal };
    },
    heap,
    ALLOCATION_BYTES,
    value,
    most,
  );
}

/** Frees that many of a member's allocations, or all; are the others still `value`? */
function release(member: Member, heap: string, value: number, count: number): Promise<boolean> {
  return member.run(
    ({ kept }, name, value, count) => {
      const { blocks = [] } = kept as unknown as { blocks?: Uint8Array[] };
      const heap = kept.named.pd.heap({ name });
      for (const block of blocks.splice(0, count)) heap.free(block);
      return blocks.every((block) => block.every((byte) => byte === value));
    },
    heap,
    value,
    count,
  );
}

function refused(member: Member): Promise<string> {
  return member.run(({ context }) => {
    let message = 'nothing was refused';
    for (let turn = 0; turn < 50; turn++) {
      try {
        context.alloc(2 ** 20);
      } catch (error) {
        ({ message } = error as Error);
      }
    }
    return message;
  });
}

// A heap's own words need storage, too.
await fill(other, 'two', 2, 0);
const first = await fill(owner, 'one', 1);
const otherHeap = await fill(other, 'two', 2);
const contextAlloc = await refused(third);
const open = await third.run(
  ({ verbena }, directory) =>
    verbena.openDevice({ name: 'more', port: 0, memoryBytes: 4 * 2 ** 20, directory }).then(
      () => 'opened',
      (error: Error) => error.message,
    ),
  directory,
);
await release(owner, 'one', 1, 200);
const second = await fill(other, 'two', 2);
const isIntact = await release(owner, 'one', 1, 0);
await release(owner, 'one', 1, 10_000);
await release(other, 'two', 2, 10_000);
for (const [member, heap] of [
  [owner, 'one'],
  [other, 'two'],
] as const) {
  await member.run(({ kept }, name) => void kept.named.pd.heap({ name }).trim(), heap);
}
const freeBytes = free();
const later = await third.run(({ context }) => {
  const all = Array.from({ length: 10 }, () => context.alloc(2 ** 16));
  all.forEach((bytes) => context.free(bytes));
  return all.length;
});
await fill(owner, 'one', 1);
owner.kill();
other.kill();
await Promise.all([owner.ended, other.ended]);
const afterKill = await third.run(async ({ kept }) => {
  for (let turn = 0; turn < 100; turn++) {
    try {
      kept.named.pd.heap({ name: 'three', reserve: 2 ** 24 }).alloc(2 ** 23);
      return 1;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  return 0;
});
await third.close();
const seen: FullStorage = {
  first: first.count,
  refusal: first.refusal,
  otherHeap: otherHeap.refusal,
  contextAlloc,
  open,
  later,
  moved: second.count,
  areZero: second.areZero,
  isIntact,
  freeBytes,
  afterKill,
};
console.log(JSON.stringify(seen));
