/**
 * Congestion control of a path: the queue pairs of a device to one peer have one window in packets,
 * of which each that has packets in flight may use its share. CUBIC (RFC 9438) with HyStart++
 * (RFC 9406). Losses without a queue, which are those of the link, do not cut the window: round
 * trips near the least one, and few losses. By name, CUBIC alone, or a target for round trips.
 *
 * Beside the window there is the receive buffer of the peer: what is in flight at once may have to
 * wait there. A peer takes what has arrived within RECEIVE_MICROS, so on a long path more is in
 * flight than its buffer takes.
 */
import { List, append, removeFrom, takeFirst } from '../../memory/list';
import { Context, PATH_STATES, PATH_STATE_SIZE, PathState, pathTimer, schedule } from './context';
import { Path } from './path';
import { QueuePair, packetsInFlight, pathOf } from './queue-pair';
import { CongestionControl } from './status';
import { armTimer } from './timer-wheel';

/** The window counts in 1/256 of a packet. */
export const UNIT: u32 = 256;
/** Never less, so that a lost packet is noticed by those behind it. */
const WINDOW_LEAST: u32 = 4 * UNIT;
/**
 * Initial window of an unknown path: ten packets (RFC 6928), or more smaller ones that carry as
 * many bytes as ten of TCP on Ethernet.
 */
const INITIAL_PACKETS: u32 = 10;
const INITIAL_PACKETS_MAX: u32 = 16;
const INITIAL_BYTES: u32 = 14_600;
/** A device takes what has arrived at the latest after this time. */
const RECEIVE_MICROS: u32 = 1000;
const CHARGE_MAX: u64 = 1 << 30;
/** On shorter paths a round trip says more of processors than of queues. */
const LONG_MICROS: u32 = 2000;
/** A queue makes round trips longer by an eighth of the least one, within these bounds. */
const QUEUE_MICROS: u32 = 1000;
const QUEUE_MICROS_MAX: u32 = 16_000;
/** The same on a short path, where the queue of a switch takes less time. */
const SHORT_QUEUE_MICROS: u32 = 16;
/** A queue pair uses a window alone if others have less than this part in flight, as a shift. */
const ALONE: u32 = 4;
/** Then they find at most this much free. */
const SPARE: u32 = 16 * UNIT;
/** Share of packets that a link loses: more are losses of a queue. */
const LINK_LOSS_MAX: f64 = 0.025;
/** Share of losses of a short path at which a cut leaves no least window. */
const CROWDED_LOSS: f64 = 0.02;
/** Needless repetitions make a timer at most four times this, and eight round trips, longer. */
const VARIATION_MICROS_MAX: u32 = 250_000;
/** Packets of a short path that take several ways may be late by twice this time. */
const LATE_MICROS: u32 = 1000;
/** Part of the lateness that each loss takes, as a shift. */
const LATE_FADES: u32 = 6;
/** The least round trip is forgotten after twice this time. */
const LEAST_MICROS: u32 = 5_000_000;
/** The most of the rounds loses this part in a round, as a shift. */
const MOST_FADES: u32 = 6;
/** Part of the least round trip during which longer ones, and no other, end the doubling. */
const QUEUED_PART: u32 = 8;
/** Rounds with a queue that end the careful growth, by this part of what slow start adds. */
const CAREFUL_ROUNDS: u32 = 2;
const CAREFUL_PART: u32 = 4;
/**
 * Growth for each round trip while a path has no queue: this part of the window for each round
 * trip without one before, up to UNUSED_ROUNDS; and the share of losses up to which it has room.
 */
const UNUSED_PART: f64 = 512;
const UNUSED_ROUNDS: u16 = 64;
const FEW_LOSSES: f64 = 0.015;
const MEMORY_PACKETS: f64 = 1024;

/** Swift: part of the excess over the target that a round takes, and what it leaves at least. */
const DRAINED: f64 = 0.8;
const DRAINED_LEAST: f64 = 0.5;

/** CUBIC: cubic growth in packets a second^3, and what a loss leaves of the window. */
const GROWTH: f64 = 0.4;
const KEPT: f64 = 0.7;
/** Growth of Reno at that share: 3 * (1 - 0.7) / (1 + 0.7) packets for each round trip. */
const RENO: f64 = 0.53;

/** Longer ones are hardly round trips of a network: the peer took its time, or stood still. */
const TRIP_MICROS_MAX: u32 = 600_000;
/** The same of a handshake, which a peer's connection manager answers, or asks for more time. */
const SEED_MICROS_MAX: u32 = 3_000_000;
/** Weight of a round trip in the share of marked packets (DCTCP's g). */
const MARK_WEIGHT: f64 = 1 / 16;
/** Shorter round trips count as this long: notifications are not sent more often. */
const MARK_MICROS: u32 = 50;
/** Round trips without a mark that are counted. */
const MARK_ROUNDS: u32 = 256;

