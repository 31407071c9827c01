/** Checks of requester/retransmit-timer.ts: how long a requester waits for an answer. */
import { Arena } from '../memory/arena';
import { allocProtectionDomain } from '../region/protection-domain';
import { endProbe, startProbe } from '../transport/requester/congestion-window';
import { noteArrivedBefore, noteRepeated, noteSentFrom } from '../transport/requester/in-flight';
import {
  answeredAlone,
  armRetransmit,
  nextDelay,
  noteSecondAnswer,
  repeatEarly,
  timeoutOf,
  untilAnswer,
} from '../transport/requester/retransmit-timer';
import { Context } from '../transport/shared/context';
import {
  joinPath,
  noteRoundTrip,
  usualRoundTrip,
  usualRoundTripMost,
} from '../transport/shared/path-control';
import { QueuePair, pathOf, timerOf } from '../transport/shared/queue-pair';
import { psnAdd } from '../wire/psn';
import { freshArena } from './arena';
import { freshContext, freshQueuePair } from './context';
import { begin, end, same } from './tap';

const CHARGE: u32 = 65536;
const ROUND_TRIP: u32 = 10_000;
/** Of one round trip: itself and four variations of half a round trip. */
const MOST: u32 = 3 * ROUND_TRIP;
const SHORT_SLACK: u32 = 1000;
const LONG_SLACK: u32 = 20_000;
const TIMEOUT: u64 = 500_000;
const PSN: u32 = 0xfffffe;
/** How long a process stood still; and how late a timer may be without that. */
const STOPPED: u64 = 9_000_000;
const LATE: u64 = 100_000;

export function checkRetransmitTimer(): void {
  const arena = freshArena(16);
  const pd = allocProtectionDomain(arena, 0);
  checkDelays(arena, pd);
  checkAnswers(arena, pd);
  checkRepetitions(arena, pd);
  checkFollower(arena, pd);
  checkStandstill(arena, pd);
  checkSilence(arena, pd);
}

/** A queue pair with one packet in flight, on a path whose round trip is known. */
function flying(context: Context, pd: u32, timeout: u64): QueuePair {
  const qp = freshQueuePair(context, pd);
  qp.mtu = 1024;
  qp.windowCharge = CHARGE;
  qp.reorderPeer = 64;
  qp.timeoutMicros = timeout;
  pathOf(qp).remoteGid1 = 77;
  joinPath(context, qp, pathOf(qp), CHARGE);
  noteRoundTrip(context, qp, ROUND_TRIP);
  qp.psnUnacked = PSN;
  qp.psnArrived = PSN;
  qp.psnNext = psnAdd(PSN, 1);
  qp.psnMax = qp.psnNext;
  armRetransmit(context, qp);
  return qp;
}

function checkDelays(arena: Arena, pd: u32): void {
  begin('an early repetition waits longer on a path without losses, and on one that paces itself');
  for (let paced: u32 = 0; paced < 2; paced++) {
    for (let lossy: u32 = 0; lossy < 2; lossy++) {
      const context = freshContext(arena);
      context.paced = <u8>paced;
      const qp = flying(context, pd, TIMEOUT);
      qp.lossy = <u8>lossy;
      const slack = lossy && !paced ? SHORT_SLACK : LONG_SLACK;
      for (let repeats: u32 = 0; repeats < 4; repeats++) {
        qp.earlyRepeats = <u8>repeats;
        const wanted = (<u64>(MOST + slack)) << repeats;
        same(nextDelay(context, qp), min<u64>(wanted, TIMEOUT), 'delay', (paced << 4) | repeats);
      }
      qp.earlyRepeats = 6;
      same(nextDelay(context, qp), TIMEOUT, 'after six repetitions', lossy);
      context.now += 100_000;
      same(nextDelay(context, qp), TIMEOUT - 100_000, 'after a part of the timeout', lossy);
    }
  }
  end();
}

function checkAnswers(arena: Arena, pd: u32): void {
  begin('the answer to a repetition has its time, within the timeout of the queue pair');
  const context = freshContext(arena);
  const qp = flying(context, pd, TIMEOUT);
  const delay: u64 = MOST + LONG_SLACK;
  for (let before: u64 = 0; before < TIMEOUT + 50_000; before += 45_000) {
    armRetransmit(context, qp);
    context.now += before;
    noteRepeated(context, qp, PSN);
    for (let passed: u64 = 0; passed <= delay; passed += delay / 2) {
      const total = before + passed;
      const left = total >= TIMEOUT || passed >= delay ? 0 : min(delay - passed, TIMEOUT - total);
      same(untilAnswer(context, qp), left, 'left', before);
      context.now += delay / 2;
    }
  }
  end();
}

function checkFollower(arena: Arena, pd: u32): void {
  begin('behind a packet that was repeated early and answered the next one waits for half as long');
  const context = freshContext(arena);
  const qp = flying(context, pd, TIMEOUT);
  context.now += MOST;
  repeatEarly(context, qp);
  qp.psnUnacked = psnAdd(PSN, 1);
  armRetransmit(context, qp);
  same(timerOf(qp).deadline - context.now, (ROUND_TRIP >> 1) + SHORT_SLACK, 'deadline');
  qp.psnUnacked = psnAdd(PSN, 2);
  armRetransmit(context, qp);
  same(timerOf(qp).deadline - context.now, MOST + SHORT_SLACK, 'behind another one');
  end();
}

