/** Checks of shared/path-control.ts: what the queue pairs of one path share. */
import { Arena } from '../memory/arena';
import { allocProtectionDomain } from '../region/protection-domain';
import { Context, PathState } from '../transport/shared/context';
import {
  collapsePath,
  doubleLateness,
  fitsBuffer,
  growPath,
  holdForCongestionWindow,
  joinPath,
  lateness,
  leastRoundTrip,
  leavePath,
  noteFlight,
  noteHasty,
  pathOpen,
  noteLosses,
  noteRoundTrip,
  resumePath,
  usualRoundTripMost,
  windowPackets,
} from '../transport/shared/path-control';
import { QueuePair, pathOf } from '../transport/shared/queue-pair';
import { noteGap, noteRepeated, noteSentFrom } from '../transport/requester/in-flight';
import { freshArena } from './arena';
import { freshContext, freshQueuePair } from './context';
import { begin, end, same } from './tap';

const CHARGE: u32 = 65536;
/** The least round trip of a path is forgotten after twice this time. */
const LEAST_MICROS: u64 = 5_000_000;
/** Bits of the growth of a window: path-control.ts `Growth`. */
const SLOW_START: u32 = 0;
const CAREFUL: u32 = 1;
const CUBIC: u32 = 2;

export function checkPaths(): void {
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  checkShares(arena, pd);
  checkSpare(arena, pd);
  checkLeaving(arena, pd);
  checkLeast(arena, pd);
  checkQueued(arena, pd);
  checkControls(arena, pd);
  checkTarget(arena, pd);
  checkPlateau(arena, pd);
  checkLossTime(arena, pd);
  checkOldMarks(arena, pd);
}

function join(context: Context, pd: u32): QueuePair {
  const qp = freshQueuePair(context, pd);
  qp.mtu = 1024;
  qp.windowCharge = CHARGE;
  pathOf(qp).remoteGid1 = 77;
  joinPath(context, qp, pathOf(qp), CHARGE);
  return qp;
}

function stateOf(qp: QueuePair): PathState {
  return changetype<PathState>(pathOf(qp).state);
}

/** As if `packets` packets of the queue pair were in flight. */
function fly(context: Context, qp: QueuePair, packets: u32): void {
  qp.psnNext = qp.psnArrived + packets;
  noteFlight(context, qp);
}

function checkSpare(arena: Arena, pd: u32): void {
  begin('beside one packet of another, a queue pair has the window but for a part and 16 packets');
  const context = freshContext(arena);
  const first = join(context, pd);
  const other = join(context, pd);
  fly(context, other, 1);
  stateOf(first).window = 400 * 256;
  same(u64(pathOpen(first, 382)), 1, 'a large window');
  same(u64(pathOpen(first, 383)), 0, 'the whole window');
  stateOf(first).window = 16 * 256;
  same(u64(pathOpen(first, 10)), 1, 'a small window');
  same(u64(pathOpen(first, 11)), 0, 'more than three quarters');
  stateOf(first).window = 400 * 256;
  fly(context, other, 25);
  same(u64(pathOpen(first, 274)), 1, 'beside a stream');
  same(u64(pathOpen(first, 275)), 0, 'more than three quarters beside a stream');
  stateOf(first).window = 16 * 256;
  fly(context, other, 1);
  stateOf(first).waiting = 1;
  same(u64(pathOpen(first, 5)), 1, 'its share while one waits');
  same(u64(pathOpen(first, 6)), 0, 'more than that');
  end();
}

function checkShares(arena: Arena, pd: u32): void {
  begin('queue pairs share the window of their path, and each may have one packet in flight');
  const context = freshContext(arena);
  const first = join(context, pd);
  const window = windowPackets(context, first);
  same(u64(window >= 10), 1, 'the first one', window);
  for (let busy: u32 = 1; busy < 12; busy++) {
    const next = join(context, pd);
    same(pathOf(next).state, pathOf(first).state, 'one path', busy);
    fly(context, next, 1);
    stateOf(first).window = 4 * 256;
    same(windowPackets(context, first), max<u32>(4 / (busy + 1), 1), 'share', busy);
  }
  const alone = freshQueuePair(context, pd);
  alone.windowCharge = CHARGE;
  same(windowPackets(context, alone), context.windowPackets, 'without a path');
  same(u64(fitsBuffer(alone, CHARGE - 1)), 1, 'below the buffer');
  same(u64(fitsBuffer(alone, CHARGE)), 0, 'the whole buffer');
  same(u64(fitsBuffer(first, CHARGE)), 0, 'the whole buffer of a path');
  end();
}