/** Entries that are looked at for a peer. */
const PROBES: u32 = 16;
/** After this time without a packet a path begins anew. */
const IDLE_MICROS: u64 = 10_000_000;
/** Doublings of a wait for a window that stays full. */
const STALLS_MAX: u64 = 6;
/** Pacing: what leaves at once, at the rate of the path; and in packets, at least. */
const BURST_MICROS: f64 = 250;
const RUN_LEAST: f64 = 2;

/** How the window grows. */
enum Growth {
  /** It doubles each round trip. */
  SLOW_START = 0,
  /** By a quarter each round trip (RFC 9406, conservative slow start). */
  CAREFUL = 1,
  CUBIC = 2,
}

/**
 * The entry of the peer with this GID, or one for it. Where PROBES entries are taken by others, it
 * shares the first of these with its peer.
 */
function entryOf(context: Context, gid0: u64, gid1: u64, mtu: u32): PathState {
  const mixed = (gid0 ^ gid1) * 0x9e3779b97f4a7c15;
  const first = <u32>(mixed >> 32);
  let free: usize = 0;
  for (let probe: u32 = 0; probe < PROBES; probe++) {
    const state = entryAt(context, first + probe);
    if (state.users == 0) {
      if (free == 0) free = changetype<usize>(state);
    } else if (state.gid0 == gid0 && state.gid1 == gid1) return state;
  }
  if (free == 0) return entryAt(context, first);
  const state = changetype<PathState>(free);
  state.gid0 = gid0;
  state.gid1 = gid1;
  restart(context, state, mtu);
  state.idleMicros = 0;
  return state;
}

function entryAt(context: Context, index: u32): PathState {
  const offset = (index & (PATH_STATES - 1)) * PATH_STATE_SIZE;
  return changetype<PathState>(context.pathStates + <usize>offset);
}

/** Nothing is known of the path, or no more. */
function restart(context: Context, state: PathState, mtu: u32): void {
  const from = offsetof<PathState>('plateauSeconds');
  memory.fill(changetype<usize>(state) + from, 0, offsetof<PathState>('users') - from);
  state.window = (context.paced ? context.windowPackets : initialPackets(context, mtu)) * UNIT;
}

function initialPackets(context: Context, mtu: u32): u32 {
  if (context.initialWindowPackets != 0) return context.initialWindowPackets;
  const small = min<u32>(INITIAL_BYTES / max<u32>(mtu, 1), INITIAL_PACKETS_MAX);
  return min<u32>(max<u32>(small, INITIAL_PACKETS), context.windowPackets);
}

function stateOf(qp: QueuePair): PathState | null {
  return changetype<PathState | null>(pathOf(qp).state);
}

/** The path is set: `charge` is half of the peer's receive buffer. */
export function joinPath(context: Context, qp: QueuePair, path: Path, charge: u32): void {
  leavePath(qp, path);
  const state = entryOf(context, path.remoteGid0, path.remoteGid1, qp.mtu);
  state.charge = state.users == 0 ? charge : min<u32>(charge, state.charge);
  state.users++;
  path.state = changetype<usize>(state);
}

function mostOf(context: Context): u32 {
  return context.windowPackets * UNIT;
}

/** Counts what the queue pair has in flight. */
export function noteFlight(context: Context, qp: QueuePair): void {
  const state = stateOf(qp);
  if (state == null) return;
  const packets = packetsInFlight(qp);
  if (state.inFlight == 0 && packets != 0 && isLongIdle(context, state)) {
    restart(context, state, qp.mtu);
  }
  state.inFlight += packets - qp.flightNoted;
  if ((packets != 0) != (qp.flightNoted != 0)) state.busy += packets != 0 ? 1 : -1;
  qp.flightNoted = packets;
  if (state.heldFirst != 0) grantTurns(context, qp, state);
  if (state.inFlight != 0) return;
  // All packets that were sent before the last cut are answered.
  state.cutMicros = 0;
  state.idleMicros = context.now;
}

/** The network may be another one by now. */
function isLongIdle(context: Context, state: PathState): bool {
  return (
    state.idleMicros != 0 &&
    context.now - state.idleMicros > max<u64>(IDLE_MICROS, 4 * <u64>state.roundTripMicros)
  );
}