function checkRepetitions(arena: Arena, pd: u32): void {
  begin('an early repetition is known by its answer, and by a second one');
  const context = freshContext(arena);
  const qp = flying(context, pd, TIMEOUT);
  same(u64(answeredAlone(qp)), 0, 'before');
  for (let count: u32 = 1; count < 4; count++) {
    context.now += MOST;
    same(u64(repeatEarly(context, qp)), 1, 'early', count);
    same(qp.earlyRepeats, count, 'repetitions');
    same(qp.lossy, 255, 'lossy');
    same(timerOf(qp).deadline, context.now + nextDelay(context, qp), 'deadline', count);
  }
  same(u64(answeredAlone(qp)), 0, 'without an answer');
  qp.psnUnacked = psnAdd(PSN, 1);
  same(u64(answeredAlone(qp)), 1, 'its answer alone');
  qp.psnUnacked = psnAdd(PSN, 2);
  same(u64(answeredAlone(qp)), 0, 'and another one');
  noteSecondAnswer(qp, psnAdd(PSN, 1));
  same(qp.lossy, 255, 'an answer to another packet');
  noteSecondAnswer(qp, PSN);
  same(qp.lossy, 0, 'a second answer to it');
  same(u64(answeredAlone(qp)), 0, 'forgotten');
  qp.psnUnacked = PSN;
  context.now += TIMEOUT;
  same(u64(repeatEarly(context, qp)), 0, 'the timeout');
  end();
}

/** `micros` after the packet in flight was sent, and without a timer that fired, it is answered. */
function answerAfter(context: Context, qp: QueuePair, micros: u64): void {
  noteSentFrom(context, qp, PSN, PSN);
  startProbe(context, qp, PSN);
  armRetransmit(context, qp);
  context.now += micros;
  endProbe(context, qp, qp.psnNext);
  noteArrivedBefore(context, qp, qp.psnNext);
}

function checkStandstill(arena: Arena, pd: u32): void {
  begin('the time for which this process stood still is no part of a round trip');
  const delay: u64 = MOST + LONG_SLACK;
  for (let counted: u32 = 0; counted < 2; counted++) {
    for (let stopped: u32 = 0; stopped < 2; stopped++) {
      const context = freshContext(arena);
      const qp = flying(context, pd, TIMEOUT);
      // Without times of its packets a queue pair measures one packet at a time.
      if (counted) qp.flightMax = 0;
      const timeout = timerOf(qp).deadline - context.now;
      same(timeout, delay, 'timer', counted);
      answerAfter(context, qp, timeout + LATE + stopped);
      const sample = <u32>(timeout + LATE);
      const wanted = stopped ? ROUND_TRIP : ROUND_TRIP + (sample >> 3) - (ROUND_TRIP >> 3);
      same(usualRoundTrip(qp), wanted, 'round trip', (counted << 4) | stopped);
      same(qp.roundTripMicros, stopped ? 0 : sample, 'of the queue pair', (counted << 4) | stopped);
    }
  }
  const context = freshContext(arena);
  const qp = flying(context, pd, TIMEOUT);
  qp.psnNext = psnAdd(PSN, 2);
  noteSentFrom(context, qp, PSN, PSN);
  armRetransmit(context, qp);
  context.now += STOPPED;
  noteArrivedBefore(context, qp, psnAdd(PSN, 1));
  qp.psnArrived = psnAdd(PSN, 1);
  // The first answer arms the timer again.
  armRetransmit(context, qp);
  noteArrivedBefore(context, qp, psnAdd(PSN, 2));
  same(usualRoundTripMost(qp), MOST, 'after two answers at once');
  same(timeoutOf(qp), TIMEOUT, 'the timeout');
  end();
}

function checkSilence(arena: Arena, pd: u32): void {
  begin('a peer that stood still lengthens the timeouts of its queue pairs once, and by little');
  const context = freshContext(arena);
  const first = flying(context, pd, TIMEOUT);
  const second = flying(context, pd, TIMEOUT);
  for (let turn: u32 = 0; turn < 2; turn++) {
    const qp = turn ? second : first;
    noteSentFrom(context, qp, PSN, PSN);
    // The timer fires once, at half of the time.
    qp.silentMicros = <u32>(context.now + STOPPED / 2);
    qp.silent = 1;
    timerOf(qp).deadline = context.now + STOPPED;
  }
  const before = usualRoundTrip(first);
  context.now += STOPPED;
  noteArrivedBefore(context, first, psnAdd(PSN, 1));
  const most: u32 = 600_000;
  same(usualRoundTrip(first), before + (most >> 3) - (before >> 3), 'one sample, of 600 ms');
  const timeout = timeoutOf(first);
  noteArrivedBefore(context, second, psnAdd(PSN, 1));
  same(timeoutOf(second), timeout, 'none of the second queue pair');
  end();
}
