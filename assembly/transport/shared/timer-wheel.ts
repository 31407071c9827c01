/**
 * A hierarchical timing wheel: arming, cancelling and finding due timers cost the same for one
 * timer and for ten thousand. Six levels of 64 slots; a tick of level 0 is 16 microseconds, a tick
 * of each level above is 64 ticks of the level below. So the longest IBA timeout (2.4 hours) fits.
 *
 * A timer never fires early. If its deadline moved later, the wheel puts it back when its old slot
 * is due. So re-arming on every acknowledgement is one store.
 */
const LEVELS: u32 = 6;
const SLOT_BITS: u32 = 6;
const SLOTS: u32 = 1 << SLOT_BITS;
/** log2 of a tick's microseconds. */
const TICK_BITS: u32 = 4;

/** Later than a busy event loop makes a timer. */
const OVERDUE_MICROS: u64 = 100_000;

/** Part of what it times: a doubly linked node. 32 bytes. */
@unmanaged
export class TimerNode {
  next: usize;
  previous: usize;
  /** Microseconds; 0: not armed. */
  deadline: u64;
  /** The tick it lies under in the wheel; valid while `slot` is not 0. */
  tick: u64;
  /** Its slot's number + 1; 0: not in the wheel. */
  slot: u32;
  reserved: u32;
}
export const TIMER_NODE_SIZE: u32 = 32;

/** The wheel: occupancy words, then slot heads. */
@unmanaged
export class TimerWheel {
  /** The first tick that has not been looked at. */
  tick: u64;
  count: u32;
  reserved: u32;
}
const OCCUPANCY: usize = 16;
const HEADS: usize = OCCUPANCY + <usize>LEVELS * 8;
export const TIMER_WHEEL_SIZE: u32 = 16 + LEVELS * 8 + LEVELS * SLOTS * 4;

function headAt(wheel: TimerWheel, slot: u32): usize {
  return changetype<usize>(wheel) + HEADS + <usize>(slot << 2);
}

function occupancyAt(wheel: TimerWheel, level: u32): usize {
  return changetype<usize>(wheel) + OCCUPANCY + <usize>(level << 3);
}

/** The tick at or after which this moment has passed. */
function tickAfter(micros: u64): u64 {
  return (micros + ((1 << TICK_BITS) - 1)) >> TICK_BITS;
}

function link(wheel: TimerWheel, node: TimerNode, tick: u64): void {
  const at = max<u64>(tick, wheel.tick);
  // The level is that of the highest digit in which the tick differs from the wheel's.
  const differs = at ^ wheel.tick;
  let level: u32 = differs == 0 ? 0 : (63 - <u32>clz<u64>(differs)) / SLOT_BITS;
  let where = at;
  if (level >= LEVELS) {
    // The highest digits differ: it lies beyond the horizon, or just behind a turn of the whole
    // wheel. At most the farthest slot; from there it is put back.
    level = LEVELS - 1;
    where = min<u64>(at, wheel.tick + ((<u64>(SLOTS - 1)) << (level * SLOT_BITS)));
  }
  const digit = (<u32>(where >> (level * SLOT_BITS))) & (SLOTS - 1);
  const slot = level * SLOTS + digit;
  const head = headAt(wheel, slot);
  const first = load<u32>(head);
  node.tick = at;
  node.slot = slot + 1;
  node.previous = 0;
  node.next = first;
  if (first != 0) changetype<TimerNode>(first).previous = changetype<usize>(node);
  store<u32>(head, <u32>changetype<usize>(node));
  const bits = occupancyAt(wheel, level);
  store<u64>(bits, load<u64>(bits) | ((<u64>1) << digit));
  wheel.count++;
}

function unlink(wheel: TimerWheel, node: TimerNode): void {
  const slot = node.slot - 1;
  const head = headAt(wheel, slot);
  if (node.previous != 0) changetype<TimerNode>(node.previous).next = node.next;
  else store<u32>(head, <u32>node.next);
  if (node.next != 0) changetype<TimerNode>(node.next).previous = node.previous;
  if (load<u32>(head) == 0) {
    const bits = occupancyAt(wheel, slot / SLOTS);
    store<u64>(bits, load<u64>(bits) & ~((<u64>1) << (slot & (SLOTS - 1))));
  }
  node.slot = 0;
  wheel.count--;
}