/** Removes the queue pair from the path: RESET, ERR, a new path, destroyed. */
export function leavePath(qp: QueuePair, path: Path): void {
  if (path.state != 0) {
    const state = changetype<PathState>(path.state);
    state.inFlight -= qp.flightNoted;
    if (qp.flightNoted != 0) state.busy--;
    state.users--;
    if (qp.begins) state.granted--;
    endWait(state, qp);
    removeFrom(heldOf(state), heldLink(qp));
  }
  qp.flightNoted = 0;
  qp.begins = 0;
  path.state = 0;
}

/** Packets that the queue pair may have in flight. */
export function windowPackets(context: Context, qp: QueuePair): u32 {
  const state = stateOf(qp);
  if (state == null) return context.windowPackets;
  return max<u32>(state.window / UNIT / busyWith(qp, state), 1);
}

/** Queue pairs with packets in flight, as if this one had. */
function busyWith(qp: QueuePair, state: PathState): u32 {
  return state.busy + (qp.flightNoted == 0 ? 1 : 0);
}

/**
 * May the queue pair, with `packets` in flight, send one more? While a part of the window is empty
 * and no other waits for it, one may have more than its share.
 */
export function pathOpen(qp: QueuePair, packets: u32): bool {
  const state = stateOf(qp);
  if (state == null) return true;
  const all = (state.inFlight - qp.flightNoted + packets) * UNIT;
  if (all >= state.window) return false;
  const isAlone = (state.inFlight - qp.flightNoted) * UNIT < state.window >> ALONE;
  const spare = min<u32>(state.window >> 2, isAlone ? SPARE : u32.MAX_VALUE);
  if (state.waiting == 0 && all < state.window - spare) return true;
  return packets * UNIT * (busyWith(qp, state) + state.waiting) < state.window;
}

/** Is `charge` below what may be in flight of this queue pair? */
export function fitsBuffer(qp: QueuePair, charge: u32): bool {
  const state = stateOf(qp);
  if (state == null) return charge < qp.windowCharge;
  const windows: u64 = 1 + <u64>(state.roundTripLeast / RECEIVE_MICROS);
  if (charge >= min<u64>(<u64>qp.windowCharge * windows, CHARGE_MAX)) return false;
  return <u64>charge * busyWith(qp, state) < min<u64>(<u64>state.charge * windows, CHARGE_MAX);
}

/**
 * Packets that the queue pair may send now, at most `most`. A long path is paced: what the window
 * allows leaves over the round trip, in runs of BURST_MICROS. A late turn catches up.
 */
export function paceAllows(context: Context, qp: QueuePair, most: u32): u32 {
  const state = stateOf(qp);
  if (state == null || context.paced || state.roundTripLeast < LONG_MICROS) return most;
  const now = <f64>context.now;
  state.leftMicros = max<f64>(state.leftMicros, now - <f64>(state.roundTripLeast >> 3));
  const run = now + BURST_MICROS - state.leftMicros;
  if (run <= 0) return 0;
  return <u32>min<f64>(<f64>most, max<f64>(run / gapOf(state), RUN_LEAST));
}

/** Microseconds of the path's rate that a packet takes. */
function gapOf(state: PathState): f64 {
  const gain = state.growth == <u32>Growth.SLOW_START ? 2 : 1.25;
  return (<f64>state.roundTripMicros * UNIT) / (<f64>state.window * gain);
}

/** `packets` packets were sent. */
export function notePaced(qp: QueuePair, packets: u32): void {
  const state = stateOf(qp);
  if (state != null && state.roundTripLeast >= LONG_MICROS)
    state.leftMicros += packets * gapOf(state);
}

/** Pacing lets nothing go now: the queue pair has its turn when it does. */
export function holdForPace(context: Context, qp: QueuePair): void {
  const state = changetype<PathState>(pathOf(qp).state);
  hold(context, qp, state, <u64>max<f64>(state.leftMicros - <f64>context.now, 1));
}

/**
 * The window of the path is full of packets of other queue pairs: this one waits behind those that
 * wait already. One of them begins even so after a round trip without an arrival, then after two,
 * and so on: what fills the window may have no peer any more.
 */
export function holdForCongestionWindow(context: Context, qp: QueuePair): void {
  const state = changetype<PathState>(pathOf(qp).state);
  const micros: u64 = max<u32>(state.roundTripMicros, LONG_MICROS);
  state.waiting += 1 - qp.waits;
  qp.waits = 1;
  hold(context, qp, state, micros << min<u64>(state.stalls, STALLS_MAX));
}

function endWait(state: PathState, qp: QueuePair): void {
  state.waiting -= qp.waits;
  qp.waits = 0;
}

function hold(context: Context, qp: QueuePair, state: PathState, micros: u64): void {
  append(heldOf(state), heldLink(qp));
  const timer = pathTimer(state);
  if (timer.deadline != 0 && timer.deadline <= context.now + micros) return;
  armTimer(context.timers, timer, context.now, micros);
}