function checkLeaving(arena: Arena, pd: u32): void {
  begin('a queue pair that leaves its path leaves no packet, turn or wait there');
  const context = freshContext(arena);
  const filling = join(context, pd);
  const waiting = join(context, pd);
  const state = stateOf(filling);
  fly(context, filling, 64);
  holdForCongestionWindow(context, waiting);
  same(state.waiting, 1, 'waits');
  resumePath(context, state);
  same(waiting.begins, 1, 'has its turn');
  same(state.granted, 1, 'granted');
  leavePath(waiting, pathOf(waiting));
  same(state.granted, 0, 'granted, after it has left');
  same(waiting.begins, 0, 'no turn');
  leavePath(filling, pathOf(filling));
  same(state.inFlight + state.busy + state.users + state.waiting, 0, 'left over');
  end();
}

function checkLeast(arena: Arena, pd: u32): void {
  begin('the least round trip follows a path that gets longer, and is never forgotten at once');
  const context = freshContext(arena);
  const qp = join(context, pd);
  let least: u32 = 300;
  noteRoundTrip(context, qp, least);
  for (let longer: u32 = 400; longer < 900; longer += 100) {
    // As often as every second: two whole terms pass, and the old one counts no more.
    for (let second = 0; second < 13; second++) {
      context.now += LEAST_MICROS / 5;
      noteRoundTrip(context, qp, longer);
      const now = leastRoundTrip(qp);
      same(u64(now == least || now == longer), 1, 'one of the two', now);
    }
    least = leastRoundTrip(qp);
    same(least, longer, 'after two terms', longer);
  }
  end();

  begin('a least round trip that is measured again counts for two terms from then on');
  const again = freshContext(arena);
  const other = join(again, pd);
  for (let second = 0; second <= 16; second++) {
    noteRoundTrip(again, other, second == 0 || second == 4 ? 300 : 500);
    if (second <= 14) same(leastRoundTrip(other), 300, 'within two terms', second);
    again.now += LEAST_MICROS / 5;
  }
  same(leastRoundTrip(other), 500, 'after them');
  end();
}

/**
 * In slow start round trips of 16 ms, then of `micros` for `span`. Returns how the window grows then,
 * and in the high half what an arrival adds to it.
 */
function queued(arena: Arena, pd: u32, micros: u32, span: u32): u32 {
  const context = freshContext(arena);
  const qp = join(context, pd);
  const state = stateOf(qp);
  noteRoundTrip(context, qp, 16_000);
  fly(context, qp, 12);
  state.window = 20 * 256;
  noteRoundTrip(context, qp, micros);
  context.now += span;
  noteRoundTrip(context, qp, micros);
  const before = state.window;
  growPath(context, qp, 4);
  return state.growth | ((state.window - before) << 16);
}

function checkQueued(arena: Arena, pd: u32): void {
  begin(
    'the window stops at once when a queue makes round trips longer for an eighth of the least',
  );
  const doubles = SLOW_START | ((4 * 256) << 16);
  same(queued(arena, pd, 17_999, 2000), doubles, 'no queue');
  same(queued(arena, pd, 18_000, 1999), doubles, 'a queue for a shorter time');
  same(queued(arena, pd, 18_000, 2000), CAREFUL, 'a queue for that time');
  const context = freshContext(arena);
  const qp = join(context, pd);
  const state = stateOf(qp);
  for (let step: u32 = 0; step < 8; step++) {
    noteRoundTrip(context, qp, (step & 3) == 0 ? 16_000 : 20_000);
    context.now += 900;
  }
  same(state.growth, SLOW_START, 'a round trip without a queue between');
  state.growth = CAREFUL;
  state.queuedFirst = 0;
  fly(context, qp, 12);
  state.window = 20 * 256;
  growPath(context, qp, 4);
  same(state.window, 21 * 256, 'a quarter without a queue');
  end();

  begin('on a path shorter than 2 ms round trips do not end slow start');
  const short = freshContext(arena);
  const other = join(short, pd);
  noteRoundTrip(short, other, 1000);
  for (let step: u32 = 0; step < 4; step++) {
    short.now += 1000;
    noteRoundTrip(short, other, 1900);
  }
  same(stateOf(other).growth, SLOW_START, 'growth');
  end();
}

