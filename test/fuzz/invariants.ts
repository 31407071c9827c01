/** Invariants of the engine between two calls, whatever its input was. */
import {
  CompletionQueueLayout,
  ContextLayout,
  ContextSlotLayout,
  PATH_STATES,
  PATH_STATE_SIZE,
  PATH_TIMER,
  PathLayout,
  PathStateLayout,
  QUEUE_PAIR_PATH,
  QUEUE_PAIR_TIMER,
  QpState,
  QpType,
  QueuePairLayout,
  TimerNodeLayout,
  TimerWheelLayout,
  WcStatusName,
} from '#build/abi.js';
import { structAt, type Struct } from '../../host/engine/struct.js';
import type { Pair, World } from './world.js';

type QueuePairStruct = Struct<typeof QueuePairLayout>;

/** The link of a list's last member (memory/list.ts). */
const LIST_END = 1;
const COMPLETION_SIZE = 64;
const RING_HEADER = 128;

function demand(holds: boolean, what: string): void {
  if (!holds) throw new Error(`invariant broken: ${what}`);
}

function distance(from: number, to: number): number {
  return (to - from) & 0xffffff;
}

function checkRequester(name: string, qp: QueuePairStruct): void {
  const fetched = (qp.sendFetched - qp.sendTail) >>> 0;
  demand(fetched <= qp.sendEntries, `${name}: ${fetched} requests fetched`);
  demand((qp.sendNext - qp.sendTail) >>> 0 <= fetched, `${name}: sendNext outside`);
  for (const field of ['psnNext', 'psnUnacked', 'psnMax', 'psnExpected'] as const) {
    demand(qp[field] < 1 << 24, `${name}: ${field} has more than 24 bits`);
  }
  const sent = distance(qp.psnUnacked, qp.psnNext);
  const most = distance(qp.psnUnacked, qp.psnMax);
  if (qp.state === QpState.ERR) {
    // Nothing is sent any more: where an answer ended it does not matter.
  } else if (qp.type === QpType.RC) {
    demand(sent <= most, `${name}: psnNext beyond psnMax (${sent}, ${most})`);
    const arrived = distance(qp.psnUnacked, qp.psnArrived);
    demand(arrived <= sent, `${name}: ${arrived} packets have arrived of ${sent}`);
    demand(most < 1 << 23, `${name}: ${most} packets under way`);
  } else demand(sent === 0, `${name}: an unreliable queue pair waits for answers`);
  const reads = (qp.chunkHead - qp.chunkTail) >>> 0;
  demand(reads <= qp.rdAtomicLimit, `${name}: ${reads} READs in flight`);
  demand(qp.rdAtomicMax <= qp.rdAtomicLimit, `${name}: rdAtomicMax`);
  demand(qp.retryLeft <= 7 && qp.rnrRetryLeft <= 7, `${name}: retry counts`);
  demand(qp.sendSgeIndex <= qp.sendSgeMax, `${name}: send cursor at ${qp.sendSgeIndex}`);
}

function checkResponder(name: string, qp: QueuePairStruct, sgeMax: number): void {
  // The fence of a received SEND_WITH_INV has an entry of its own.
  const jobs = ((qp.jobHead - qp.jobTail) >>> 0) - qp.receiveFenced;
  demand(jobs <= qp.rdAtomicLimit, `${name}: ${jobs} answers wait`);
  demand(qp.message <= 2, `${name}: message kind ${qp.message}`);
  demand(qp.receiveHeld <= 1, `${name}: receiveHeld ${qp.receiveHeld}`);
  demand(qp.receiveSgeIndex <= sgeMax, `${name}: receive cursor at ${qp.receiveSgeIndex}`);
  demand(qp.msn < 1 << 24, `${name}: msn`);
  demand(qp.nakPending <= 0xff, `${name}: NAK ${qp.nakPending}`);
}

function checkQueuePair(name: string, pair: Pair): void {
  const { struct: qp, spec } = pair;
  demand(qp.qpn === pair.qp.qpNum && qp.type === spec.type, `${name}: identity`);
  demand(qp.state <= QpState.ERR, `${name}: state ${qp.state}`);
  demand(qp.type !== QpType.RC || qp.state !== QpState.SQE, `${name}: RC in SQE`);
  const served = qp.state >= QpState.RTR && qp.state <= QpState.SQE;
  const mtus = [256, 512, 1024, 2048, 4096];
  demand(!served || mtus.includes(qp.mtu), `${name}: path MTU ${qp.mtu} in state ${qp.state}`);
  checkRequester(name, qp);
  checkResponder(name, qp, Math.max(qp.receiveSgeMax, pair.srq?.maxSge ?? 0));
}

/** Queue pairs of an intrusive list (memory/list.ts): without a cycle, `last` at the end. */
function membersOf(
  world: World,
  first: number,
  last: number,
  field: 'readyLink' | 'delayedAckLink',
): Set<number> {
  const offset = QueuePairLayout.fields[field][0];
  const { words } = world.device.arena.memory;
  const found = new Set<number>();
  let end = last;
  for (let at = first; at > LIST_END; at = words[at >> 2]!) {
    demand(!found.has(at - offset), `the list of ${field} has a cycle`);
    found.add(at - offset);
    end = at;
  }
  demand(first === 0 || end === last, `the end of the list of ${field}`);
  return found;
}