/** May a queue pair without packets in flight send one? */
export function mayBegin(qp: QueuePair): bool {
  const state = stateOf(qp);
  if (state == null || qp.begins) return true;
  return state.heldFirst == 0 && (state.inFlight == qp.flightNoted || pathOpen(qp, 0));
}

/** Whatever the queue pair could send was sent. */
export function endTurn(qp: QueuePair): void {
  if (!qp.begins) return;
  qp.begins = 0;
  const state = stateOf(qp);
  if (state != null) state.granted--;
}

/** Queue pairs that wait begin, as many as the window has room for. */
function grantTurns(context: Context, qp: QueuePair, state: PathState): void {
  while (state.heldFirst != 0 && paceAllows(context, qp, 1) != 0) {
    if ((state.inFlight + state.granted) * UNIT >= state.window) return;
    grantTurn(context, state);
  }
}

function grantTurn(context: Context, state: PathState): void {
  const link = takeFirst(heldOf(state));
  const qp = changetype<QueuePair>(link - offsetof<QueuePair>('heldLink'));
  endWait(state, qp);
  if (!qp.begins) state.granted++;
  qp.begins = 1;
  schedule(context, qp);
}

/** The timer of the path fired. */
export function resumePath(context: Context, state: PathState): void {
  if (state.heldFirst == 0) return;
  if (state.inFlight * UNIT >= state.window) state.stalls++;
  grantTurn(context, state);
  for (let link = takeFirst(heldOf(state)); link != 0; link = takeFirst(heldOf(state))) {
    const qp = changetype<QueuePair>(link - offsetof<QueuePair>('heldLink'));
    endWait(state, qp);
    schedule(context, qp);
  }
}

function heldOf(state: PathState): List {
  return changetype<List>(changetype<usize>(state) + offsetof<PathState>('heldFirst'));
}

function heldLink(qp: QueuePair): usize {
  return changetype<usize>(qp) + offsetof<QueuePair>('heldLink');
}

/** A round trip took `micros`. */
export function noteRoundTrip(context: Context, qp: QueuePair, micros: u32): void {
  const state = stateOf(qp);
  if (state == null) return;
  const now = <u32>context.now;
  if (state.roundTripMicros == 0) {
    state.roundTripMicros = micros;
    state.variationMicros = micros >> 1;
  } else {
    const away =
      micros > state.roundTripMicros
        ? micros - state.roundTripMicros
        : state.roundTripMicros - micros;
    state.variationMicros += (away >> 2) - (state.variationMicros >> 2);
    state.roundTripMicros += (micros >> 3) - (state.roundTripMicros >> 3);
  }
  if (state.roundTripLeast == 0 || micros <= state.roundTripLeast) {
    state.roundTripLeast = micros;
    state.leastMicros = now;
    state.leastNext = micros;
  } else if (state.leastNext == 0 || micros < state.leastNext) state.leastNext = micros;
  if (now - state.leastMicros > LEAST_MICROS) {
    state.roundTripLeast = state.leastNext;
    state.leastNext = 0;
    state.leastMicros = now;
  }
  noteRound(context, state, now, micros);
}

/**
 * A round trip in which the timer fired: `micros` at most, of a packet that was sent at
 * `sentMicros`. One counts for all queue pairs: of a peer that stood still each of them has one.
 */
export function noteDoubtfulRoundTrip(
  context: Context,
  qp: QueuePair,
  sentMicros: u32,
  micros: u32,
): void {
  const state = stateOf(qp);
  if (state == null) return;
  const now = <u32>context.now;
  if (state.doubtMicros != 0 && isBefore(now, sentMicros, state.doubtMicros)) return;
  state.doubtMicros = max<u32>(now, 1);
  noteRoundTrip(
    context,
    qp,
    min<u32>(micros, max<u32>(2 * state.roundTripMicros, TRIP_MICROS_MAX)),
  );
}

/** By their ages: `mark` may be older than half of what 32 bits of microseconds count. */
function isBefore(now: u32, micros: u32, mark: u32): bool {
  return now - micros > now - mark;
}

/**
 * Least time that a queue adds to a round trip. On a short path other senders may never let the
 * queue get empty: there a queue is what makes round trips longer by half of what it ever does.
 */
function slackOf(state: PathState): u32 {
  const least = state.roundTripLeast;
  if (least < LONG_MICROS) {
    const most = state.roundMost < least ? 0 : (state.roundMost - least) >> 1;
    return max<u32>(min<u32>(least >> 2, most), SHORT_QUEUE_MICROS);
  }
  return min<u32>(max<u32>(least >> 3, QUEUE_MICROS), QUEUE_MICROS_MAX);
}