function checkControls(arena: Arena, pd: u32): void {
  for (let control: u32 = 0; control < 2; control++) {
    const isCubic = control != 0;
    if (isCubic)
      begin('CUBIC by name cuts for a loss without a queue, and undoes that if it was late');
    else begin('by default a loss without a queue cuts nothing');
    const context = freshContext(arena);
    context.congestionControl = control;
    const qp = join(context, pd);
    const state = stateOf(qp);
    noteRoundTrip(context, qp, 16_000);
    fly(context, qp, 100);
    state.window = 100 * 256;
    context.now += 1000;
    noteLosses(context, qp, 1, <u32>context.now);
    same(state.window / 256, isCubic ? 70 : 100, 'after a loss');
    same(state.growth, isCubic ? CUBIC : SLOW_START, 'growth');
    context.now += 1000;
    noteLosses(context, qp, 1, <u32>context.now);
    same(state.window / 256, isCubic ? 49 : 100, 'after another one');
    doubleLateness(context, qp, <u32>context.now, 1000);
    same(state.window / 256, 100, 'when they were late');
    same(state.growth, SLOW_START, 'the growth before');
    same(state.uncut, 0, 'once');
    context.now += 1000;
    noteLosses(context, qp, 1, <u32>context.now);
    context.now += 40_000;
    doubleLateness(context, qp, <u32>context.now, 1000);
    same(state.window / 256, isCubic ? 70 : 100, 'two round trips after a loss');
    end();
  }
}

/** Window in packets, of 25, after a round of `micros` with a target, on a path of 300 us. */
function steered(arena: Arena, pd: u32, target: u32, micros: u32): u32 {
  const context = freshContext(arena);
  context.congestionControl = target;
  const qp = join(context, pd);
  const state = stateOf(qp);
  noteRoundTrip(context, qp, 300);
  fly(context, qp, 25);
  state.window = 25 * 256;
  state.growth = CUBIC;
  state.roundTripMicros = micros;
  state.roundMicros = <u32>context.now;
  state.roundLeast = 0;
  context.now += 200_000;
  noteRoundTrip(context, qp, micros);
  growPath(context, qp, 25);
  return state.window / 256;
}

function checkTarget(arena: Arena, pd: u32): void {
  begin('a round above the target shortens the window, and one below lengthens it by a packet');
  // A window of 25 packets has a target that is longer by a fifth.
  same(steered(arena, pd, 500, 590), 26, 'below the target');
  same(steered(arena, pd, 500, 610), 24, 'a little above it');
  same(steered(arena, pd, 500, 1200), 15, 'twice the target');
  same(steered(arena, pd, 500, 100_000), 12, 'far above it');
  same(steered(arena, pd, 300, 560), steered(arena, pd, 0, 560), 'a path that is no shorter');
  end();

  begin('a target ends for some seconds where the smallest window has round trips twice as long');
  const context = freshContext(arena);
  context.congestionControl = 500;
  const qp = join(context, pd);
  const state = stateOf(qp);
  noteRoundTrip(context, qp, 300);
  state.growth = CUBIC;
  let rounds = 0;
  for (; rounds < 1000 && state.roundTripLeast == 300; rounds++) {
    context.now += 40_000;
    noteRoundTrip(context, qp, 40_000);
  }
  same(u64(rounds > 60 && rounds < 120), 1, 'rounds', rounds);
  same(state.window / 256, 4, 'the smallest window');
  same(u64(state.roundTripLeast > 30_000), 1, 'the least round trip');
  fly(context, qp, 4);
  state.windowMax = 4;
  context.now += 400_000;
  growPath(context, qp, 4);
  same(u64(state.window > 4 * 256), 1, 'it grows');
  end();
}