/** The list of those with something to send, and the timers: whole, and as the structs say. */
function checkLists(world: World): void {
  const { memory } = world.device.arena;
  const context = structAt(memory, ContextLayout, world.device.engine.context);
  const waiting = membersOf(world, context.readyFirst, context.readyLast, 'readyLink');
  const delayed = membersOf(
    world,
    context.delayedAckFirst,
    context.delayedAckLast,
    'delayedAckLink',
  );
  const isDue = context.delayedAckMicros !== 0n;
  demand(isDue === delayed.size > 0, 'delayed acknowledgements and their deadline disagree');
  let timers = 0;
  for (const { qp, struct } of world.pairs) {
    demand(waiting.has(qp.handle) === (struct.readyLink !== 0), 'a link without its ready list');
    demand(delayed.has(qp.handle) === (struct.delayedAckLink !== 0), 'a link without its list');
    const timer = structAt(memory, TimerNodeLayout, qp.handle + QUEUE_PAIR_TIMER);
    if (timer.slot !== 0) timers++;
    else demand(timer.deadline === 0n, 'a timer with a deadline is not in the wheel');
  }
  for (let index = 0; index < PATH_STATES; index++) {
    const state = context.pathStates + index * PATH_STATE_SIZE;
    const { slot, deadline } = structAt(memory, TimerNodeLayout, state + PATH_TIMER);
    if (slot !== 0) timers++;
    else demand(deadline === 0n, 'the timer of a path has a deadline and is not in the wheel');
  }
  checkPaths(world);
  const wheel = structAt(memory, TimerWheelLayout, context.timers);
  demand(wheel.count === timers, `${wheel.count} timers in the wheel, ${timers} expected`);
  const slot = structAt(memory, ContextSlotLayout, context.slot);
  demand((slot.activity & 1) === 0, 'the engine never left its call');
}

/** Checks that the counts of a path equal the sums over its queue pairs. */
function checkPaths(world: World): void {
  const { memory } = world.device.arena;
  const paths = new Map<
    number,
    { inFlight: number; busy: number; granted: number; users: number }
  >();
  for (const { qp, struct } of world.pairs) {
    const { state } = structAt(memory, PathLayout, qp.handle + QUEUE_PAIR_PATH);
    if (state === 0) continue;
    const sum = paths.get(state) ?? { inFlight: 0, busy: 0, granted: 0, users: 0 };
    paths.set(state, sum);
    sum.inFlight += struct.flightNoted;
    sum.busy += struct.flightNoted > 0 ? 1 : 0;
    sum.granted += struct.begins;
    sum.users++;
  }
  for (const [at, sum] of paths) {
    const state = structAt(memory, PathStateLayout, at);
    for (const field of ['inFlight', 'busy', 'granted', 'users'] as const) {
      const [counted, expected] = [state[field], sum[field]];
      demand(
        counted === expected,
        `a path counts ${counted} ${field}, its queue pairs ${expected}`,
      );
    }
  }
}

/** `hostile`: the application scribbles in its rings, so what they hold proves nothing. */
function checkCompletions(world: World, pair: Pair): void {
  const { view, words } = world.device.arena.memory;
  const cq = structAt(world.device.arena.memory, CompletionQueueLayout, pair.cq.handle);
  const head = words[cq.ring >> 2]!;
  const tail = words[(cq.ring + 64) >> 2]!;
  demand((head - tail) >>> 0 <= cq.entries, 'a completion queue holds more than it can');
  for (let index = tail; index !== head; index = (index + 1) >>> 0) {
    const at = cq.ring + RING_HEADER + (index & (cq.entries - 1)) * COMPLETION_SIZE;
    const status = view.getUint32(at + 16, true);
    demand(status in WcStatusName, `a completion with status ${status}`);
  }
}

/** Every packet that came in has one outcome. */
function checkCounters(world: World): void {
  const c = world.device.engine.counters;
  demand(c.rcvdPkts === BigInt(world.intake.packets), `${c.rcvdPkts} packets counted`);
  demand(c.rcvdBytes === BigInt(world.intake.bytes), `${c.rcvdBytes} bytes counted`);
  demand(c.sentPkts === BigInt(world.link.sent), `${c.sentPkts} sent packets counted`);
  const unfit = c.dropMalformed + c.dropUnknownOpcode + c.dropService;
  const outcomes = unfit + c.dropSource + c.dropIcrc + c.icrcExact + c.icrcByIpId + c.icrcSkipped;
  // Responses in a state without requests are counted behind the ICRC as well, packets of an
  // authenticated peer looked at behind it; those without a tag need no ICRC to be dropped.
  const twice = world.keys ? unfit : 0n;
  const least = c.rcvdPkts - c.dropQueuePair - c.dropTag;
  const known = outcomes >= least && outcomes <= c.rcvdPkts + twice + c.localPackets;
  demand(known, `${c.rcvdPkts} packets came in, ${outcomes} have an outcome`);
}

/** Throws when one is broken. `hostile`: rings were scribbled in, so they prove nothing. */
export function checkInvariants(world: World, hostile: boolean): void {
  world.pairs.forEach((pair, index) => {
    checkQueuePair(`pair ${index}`, pair);
    if (!hostile) checkCompletions(world, pair);
  });
  checkLists(world);
  checkCounters(world);
}
