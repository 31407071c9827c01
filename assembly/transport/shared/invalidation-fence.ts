/**
 * The fence of an invalidation. LOCAL_INV, a received SEND_WITH_INV, and binds that replace a
 * binding invalidate a key at once. But the engine of another process or thread of the protection
 * domain may be in the middle of a copy that it began earlier. The completion guarantees that no
 * engine accesses the memory by that key again. So the completion is withheld until every other
 * engine of the domain has left the call that it was in (memory/arena.ts, "Reclamation"). If no
 * other engine is in a call, the fence passes at the first check.
 *
 * A waiting queue pair checks its fence in every turn, and at least once per millisecond. If an
 * engine never leaves its call (its process is stopped), the work request fails after
 * FENCE_MICROS_MAX. The host reclaims the slot of a dead engine, which ends the call.
 */
import { nextEpoch } from '../../memory/arena';
import { List, prepend, removeFrom, takeFirst } from '../../memory/list';
import { blockingSlot } from '../../region/protection-domain';
import { Context, schedule } from './context';
import { QueuePair } from './queue-pair';
import { nextTimerMicros } from './timer-wheel';

/** Consecutive checks before the queue pair waits: another engine's call lasts microseconds. */
const LOOKS: u32 = 64;
const INTERVAL_LEAST_MICROS: u32 = 20;
const INTERVAL_MOST_MICROS: u32 = 1000;
/** An engine that is this long in one call belongs to a stopped process. */
export const FENCE_MICROS_MAX: u32 = 5000000;

/** State of a fence. */
export enum Fence {
  PASSED = 0,
  PENDING = 1,
  /** Another engine did not leave its call within FENCE_MICROS_MAX. */
  EXPIRED = 2,
}

/** The epoch that the other engines of the domain must have reached. */
export function beginFence(context: Context): u32 {
  return nextEpoch(context.arena);
}

function holderOf(context: Context, qp: QueuePair, epoch: u32): u32 {
  return blockingSlot(context.arena, context.slotIndex, qp.pd, epoch);
}

/** Checks the fence LOOKS times. True: it has passed. False: the caller calls `awaitFence`. */
export function passesAtOnce(context: Context, qp: QueuePair, epoch: u32): bool {
  for (let look: u32 = 0; look < LOOKS; look++) {
    if (holderOf(context, qp, epoch) == 0) return true;
  }
  return false;
}

function fenceList(context: Context): List {
  return changetype<List>(changetype<usize>(context) + offsetof<Context>('fenceFirst'));
}

function fenceLink(qp: QueuePair): usize {
  return changetype<usize>(qp) + offsetof<QueuePair>('fenceLink');
}

/** Adds the queue pair to the list of those with a pending fence. */
export function awaitFence(context: Context, qp: QueuePair): void {
  if (context.fenceMicros == 0) context.fenceMicros = context.now + INTERVAL_LEAST_MICROS;
  prepend(fenceList(context), fenceLink(qp));
}

/** Checks a fence. `since`: low 32 bits of the start of the wait, in microseconds. A Fence. */
export function lookAtFence(context: Context, qp: QueuePair, epoch: u32, since: u32): u32 {
  const holder = holderOf(context, qp, epoch);
  if (holder == 0) return Fence.PASSED;
  context.fenceHolder = holder;
  const waited = <u32>context.now - since;
  if (waited >= FENCE_MICROS_MAX) return Fence.EXPIRED;
  const interval = max<u32>(waited / 2, INTERVAL_LEAST_MICROS);
  const next = context.now + min<u32>(interval, INTERVAL_MOST_MICROS);
  if (context.fenceMicros == 0 || next < context.fenceMicros) context.fenceMicros = next;
  awaitFence(context, qp);
  return Fence.PENDING;
}

/** Schedules every queue pair with a pending fence; one that still waits is listed again. */
export function scheduleFenced(context: Context): void {
  context.fenceMicros = 0;
  context.fenceHolder = 0;
  const list = fenceList(context);
  for (let link = takeFirst(list); link != 0; link = takeFirst(list)) {
    schedule(context, changetype<QueuePair>(link - offsetof<QueuePair>('fenceLink')));
  }
}

/**
 * Schedules the queue pairs with a pending fence if the check is due. Without a free send buffer
 * they are not served yet; a deadline in the past would fire again at once.
 */
export function scheduleDueFences(context: Context): void {
  // The same holds for the local path: its next call is the one that follows, or a free buffer's.
  context.localPaused = 0;
  if (context.fenceMicros != 0 && context.now >= context.fenceMicros) scheduleFenced(context);
}

/** When the first timer fires or fences are checked again, whichever is earlier; 0: never. */
export function earliestDeadline(context: Context): u64 {
  // Requests of the local path are left that exceed the work of one call.
  if (context.localPaused != 0) return context.now;
  const timer = nextTimerMicros(context.timers);
  const fence = context.fenceMicros;
  return fence != 0 && (timer == 0 || fence < timer) ? fence : timer;
}

/** Removes a queue pair from the list: it is reset or destroyed. */
export function forgetFence(context: Context, qp: QueuePair): void {
  qp.receiveFenced = 0;
  removeFrom(fenceList(context), fenceLink(qp));
  if (context.fenceFirst == 0) context.fenceMicros = 0;
}