function checkPlateau(arena: Arena, pd: u32): void {
  begin(
    'after a loss the window reaches its last size at the plateau of CUBIC, then grows from it',
  );
  const context = freshContext(arena);
  const qp = join(context, pd);
  const state = stateOf(qp);
  noteRoundTrip(context, qp, 20_000);
  state.window = 40 * 256;
  fly(context, qp, 40);
  state.queuedRounds = 1;
  noteLosses(context, qp, 1, <u32>context.now);
  same(state.windowMax, 40, 'the last size');
  context.now += 1000;
  growPath(context, qp, 1);
  same(u64(state.plateauSeconds > 1), 1, 'seconds to the plateau');
  // Twice the window at once, as after slow start: the next growth begins at the plateau itself.
  state.epochMicros = 0;
  state.window = 60 * 256;
  fly(context, qp, 60);
  growPath(context, qp, 1);
  same(u64(state.plateauSeconds), 0, 'no way to the plateau');
  same(state.windowMax, 60, 'which is here');
  context.now += 1_000_000;
  collapsePath(context, qp, 1000);
  same(state.window, 4 * 256, 'after a silence');
  end();
}

function checkLossTime(arena: Arena, pd: u32): void {
  begin('a loss counts from when the last of the lost packets was sent, whatever the clock says');
  const context = freshContext(arena);
  const qp = freshQueuePair(context, pd);
  const starts: StaticArray<u64> = [
    1000, 0x3fffff00, 0x5fffff00, 0x7fffff00, 0xbfffff00, 0xfffffe00,
  ];
  for (let i = 0; i < starts.length; i++) {
    for (let step: u64 = 0; step < 5; step++) {
      context.now = starts[i] + 0x80 * step;
      qp.psnUnacked = <u32>step;
      noteRepeated(context, qp, <u32>step);
      noteGap(context, qp);
      same(qp.lostMicros, <u32>context.now, 'sent last', context.now);
    }
    // An older packet is reported behind it.
    qp.psnUnacked = 2;
    noteGap(context, qp);
    same(qp.lostMicros, <u32>context.now, 'still', context.now);
  }
  end();
}

function checkOldMarks(arena: Arena, pd: u32): void {
  begin('a cut, a late packet and a needless repetition of an hour ago do not hide new ones');
  // 32 bits of microseconds are 71 minutes.
  for (let minutes: u64 = 1; minutes < 142; minutes += 5) {
    const context = freshContext(arena);
    const qp = join(context, pd);
    const state = stateOf(qp);
    noteRoundTrip(context, qp, 20_000);
    fly(context, qp, 40);
    for (let turn: u32 = 0; turn < 2; turn++) {
      const sent = <u32>context.now;
      context.now += 30_000;
      state.window = 100 * 256;
      state.queuedRounds = 1;
      noteLosses(context, qp, 1, sent);
      same(u64(state.window < 100 * 256), 1, 'the loss cuts the window', minutes);
      const window = state.window;
      noteLosses(context, qp, 1, sent);
      same(state.window, window, 'another of that time does not', minutes);
      const late = lateness(qp);
      doubleLateness(context, qp, sent, 25);
      same(u64(lateness(qp) > late), 1, 'later', minutes);
      const later = lateness(qp);
      doubleLateness(context, qp, sent, 25);
      same(lateness(qp), later, 'and no later', minutes);
      const most = usualRoundTripMost(qp);
      noteHasty(context, qp, sent);
      same(u64(usualRoundTripMost(qp) > most), 1, 'longer round trips', minutes);
      const longer = usualRoundTripMost(qp);
      noteHasty(context, qp, sent);
      same(usualRoundTripMost(qp), longer, 'and no longer', minutes);
      context.now += minutes * 60_000_000;
      state.variationMicros = 5000;
    }
    // The last loss is as old, and packets were in flight all the time.
    qp.psnNext = qp.psnUnacked + 2;
    noteSentFrom(context, qp, qp.psnUnacked, qp.psnUnacked);
    noteGap(context, qp);
    context.now += minutes * 60_000_000;
    noteRepeated(context, qp, qp.psnUnacked);
    noteGap(context, qp);
    same(qp.lostMicros, (<u32>context.now) & ~1, 'the last loss', minutes);
  }
  end();
}
