/**
 * An owner of a hunt: grants the target access to memory, waits until the target writes into it,
 * revokes the access, reuses the memory at once, and compares every byte.
 */
import type { Context, ProtectionDomain } from '../../host/index.js';
import { Random } from '../simulation/random.js';
import { Pair } from './mail.js';
import { BUFFER_BYTES, INTRUDER } from './target.js';
import { Expired, Receiver, WAYS, execute, makeExecutor, type Tools } from './ways.js';

/** Findings of an owner since its last report. */
export interface Found {
  /** Rounds of each way in which the target wrote until the end, and every byte was correct. */
  readonly verified: { [way: string]: number };
  /** Rounds in which the target never wrote: they prove nothing. */
  quiet: number;
  /** Fences that expired because a process was stopped for long. */
  expired: number;
  readonly wrong: string[];
}

/** The owner's own pattern. */
const CANARY = 0x5a;
const FRESH = 0x11;
/** Limit of the wait for the target's first byte. */
const FIRST_MILLIS = 30;
/** Time from the reuse of the memory to the comparison. */
const USE_MILLIS = 0.4;
const TELL_MILLIS = 250;
const BUFFERS = 4;

export interface OwnerTask {
  readonly mail: Uint8Array;
  readonly index: number;
  readonly seed: number;
}

/** Works until `stopped` returns true; passes its findings to `tell` periodically. */
export async function runOwner(
  context: Context,
  pd: ProtectionDomain,
  { mail, index, seed }: OwnerTask,
  tell: (found: Found) => void,
  stopped: () => boolean,
): Promise<void> {
  const random = new Random(seed);
  const pair = new Pair(mail, index);
  const names = Object.keys(WAYS);
  const buffers = Array.from({ length: BUFFERS }, () => context.alloc(BUFFER_BYTES));
  const { qp, cq } = makeExecutor(context, pd);
  const tools: Tools = {
    context,
    pd,
    pair,
    qp,
    cq,
    execute: (request) => execute(qp, cq, request),
    receiver: new Receiver(context, pd, pair),
    spare: context.alloc(BUFFER_BYTES),
  };
  // The same queue pair binds windows; it is in RTS from now on.
  join(tools);
  const canary = Buffer.alloc(BUFFER_BYTES, CANARY);
  let found: Found = { verified: {}, quiet: 0, expired: 0, wrong: [] };
  let told = performance.now();
  for (let round = 0; !stopped(); round++) {
    const way = names[random.below(names.length)]!;
    const buffer = buffers[random.below(BUFFERS)]!;
    buffer.fill(FRESH);
    const opened = WAYS[way]!(tools, buffer);
    if (!opened) continue;
    pair.open(opened.key, opened.address, buffer.length);
    const isHot = await firstByte(buffer);
    if (isHot) spin(random.below(400) / 1000);
    try {
      await opened.close();
      // Access is revoked: from now on the memory is a buffer with another purpose.
      buffer.fill(CANARY);
      spin(USE_MILLIS);
      if (!isHot) found.quiet++;
      else if (canary.equals(buffer)) found.verified[way] = (found.verified[way] ?? 0) + 1;
      else found.wrong.push(`${way}, round ${round}: ${describe(buffer)}`);
    } catch (error) {
      if (!(error instanceof Expired) && !isBusy(error)) throw error;
      found.expired++;
    }
    await untilDone(opened.tidy);
    if (performance.now() - told > TELL_MILLIS) {
      tell(found);
      found = { verified: {}, quiet: 0, expired: 0, wrong: [] };
      told = performance.now();
      // Members check for dead processes in turns of the event loop.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  pair.open(0, 0n, 0);
  tell(found);
}

function join({ execute: run, context, pd }: Tools): void {
  const memory = context.alloc(64);
  const mr = pd.regMr(memory, 1, { invalidatable: true });
  run({ opcode: 7, invalidateRkey: mr.rkey });
  mr.dereg();
  context.free(memory);
}

/** The verb failed because a process is stopped for long; access is not revoked yet. */
function isBusy(error: unknown): boolean {
  return (error as { code?: string }).code === 'EBUSY';
}

/** Releases the objects of the round; a stopped process may delay this for a while. */
async function untilDone(tidy: () => void): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      tidy();
      return;
    } catch (error) {
      if (!isBusy(error) || attempt === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function firstByte(buffer: Uint8Array): Promise<boolean> {
  const end = performance.now() + FIRST_MILLIS;
  while (performance.now() < end) {
    if (buffer[0] === INTRUDER) return true;
    await new Promise((resolve) => setImmediate(resolve));
  }
  return false;
}

function spin(millis: number): void {
  for (const end = performance.now() + millis; performance.now() < end;);
}

function describe(buffer: Uint8Array): string {
  const first = buffer.findIndex((byte) => byte !== CANARY);
  let count = 0;
  for (const byte of buffer) if (byte !== CANARY) count++;
  return `${count} bytes were overwritten, from byte ${first} on, with 0x${buffer[first]!.toString(16)}`;
}