/**
 * A round trip of samples: was there a queue all the time? The least is what noise of processors
 * changes least. On a short path that does not limit growth.
 */
function noteRound(context: Context, state: PathState, now: u32, micros: u32): void {
  if (state.roundLeast == 0 || micros < state.roundLeast) state.roundLeast = micros;
  noteTrip(state, now, micros);
  const target = targetOf(context, state);
  // Doubling ends with the first long round trip: what is under way makes the next ones longer.
  if (target != 0 && micros >= target) state.growth = Growth.CUBIC;
  if (now - state.roundMicros < state.roundTripMicros) return;
  const isFree =
    target == 0
      ? state.roundLeast < state.roundTripLeast + slackOf(state)
      : state.roundTripMicros < target;
  if (isFree) {
    state.queuedRounds = 0;
    state.freeRounds = min<u16>(state.freeRounds + 1, UNUSED_ROUNDS);
  } else {
    state.queuedRounds = min<u16>(state.queuedRounds + 1, UNUSED_ROUNDS);
    state.freeRounds = 0;
    if (target != 0) drain(context, state, target);
  }
  state.roundMost = max<u32>(state.roundLeast, state.roundMost - (state.roundMost >> MOST_FADES));
  state.roundLeast = 0;
  state.roundMicros = now;
  if (state.roundTripLeast < LONG_MICROS) return;
  if (state.growth == <u32>Growth.SLOW_START && state.queuedRounds > 0)
    state.growth = Growth.CAREFUL;
  else if (state.growth == <u32>Growth.CAREFUL) {
    if (state.queuedRounds >= CAREFUL_ROUNDS) state.growth = Growth.CUBIC;
    else if (state.queuedRounds == 0) state.growth = Growth.SLOW_START;
  }
}

/**
 * Control by delay (Swift, SIGCOMM 2020): the round trip that the window is steered to, in
 * microseconds. A small window has a longer one, so that shares become equal. 0 without a target,
 * and on a path that is no shorter than that, be it for a queue that others keep filled.
 */
function targetOf(context: Context, state: PathState): u32 {
  const target = context.congestionControl;
  if (target <= <u32>CongestionControl.CUBIC || state.roundTripLeast >= target) return 0;
  return target + <u32>(<f64>target / sqrt<f64>(<f64>max<u32>(state.window / UNIT, 1)));
}

/** Round trips are longer than the target: the window loses a part of the excess. */
function drain(context: Context, state: PathState, target: u32): void {
  // A full queue does not double the target: the path became longer. Others have no target.
  const isLonger = state.roundTripMicros >= 2 * context.congestionControl;
  if (isLonger && state.window <= WINDOW_LEAST && state.queuedRounds >= UNUSED_ROUNDS) {
    state.roundTripLeast = state.roundTripMicros;
    state.leastMicros = <u32>context.now;
    state.leastNext = 0;
    return;
  }
  const excess = <f64>(state.roundTripMicros - target) / <f64>state.roundTripMicros;
  reduce(context, state, max<f64>(1 - DRAINED * excess, DRAINED_LEAST), 0);
}

function isCubic(context: Context): bool {
  return context.congestionControl == CongestionControl.CUBIC;
}

/**
 * The first packets of a round found no queue yet, and those that are sent now overflow it: on a
 * long path, where packets are paced, the last round trips tell.
 */
function noteTrip(state: PathState, now: u32, micros: u32): void {
  if (micros < state.roundTripLeast + slackOf(state)) state.queuedFirst = 0;
  else if (state.queuedFirst == 0) state.queuedFirst = max<u32>(now, 1);
  if (state.roundTripLeast < LONG_MICROS || !isQueued(state, now)) return;
  if (state.growth == <u32>Growth.SLOW_START) state.growth = Growth.CAREFUL;
}

function isQueued(state: PathState, now: u32): bool {
  const first = state.queuedFirst;
  return first != 0 && now - first >= state.roundTripLeast / QUEUED_PART;
}

/** The shortest round trip to this peer in microseconds; 0: none is known. */
export function leastRoundTrip(qp: QueuePair): u32 {
  const state = stateOf(qp);
  return state == null ? 0 : state.roundTripLeast;
}

/** How late a packet of this path may arrive before it counts as lost, in microseconds. */
export function lateness(qp: QueuePair): u32 {
  const state = stateOf(qp);
  return state == null ? 0 : state.lateMicros;
}

/** A packet was `micros` late. */
export function noteLateness(context: Context, qp: QueuePair, micros: u32): void {
  const state = stateOf(qp);
  if (state == null) return;
  state.lateMicros = min<u32>(micros, 2 * max<u32>(state.roundTripMicros, LATE_MICROS));
  state.lateSince = <u32>context.now;
}

