/**
 * Checks of shared/timer-wheel.ts against a model that keeps nothing but each timer's deadline. The
 * operations come from a fixed pseudo-random sequence; delays and steps of the clock are spread
 * over all magnitudes, from a microsecond to three hours.
 */
import {
  TIMER_NODE_SIZE,
  TIMER_WHEEL_SIZE,
  TimerNode,
  TimerWheel,
  armTimer,
  cancelTimer,
  dueTimer,
  initTimers,
  nextTimerMicros,
  removeTimer,
} from '../transport/shared/timer-wheel';
import { Random } from './arena';
import { FREE } from './memory';
import { begin, end, same } from './tap';

const TIMERS: u32 = 97;
const NODES: usize = FREE;
/** The model: one u64 per timer, 0 when it is not armed. */
const DEADLINES: usize = NODES + <usize>(TIMERS * TIMER_NODE_SIZE);
const WHEEL: usize = (DEADLINES + <usize>(TIMERS * 8) + 63) & ~63;
/** The wheel's tick: a deadline that has passed by that much has to have fired. */
const GRANULARITY: u64 = 16;
/** Microseconds of a turn of the whole wheel: 64^6 ticks. */
const TURN: u64 = 1 << 40;
const THREE_HOURS: u64 = 3 * 3600 * 1000000;

export function checkTimers(): void {
  const magnitudes: StaticArray<u64> = [100, 10000, 1000000, 60000000, THREE_HOURS];
  for (let i = 0; i < magnitudes.length; i++) {
    begin(`timers of up to ${magnitudes[i]} microseconds fire when they are due`);
    for (let seed: u32 = 1; seed <= 4; seed++) runModel(seed, magnitudes[i]);
    end();
  }
  checkRearming();
  checkWakeUp();
  checkSleeper();
  checkFar();
  checkRemoval();
}

function wheel(): TimerWheel {
  return changetype<TimerWheel>(WHEEL);
}

function nodeAt(index: u32): TimerNode {
  return changetype<TimerNode>(NODES + <usize>(index * TIMER_NODE_SIZE));
}

function deadlineOf(index: u32): u64 {
  return load<u64>(DEADLINES + <usize>(index << 3));
}

function setDeadline(index: u32, deadline: u64): void {
  store<u64>(DEADLINES + <usize>(index << 3), deadline);
}

function start(now: u64): void {
  memory.fill(NODES, 0, WHEEL - NODES + TIMER_WHEEL_SIZE);
  initTimers(wheel(), now);
}

/** 1 .. limit, every power of two as likely as any other. */
function magnitude(random: Random, limit: u64): u64 {
  const bits = 64 - <u32>clz<u64>(limit);
  const value = random.next() >> (63 - <u64>random.below(bits));
  return (value % limit) + 1;
}

function earliest(): u64 {
  let first: u64 = 0;
  for (let index: u32 = 0; index < TIMERS; index++) {
    const deadline = deadlineOf(index);
    if (deadline != 0 && (first == 0 || deadline < first)) first = deadline;
  }
  return first;
}

/** Takes what is due, and compares with the model. Returns how many fired. */
function fire(now: u64): u32 {
  let fired: u32 = 0;
  for (let node = dueTimer(wheel(), now); node != null; node = dueTimer(wheel(), now)) {
    const index = <u32>(changetype<usize>(node) - NODES) / TIMER_NODE_SIZE;
    const deadline = deadlineOf(index);
    same(u64(deadline != 0), 1, 'fired, but was not armed', index);
    same(u64(deadline <= now), 1, 'fired early', deadline);
    same(node.deadline, 0, 'still armed', index);
    setDeadline(index, 0);
    fired++;
  }
  for (let index: u32 = 0; index < TIMERS; index++) {
    const deadline = deadlineOf(index);
    same(nodeAt(index).deadline, deadline, 'deadline', index);
    if (deadline != 0) same(u64(deadline + GRANULARITY > now), 1, 'late or lost', deadline);
  }
  sameNext(now);
  return fired;
}

/** The wheel names its next check, not later than the earliest deadline's tick, not at once. */
function sameNext(now: u64): void {
  const next = nextTimerMicros(wheel());
  const first = earliest();
  if (first == 0) {
    // A cancelled timer lies in the wheel until its slot comes up.
    if (next != 0) same(u64(next > now), 1, 'next, with nothing armed', now);
    return;
  }
  same(u64(next != 0), 1, 'next, never', now);
  same(u64(next > now), 1, 'next, not after now', now);
  same(u64(next < first + GRANULARITY), 1, 'next, too late', first);
}

function change(random: Random, now: u64, limit: u64): void {
  const index = random.below(TIMERS);
  if (random.below(4) == 0) {
    cancelTimer(nodeAt(index));
    setDeadline(index, 0);
    return;
  }
  const delay = magnitude(random, limit);
  armTimer(wheel(), nodeAt(index), now, delay);
  setDeadline(index, now + delay);
}