export function initTimers(wheel: TimerWheel, now: u64): void {
  memory.fill(changetype<usize>(wheel), 0, TIMER_WHEEL_SIZE);
  wheel.tick = now >> TICK_BITS;
}

/** Due `delay` microseconds from `now`, and not before. */
export function armTimer(wheel: TimerWheel, node: TimerNode, now: u64, delay: u64): void {
  const deadline = now + max<u64>(delay, 1);
  node.deadline = deadline;
  const tick = tickAfter(deadline);
  if (node.slot != 0) {
    // Later than where it lies: it is put back when it comes up. Earlier: move it.
    if (tick >= node.tick) return;
    unlink(wheel, node);
  }
  link(wheel, node, tick);
}

/**
 * Never fires. It stays where it lies until its slot comes up: a timer that is armed and cancelled
 * for every packet touches its neighbours in the wheel not once.
 */
export function cancelTimer(node: TimerNode): void {
  node.deadline = 0;
}

/** Cancels a timer and removes its node from the wheel: its memory will be reused. */
export function removeTimer(wheel: TimerWheel, node: TimerNode): void {
  node.deadline = 0;
  if (node.slot != 0) unlink(wheel, node);
}

/**
 * The next moment at which `dueTimer` may have something to do, in microseconds; 0: never. It may
 * be early: for a timer that was cancelled, or armed anew.
 */
export function nextTimerMicros(wheel: TimerWheel): u64 {
  if (wheel.count == 0) return 0;
  for (let level: u32 = 0; level < LEVELS; level++) {
    const bits = load<u64>(occupancyAt(wheel, level));
    if (bits == 0) continue;
    const shift = level * SLOT_BITS;
    const current = (<u32>(wheel.tick >> shift)) & (SLOTS - 1);
    const ahead = <u32>ctz<u64>(rotr<u64>(bits, <u64>current));
    const digit = (wheel.tick >> shift) + <u64>ahead;
    return max<u64>(digit << shift, wheel.tick) << TICK_BITS;
  }
  return 0;
}

/** Should the timer have fired more than OVERDUE_MICROS ago? Then this process stood still. */
export function isOverdue(node: TimerNode, now: u64): bool {
  return node.deadline != 0 && now > node.deadline + OVERDUE_MICROS;
}

/**
 * Disarms and returns one timer whose deadline has passed; null: no timer is due. Call it until it
 * returns null.
 */
export function dueTimer(wheel: TimerWheel, now: u64): TimerNode | null {
  const target = now >> TICK_BITS;
  while (wheel.count != 0) {
    const tick = nextTimerMicros(wheel) >> TICK_BITS;
    if (tick > target) break;
    wheel.tick = tick;
    const node = takeAt(wheel, now);
    if (node != null) return node;
  }
  // Nothing lies before `now`: the wheel may move there.
  if (target > wheel.tick) {
    wheel.tick = target;
    dealOut(wheel, 1);
  }
  return null;
}

/** Takes the nodes under the wheel's tick: one that is due is returned, others are put back. */
function takeAt(wheel: TimerWheel, now: u64): TimerNode | null {
  dealOut(wheel, 1);
  const head = headAt(wheel, (<u32>wheel.tick) & (SLOTS - 1));
  while (load<u32>(head) != 0) {
    const node = changetype<TimerNode>(<usize>load<u32>(head));
    unlink(wheel, node);
    if (node.deadline == 0) continue;
    if (node.deadline <= now) {
      node.deadline = 0;
      return node;
    }
    // Its deadline moved on since it was put here.
    link(wheel, node, max<u64>(tickAfter(node.deadline), wheel.tick + 1));
  }
  return null;
}

/** Slots of upper levels that the wheel's tick has entered hold timers of lower levels now. */
function dealOut(wheel: TimerWheel, fromLevel: u32): void {
  for (let level = fromLevel; level < LEVELS; level++) {
    const digit = (<u32>(wheel.tick >> (level * SLOT_BITS))) & (SLOTS - 1);
    let node = <usize>load<u32>(headAt(wheel, level * SLOTS + digit));
    while (node != 0) {
      const timer = changetype<TimerNode>(node);
      const next = timer.next;
      unlink(wheel, timer);
      link(wheel, timer, timer.tick);
      node = next;
    }
  }
}