/**
 * A packet that was sent again at `sentMicros` was late only: the next ones have twice as much
 * time, and `least`. That is so once for all that were sent again before.
 */
export function doubleLateness(context: Context, qp: QueuePair, sentMicros: u32, least: u32): void {
  const state = stateOf(qp);
  if (state == null) return;
  undoCut(context, state);
  const isKnown = state.lateMicros != 0 && isBefore(<u32>context.now, sentMicros, state.lateSince);
  if (!isKnown) noteLateness(context, qp, max<u32>(2 * state.lateMicros, least));
}

/** So recently that its packets may have been late only. */
function wasJustCut(context: Context, state: PathState): bool {
  const age = <u32>context.now - state.cutMicros;
  return state.cutMicros != 0 && age <= 2 * state.roundTripMicros;
}

/** CUBIC: a cut for a packet that was late only is undone (RFC 4015, RFC 9438 4.9). */
function undoCut(context: Context, state: PathState): void {
  if (state.uncut == 0 || !wasJustCut(context, state)) return;
  const growth = state.uncut & 3;
  state.window = max<u32>(state.window, state.uncut - growth);
  state.windowMax = max<u32>(state.windowMax, state.window / UNIT);
  state.growth = growth;
  state.epochMicros = 0;
  state.uncut = 0;
}

/**
 * A packet that was repeated early at `sentMicros` had arrived: round trips are longer than their
 * variation says. Repeated packets measure none, so without this it would go on (RFC 4015). Once
 * for all that were repeated before.
 */
export function noteHasty(context: Context, qp: QueuePair, sentMicros: u32): void {
  const state = stateOf(qp);
  if (state == null || state.roundTripMicros == 0) return;
  const now = <u32>context.now;
  if (state.hastyMicros != 0 && isBefore(now, sentMicros, state.hastyMicros)) return;
  state.hastyMicros = max<u32>(now, 1);
  const doubled = 2 * max<u32>(state.variationMicros, state.roundTripMicros >> 2);
  const most = VARIATION_MICROS_MAX + 2 * state.roundTripMicros;
  state.variationMicros = min<u32>(doubled, max<u32>(most, state.variationMicros));
}

/** The smoothed round trip in microseconds; 0: none is known. */
export function usualRoundTrip(qp: QueuePair): u32 {
  const state = stateOf(qp);
  return state == null ? 0 : state.roundTripMicros;
}

/**
 * A message of the connection manager was answered after `micros`. The peer's application may have
 * taken part of that time: so it bounds timers until a round trip is measured, and nothing else.
 */
export function seedRoundTrip(context: Context, qp: QueuePair, micros: u32): void {
  const state = stateOf(qp);
  if (state == null || micros == 0 || micros > SEED_MICROS_MAX) return;
  if (state.inFlight == 0 && isLongIdle(context, state)) {
    // The first packet would forget it with the rest.
    restart(context, state, qp.mtu);
    state.idleMicros = 0;
  }
  state.seedMicros = state.seedMicros == 0 ? micros : min<u32>(micros, state.seedMicros);
}

/** Almost all round trips are shorter (RFC 6298, RFC 8985); 0: none is known. */
export function usualRoundTripMost(qp: QueuePair): u32 {
  const state = stateOf(qp);
  if (state == null) return 2 * qp.roundTripMicros;
  if (state.roundTripMicros == 0) return 2 * state.seedMicros;
  return state.roundTripMicros + max<u32>(state.roundTripMicros, 4 * state.variationMicros);
}

/** Almost all round trips are longer. */
export function usualRoundTripLeast(qp: QueuePair): u32 {
  const state = stateOf(qp);
  return state == null ? 0 : state.roundTripMicros - (state.roundTripMicros >> 2);
}

/** Bits of a path MTU in `PathState.provenMtu`; the rest is the time in units of 4 s. */
const MTU_BITS: u32 = 13;
const PROOF_BITS: u32 = 22;

function proofOf(context: Context): u32 {
  return (<u32>(context.now >> PROOF_BITS)) << MTU_BITS;
}

/** The path MTU of this queue pair is too large: others of the path may find it out at once. */
export function notePathMtu(context: Context, qp: QueuePair): void {
  const state = stateOf(qp);
  if (state == null) return;
  state.provenMtu = proofOf(context) | qp.mtu;
  while (state.heldFirst != 0) grantTurn(context, state);
}

/** Was that of another queue pair, no larger than this one's, within some seconds? */
export function isPathMtuDoubted(context: Context, qp: QueuePair): bool {
  const state = stateOf(qp);
  if (state == null || state.provenMtu == 0) return false;
  const mtu = state.provenMtu & ((1 << MTU_BITS) - 1);
  const age = (proofOf(context) - (state.provenMtu - mtu)) >> MTU_BITS;
  return age <= 1 && qp.mtu >= mtu;
}