function runModel(seed: u32, limit: u64): void {
  const random = new Random(<u64>seed * 0x9e3779b97f4a7c15);
  // Every other sequence begins shortly before the highest digit of the wheel turns over.
  let now = seed & 1 ? random.next() >> 28 : (TURN << (<u64>seed)) - magnitude(random, limit);
  let fired: u64 = 0;
  start(now);
  for (let turn: u32 = 0; turn < 2000; turn++) {
    for (let count = random.below(6); count > 0; count--) change(random, now, limit);
    const next = nextTimerMicros(wheel());
    // Half of the time exactly when the wheel wants it, else whenever the clock happens to be read.
    if (next > now && random.below(2)) now = next;
    else now += magnitude(random, limit / 4 + 1);
    fired += fire(now);
  }
  // Nothing is armed any more: going from wish to wish must empty the wheel.
  for (let turn: u32 = 0; turn < 100 * TIMERS && earliest() != 0; turn++) {
    now = max<u64>(nextTimerMicros(wheel()), now + 1);
    fired += fire(now);
  }
  same(earliest(), 0, 'left over', seed);
  same(u64(fired > 500), 1, 'enough of them fired', fired);
}

function checkRearming(): void {
  begin('a timer that every acknowledgement puts off fires after the last of them');
  start(1000000);
  let now: u64 = 1000000;
  for (let step: u32 = 0; step < 20000; step++) {
    now += 1 + (step % 97);
    armTimer(wheel(), nodeAt(0), now, 67109);
    setDeadline(0, now + 67109);
    same(fire(now), 0, 'fired', now);
  }
  const deadline = deadlineOf(0);
  same(fire(deadline - 1), 0, 'a microsecond early', deadline);
  same(fire(deadline + GRANULARITY), 1, 'in time', deadline);
  // Earlier than it was: the wheel must move it.
  armTimer(wheel(), nodeAt(0), now + 200000, THREE_HOURS);
  armTimer(wheel(), nodeAt(0), now + 200000, 5);
  setDeadline(0, now + 200005);
  same(fire(now + 200005 + GRANULARITY), 1, 'pulled in', now);
  end();
}

function checkWakeUp(): void {
  begin('for a lone timer that is near the wheel names one check, at its tick');
  for (let delay: u64 = 1; delay < 1000; delay++) {
    // The first tick of a turn of the lowest level, so that all of these lie in it.
    const now: u64 = (1 << 30) + (delay % GRANULARITY);
    start(now);
    armTimer(wheel(), nodeAt(0), now, delay);
    setDeadline(0, now + delay);
    const next = nextTimerMicros(wheel());
    same(u64(next >= now + delay), 1, 'too early', delay);
    same(u64(next < now + delay + GRANULARITY), 1, 'too late', delay);
    same(fire(next), 1, 'fired', delay);
  }
  end();
}

function checkSleeper(): void {
  begin('timers fire when the clock jumps over all of them at once');
  for (let jump: u64 = 1 << 10; jump <= 1 << 38; jump <<= 1) {
    start(12345);
    for (let index: u32 = 0; index < TIMERS; index++) {
      armTimer(wheel(), nodeAt(index), 12345, 1 + (jump * index) / TIMERS);
      setDeadline(index, 12346 + (jump * index) / TIMERS);
    }
    same(fire(12345 + jump + GRANULARITY), TIMERS, 'fired', jump);
  }
  end();
}

function checkFar(): void {
  begin('a timer beyond a turn of the whole wheel fires when it is due');
  for (let turns: u64 = 1; turns <= 5; turns++) {
    start(777);
    const deadline = 777 + turns * TURN + turns;
    armTimer(wheel(), nodeAt(0), 777, deadline - 777);
    setDeadline(0, deadline);
    let now: u64 = 777;
    for (let step = 0; step < 10000 && earliest() != 0; step++) {
      now = max<u64>(nextTimerMicros(wheel()), now + 1);
      fire(now);
    }
    same(earliest(), 0, 'fired', turns);
    same(u64(now < deadline + GRANULARITY), 1, 'in time', turns);
  }
  end();
}

function checkRemoval(): void {
  begin('a timer that is removed is disarmed, and out of the wheel');
  start(1000);
  for (let index: u32 = 0; index < 3; index++) armTimer(wheel(), nodeAt(index), 1000, 500);
  removeTimer(wheel(), nodeAt(1));
  same(nodeAt(1).deadline, 0, 'deadline', 1);
  same(nodeAt(1).slot, 0, 'slot', 1);
  removeTimer(wheel(), nodeAt(1));
  setDeadline(0, 1500);
  setDeadline(2, 1500);
  same(fire(1500 + GRANULARITY), 2, 'the others fire', 0);
  same(nextTimerMicros(wheel()), 0, 'nothing is left', 0);
  end();
}
