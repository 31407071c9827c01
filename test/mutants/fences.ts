/** The fence of an invalidation, and ownership of objects that several threads share. */
import type { Row } from './mutants.js';

const FENCE = 'assembly/transport/invalidation-fence.ts';
const LOCAL_WORK = 'assembly/transport/local-work.ts';
const RESPONDER = 'assembly/transport/responder.ts';
const RECEIVE = 'assembly/transport/invalidating-receive.ts';
const DOMAINS = 'assembly/region/protection-domain.ts';
const LOCK = 'host/device/arena-lock.ts';
const SHARES = 'host/device/thread-share.ts';
const CONNECTIONS = 'host/device/connection-table.ts';
const CORE = 'host/cm/core.ts';
const ADOPTION = 'host/cm/adoption.ts';

export const FENCES: readonly Row[] = [
  [
    'a fence passes at once, whatever other engines do',
    FENCE,
    '    if (holderOf(context, qp, epoch) == 0) return true;',
    '    return true;',
  ],
  [
    'the check of a fence waits for a send buffer',
    'assembly/engine.ts',
    '  scheduleDueFences(c);\n',
    '',
  ],
  [
    'a fence passes at its second check',
    FENCE,
    '  if (holder == 0) return Fence.PASSED;',
    '  if (holder != 0 || holder == 0) return Fence.PASSED;',
  ],
  ['a fence never expires', FENCE, 'if (waited >= FENCE_MICROS_MAX) return Fence.EXPIRED;', ''],
  [
    'a fence waits for engines of other domains',
    DOMAINS,
    '    if (isAttached(arena, pd, slot)) return slot + 1;',
    '    return slot + 1;',
  ],
  [
    'an unbound window is no fence',
    LOCAL_WORK,
    '  return (entryAt(arena, index).access & KeyKind.WINDOW_TYPE_1) != 0;',
    '  return false;',
  ],
  [
    'a LOCAL_INV is no fence',
    LOCAL_WORK,
    '  if (request.opcode == <u32>WrOpcode.LOCAL_INV || request.opcode == <u32>WrOpcode.BIND_MR) {',
    '  if (request.opcode == <u32>WrOpcode.BIND_MR) {',
  ],
  [
    'a completion does not name the slot that blocks its fence',
    LOCAL_WORK,
    '    request.vendorError = vendor;\n',
    '',
  ],
  [
    'a received SEND_WITH_INV is no fence',
    RECEIVE,
    '  if (passesAtOnce(context, qp, epoch)) return Invalidation.PASSED;',
    '  return Invalidation.PASSED;',
  ],
  [
    'messages behind a fence use the receive request of the message before them',
    RESPONDER,
    '  const taken = qp.receiveFenced != 0 && ',
    '  const taken = qp.receiveFenced == 2 && ',
  ],
  [
    'a retransmitted SEND_WITH_INV behind a fence gets no answer',
    RESPONDER,
    '    if (qp.receiveFenced) noteImpatience(context, qp, psn);\n',
    '',
  ],
  [
    'a message with an expired fence completes with success',
    RECEIVE,
    '    if (qp.receiveHeld) completeReceive(context, qp, late, opcode, 0, 0, 0, false);\n',
    '',
  ],
  [
    'an invalidation becomes visible before its epoch',
    'assembly/region/key-table.ts',
    '    markKilled(arena, note);\n    note.state = KeyState.INVALID;\n    unbind(arena, note);\n    if (entry.access & KeyKind.MOBILE_REGION) note.pd = 0;\n    endChange(entry, sequence);\n',
    '    note.state = KeyState.INVALID;\n    unbind(arena, note);\n    if (entry.access & KeyKind.MOBILE_REGION) note.pd = 0;\n    endChange(entry, sequence);\n    markKilled(arena, note);\n',
  ],
  [
    'a fence checks the first attachment only',
    DOMAINS,
    '    if (node.pd == pd && node.slot == slot) return true;',
    '    return node.pd == pd && node.slot == slot;',
  ],
  [
    'regions are taken while a pool’s lists are rebuilt',
    'assembly/region/pool.ts',
    "offsetof<Pool>('closed')) == 0) return true;",
    "offsetof<Pool>('closed')) < 2) return true;",
  ],
  [
    'a pool’s lists are rebuilt while regions are taken',
    'assembly/region/pool-repair.ts',
    '  if (!allOut(arena)) {',
    '  if (false) {',
  ],
  [
    'a destroyed event channel leaves its readers waiting',
    'host/cm/event-channel.ts',
    '    for (const resolve of this.#waiting.splice(0)) resolve(undefined);',
    '    for (const resolve of this.#waiting.splice(1)) resolve(undefined);',
  ],
  [
    'a wait for completions does not end with the device',
    'host/verbs/completion-queue.ts',
    '      if (device.closed || this.context.failure) return take(completions);',
    '      if (this.context.failure) return take(completions);',
  ],
  [
    'an abandoned user keeps the regions that it holds',
    'host/pool/fmr-pool-user.ts',
    '    for (const desc of this.pool.heldBy(this)) {',
    '    for (const desc of this.pool.heldBy(this).slice(1)) {',
  ],
  [
    'a thread waits for the tables’ lock without a timeout',
    LOCK,
    '      if (turn >= SPINS && !(timeout ??= new LockTimeout(this.#method.waitMillisMax)).nap()) {',
    '      if (turn >= SPINS && (timeout ??= new LockTimeout(this.#method.waitMillisMax)).nap() && false) {',
  ],
  [
    'unshare does not free the lock of the ended thread',
    SHARES,
    '    tables.word.releaseFor(slot);\n',
    '',
  ],
  [
    'a key grants access to memory below that of users',
    'assembly/region/key-table.ts',
    '    ((left | above | below) >> 63);',
    '    ((left | above) >> 63);',
  ],
  [
    'connections of a dead process are not orphaned',
    'host/device/members.ts',
    '    this.connections.orphan(slot);',
    '',
  ],
  [
    'a connection of a live process is adopted',
    CONNECTIONS,
    'if ((state & PLACE_MASK) !== ConnectionPlace.ORPHANED) continue;',
    'if ((state & PLACE_MASK) === ConnectionPlace.FREE) continue;',
  ],
  [
    'an entry that a dead process was writing is never freed',
    CONNECTIONS,
    'this.#change(place, stateOf(ConnectionPlace.WRITING, slot), ConnectionPlace.FREE);',
    '',
  ],
  [
    'a process frees the entry of another process',
    CONNECTIONS,
    'this.#change(place, stateOf(ConnectionPlace.KEPT, this.#slot), ConnectionPlace.FREE);',
    'Atomics.store(this.#words, this.#stateWord(place), ConnectionPlace.FREE);',
  ],
  [
    'other processes know a connection only after it is established',
    CORE,
    "const TOLD: ReadonlySet<CmState> = new Set(['REP_SENT', 'REP_RCVD', 'ESTABLISHED']);",
    "const TOLD: ReadonlySet<CmState> = new Set(['ESTABLISHED']);",
  ],
  ['an ended connection keeps its entry', CORE, '      table?.forget(connection.place);', ''],
  [
    'a device that closes tells nothing to a peer whose RTU it waits for',
    'host/cm/endings.ts',
    "({ state }) => state === 'ESTABLISHED' || state === 'REP_SENT',",
    "({ state }) => state === 'ESTABLISHED',",
  ],
  [
    'a DREQ for a dead process is sent once',
    ADOPTION,
    '  connection.retriesLeft = ADOPTED_RETRIES;',
    '',
  ],
  [
    "a connection of this process is adopted as a dead process's",
    ADOPTION,
    'if (core.connections.has(localId) || peer.port === 0) return false;',
    'if (peer.port === 0) return false;',
  ],
];