/** `packets` packets of this queue pair have arrived. */
export function growPath(context: Context, qp: QueuePair, packets: u32): void {
  const state = stateOf(qp);
  if (state == null) return;
  state.stalls = 0;
  state.arrivedMicros = <u32>context.now;
  noteArrivals(state, packets);
  noteRate(state, <u32>context.now, packets);
  // A window that is not used need not grow.
  if (state.inFlight * UNIT * 2 < state.window) return;
  const most = mostOf(context);
  if (state.window >= most) return;
  const now = <u32>context.now;
  if (state.growth != <u32>Growth.CUBIC) {
    let grown = packets * UNIT;
    if (state.growth != <u32>Growth.SLOW_START) {
      grown = isQueued(state, now) ? 0 : grown / CAREFUL_PART;
    }
    state.window = min<u32>(state.window + grown, most);
    if (state.slowUntil != 0 && state.window >= state.slowUntil) state.growth = Growth.CUBIC;
    return;
  }
  const window = <f64>state.window / UNIT;
  if (targetOf(context, state) != 0) {
    // A packet in a round trip, unless the last one was too long.
    const more = state.queuedRounds == 0 ? <u32>(<f64>(packets * UNIT) / window) : 0;
    state.window = min<u32>(state.window + more, most);
    return;
  }
  if (state.epochMicros == 0) beginEpoch(state, now, window);
  const seconds =
    <f64>(now - state.epochMicros + state.roundTripMicros) / 1e6 - state.plateauSeconds;
  const cubic = GROWTH * seconds * seconds * seconds + <f64>state.windowMax;
  state.renoPackets += (RENO * packets) / window;
  const target = min<f64>(max<f64>(cubic, state.renoPackets), window * 1.5);
  let more =
    target > window ? ((target - window) / window) * packets : <f64>packets / (100 * window);
  if (isUnused(context, state)) {
    more = max<f64>(more, <f64>(packets * state.freeRounds) / UNUSED_PART);
  }
  state.window = min<u32>(state.window + <u32>(more * UNIT) + 1, most);
}

/** No queue, and no losses but a few: the path takes more. */
function isUnused(context: Context, state: PathState): bool {
  return (
    !isCubic(context) &&
    state.roundTripLeast >= LONG_MICROS &&
    state.queuedRounds == 0 &&
    state.linkLossShare < FEW_LOSSES
  );
}

function beginEpoch(state: PathState, now: u32, window: f64): void {
  state.epochMicros = max<u32>(now, 1);
  state.renoPackets = window;
  const gap = <f64>state.windowMax - window;
  if (gap <= 0) {
    state.windowMax = <u32>window;
    state.plateauSeconds = 0;
  } else state.plateauSeconds = cubeRoot(gap / GROWTH);
}

/** By Newton's method; `value` > 0. */
function cubeRoot(value: f64): f64 {
  let root = value > 1 ? value / 2 : 1;
  for (let turn = 0; turn < 40; turn++) root -= (root - value / (root * root)) / 3;
  return root;
}

/** Packets have arrived: shares of losses forget after a thousand. */
function noteArrivals(state: PathState, packets: u32): void {
  const kept = max<f64>(1 - <f64>packets / MEMORY_PACKETS, 0);
  state.lossShare *= kept;
  state.linkLossShare *= kept;
}

/**
 * Packets that arrive within the least round trip at the highest rate of the last rounds: what the
 * path takes without a queue.
 */
function noteRate(state: PathState, now: u32, packets: u32): void {
  state.roundArrived += packets;
  const micros = now - state.rateMicros;
  if (state.roundTripMicros == 0 || micros < state.roundTripMicros) return;
  const held = <u32>((<u64>state.roundArrived * state.roundTripLeast) / micros);
  state.rateMost = max<u32>(held, state.rateMost - (state.rateMost >> 4));
  state.roundArrived = 0;
  state.rateMicros = now;
}

/** Packets of this queue pair were lost, of which the last was sent at `sentMicros`. */
export function noteLosses(context: Context, qp: QueuePair, packets: u32, sentMicros: u32): void {
  const state = stateOf(qp);
  if (state == null) return;
  const share = <f64>packets / MEMORY_PACKETS;
  state.lossShare = min<f64>(state.lossShare + share, 1);
  // Packets may be less late by now: a needless retransmission would tell.
  state.lateMicros -= state.lateMicros >> LATE_FADES;
  // A link with a window of its own has slowed down by itself.
  if (context.paced) return;
  // A loss of a packet sent before the last cut says nothing about the window since.
  if (state.cutMicros != 0 && !isBefore(<u32>context.now, state.cutMicros, sentMicros)) return;
  if (isCubic(context)) {
    const before = wasJustCut(context, state) ? state.uncut : 0;
    state.uncut = max<u32>(before, state.window | state.growth);
    cut(context, state, 0);
    return;
  }
  if (!hasQueue(state)) {
    state.linkLossShare += share;
    if (state.linkLossShare <= LINK_LOSS_MAX) return;
    state.linkLossShare = LINK_LOSS_MAX / 2;
  }
  // On a short path a queue that loses much has no place for that.
  const isCrowded = state.roundTripLeast < LONG_MICROS && state.lossShare > CROWDED_LOSS;
  cut(context, state, isCrowded ? 0 : state.rateMost * UNIT);
}

/** In the last round, or so far in this one. */
function hasQueue(state: PathState): bool {
  const least = state.roundTripLeast;
  if (least < LONG_MICROS) {
    return state.queuedRounds > 0 || state.roundLeast > least + slackOf(state);
  }
  return (
    state.queuedRounds > 0 ||
    (state.roundTripMicros > least + (least >> 2) && state.roundLeast > least + (least >> 3))
  );
}

/**
 * A switch has marked packets. As in DCTCP (RFC 8257) and DCQCN (SIGCOMM 2015) the window falls by
 * half of the share of marked packets, once in a round trip: the first mark halves it, a few shave
 * it, so that the queue stays about as long as the switch lets it be without marks.
 */
export function cutPath(context: Context, qp: QueuePair): void {
  const state = stateOf(qp);
  if (state == null || !noteMark(state, <u32>context.now)) return;
  reduce(context, state, 1 - state.markShare / 2, 0);
}

/**
 * Counts a notification, and averages the share of marked packets over round trips: a notification
 * stands for the packets of MARK_MICROS. False: this round trip has had one.
 */
function noteMark(state: PathState, now: u32): bool {
  const round = max<u32>(state.roundTripMicros, MARK_MICROS);
  const since = now - state.markMicros;
  if (state.markShare != 0 && since < round) {
    state.markCount++;
    return false;
  }
  if (state.markShare == 0) state.markShare = 1;
  else {
    const clear = min<u32>(since / round - 1, MARK_ROUNDS);
    for (let turn: u32 = 0; turn < clear; turn++) state.markShare *= 1 - MARK_WEIGHT;
    // Last the round trip with the marks: after a long time without, they still count.
    const most = min<u32>(round / MARK_MICROS, state.window / UNIT);
    const share = min<f64>(<f64>state.markCount / <f64>most, 1);
    state.markShare += (share - state.markShare) * MARK_WEIGHT;
  }
  state.markMicros = now;
  state.markCount = 1;
  return true;
}

/** Packets were lost. `least`: the window keeps that much. */
function cut(context: Context, state: PathState, least: u32): void {
  // The unused part of the window has not been tried.
  state.window = min<u32>(state.window, max<u32>(state.inFlight * UNIT, WINDOW_LEAST));
  reduce(context, state, KEPT, least);
}

/** Leaves `kept` of the window, at least `least`. */
function reduce(context: Context, state: PathState, kept: f64, least: u32): void {
  state.cutMicros = max<u32>(<u32>context.now, 1);
  const window = state.window / UNIT;
  // Below the last maximum another flow takes its part: leave it some more (fast convergence).
  state.windowMax = window < state.windowMax ? <u32>((<f64>window * (1 + KEPT)) / 2) : window;
  const left = max<u32>(<u32>(<f64>state.window * kept), max<u32>(least, WINDOW_LEAST));
  state.window = min<u32>(left, state.window);
  state.growth = Growth.CUBIC;
  state.freeRounds = 0;
  state.epochMicros = 0;
}

/**
 * Nothing was heard of this queue pair for `micros`, a whole timeout. If nothing of the others
 * was, either, the path begins anew, and grows fast up to what a cut would have left (RFC 5681).
 */
export function collapsePath(context: Context, qp: QueuePair, micros: u32): void {
  const state = stateOf(qp);
  if (state == null) return;
  const now = <u32>context.now;
  if (now - state.arrivedMicros < micros) {
    noteLosses(context, qp, 1, now - micros);
    return;
  }
  // Timeouts in a row leave less each time.
  const before = max<u32>(state.window, state.slowUntil);
  state.slowUntil = max<u32>(<u32>(<f64>before * KEPT), WINDOW_LEAST);
  cut(context, state, 0);
  state.window = WINDOW_LEAST;
  state.growth = Growth.SLOW_START;
  // The queue of the time before it is gone.
  state.queuedFirst = 0;
}
