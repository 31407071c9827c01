/**
 * Checks of FLUSH and ATOMIC WRITE, and of what keeps memory: who may, what is held back, what is
 * never acknowledged.
 */
import type { Row } from './mutants.js';

const PERSIST = 'assembly/transport/persist.ts';
const RESPONSE = 'assembly/transport/response.ts';
const RESPONDER = 'assembly/transport/responder.ts';
const FETCH = 'assembly/transport/fetch.ts';
const ARRIVAL = 'assembly/transport/arrival.ts';
const COMPLETER = 'assembly/transport/completer.ts';
const PLACE = 'assembly/transport/place.ts';
const PIECES = 'assembly/region/layout-pieces.ts';
const RING = 'host/device/durable-ring.ts';
const EXCHANGE = 'host/device/durable-exchange.ts';
const SEGMENTS = 'host/device/durables.ts';
const THREAD = 'host/device/durable-thread.ts';
const GATHERING = 'host/device/gathering.ts';
const RUNNER = 'host/device/runner.ts';
const SPIN = 'host/device/spin.ts';
const COMMITTER = 'host/device/committer.ts';
const SYNC = 'host/pmem/sync.ts';
const HEADER = 'host/pmem/header.ts';
const LOG = 'host/rpma/replicated-log.ts';
const REGION = 'host/rpma/mr.ts';
const OPFS = 'host/pmem/opfs-file.ts';

export const PLACEMENTS: readonly Row[] = [
  [
    'a process that fails to create a file leaves NAME.new',
    'host/pmem/pmem-file.ts',
    'if (isOurs && isNamed(fd, unfinished)) unlinkSync(unfinished);',
    '',
  ],
  [
    'without koffi a region is created before its name is locked',
    'host/pmem/pmem-file.ts',
    'let lock = await FileLock.takeName(name, posix);',
    'let lock: FileLock | undefined;',
  ],
  [
    'a NAME.new that another process is writing is removed',
    'host/pmem/pmem-file.ts',
    'else if (FileLock.isLockedByOther(fd)) {',
    'else if (false) {',
  ],
  [
    'a region with write permission for other users is opened',
    'host/link/private-file.ts',
    'if ((mode & writers) === 0) return;',
    'return;',
  ],
  [
    'a file of another user is opened',
    'host/link/private-file.ts',
    'if (uid !== user) {',
    'if (false) {',
  ],
  [
    'a link of another user is followed',
    'host/link/private-file.ts',
    'if (user === undefined || stat.uid === user || stat.uid === 0) return;',
    'return;',
  ],
  [
    'the page cache of an earlier process is trusted',
    'host/pmem/pmem-file.ts',
    'await reachMedium(fd, path, version, posix);',
    '',
  ],
  [
    'a hidden path is judged by the later mount that hides it',
    'host/pmem/place.ts',
    'below !== undefined && below.order < above.order ? below : undefined',
    'below',
  ],
  [
    'an overlay that omits syncs counts as a disk',
    'host/pmem/place.ts',
    'if (leaving !== undefined) {',
    'if (false) {',
  ],
  [
    'a process without koffi ignores the lock of a process with koffi',
    'host/pmem/file-lock.ts',
    'if (isDescriptorLocked(dev, ino)) {',
    'if (false) {',
  ],
  [
    'a process with koffi ignores the lock of a process without koffi',
    'host/pmem/file-lock.ts',
    'if (await hasLiveOwner(path)) throw taken(path);',
    '',
  ],
  [
    'what has arrived behind a FLUSH makes no room',
    'assembly/transport/window.ts',
    'fitsShare(qp, qp.chargeSent - qp.chargeArrived) &&',
    'fitsShare(qp, qp.chargeSent - qp.chargeAcked) &&',
  ],
  [
    'what was never sent may have arrived',
    ARRIVAL,
    'if (arrived > psnDistance(qp.psnUnacked, qp.psnMax)) {',
    'if (false) {',
  ],
  [
    'what is sent again has arrived all the same',
    'assembly/transport/requester.ts',
    'if (psnCompare(psn, qp.psnArrived) < 0) {',
    'if (false) {',
  ],
  [
    'who agreed on no selective repeat has it asked for',
    COMPLETER,
    'if (qp.reorderPeer == 0 || !inFlight(qp, psn)',
    'if (!inFlight(qp, psn)',
  ],
  [
    'a map of who keeps nothing counts',
    ARRIVAL,
    'if (qp.reorderPeer != 0 && (low | high) != 0) takeMissing',
    'if ((low | high) != 0) takeMissing',
  ],
  [
    'strangers are told what has arrived',
    ARRIVAL,
    'return pathOf(qp).ownKind != 0;',
    'return true;',
  ],
  [
    'what has arrived is told once, and may get lost',
    RESPONSE,
    '    // Perhaps it was told what has arrived, and that got lost.\n    qp.sackPending = 1;\n',
    '',
  ],
  [
    'more READs are asked for as soon as their requests have arrived',
    'assembly/transport/requester.ts',
    'if (request.opcode == <u32>WrOpcode.RDMA_READ && !windowOpenToRead(qp)) return null;',
    '',
  ],
  [
    'a placement that nobody knows is taken',
    PERSIST,
    'if (placement == 0 || placement & ~known) return false;',
    'if (placement == 0) return false;',
  ],
  [
    'a FLUSH of no placement is taken',
    PERSIST,
    'if (placement == 0 || placement & ~known) return false;',
    'if (placement & ~known) return false;',
  ],
  [
    'a selectivity that nobody knows is taken',
    PERSIST,
    'if (selectivityOf(feth) > <u32>SelectivityLevel.MR) return false;',
    '',
  ],
  [
    'the queue pair grants every placement',
    PERSIST,
    'return (qp.access & rights) == rights;',
    'return true;',
  ],
  [
    'one placement of two is enough',
    PERSIST,
    'return (qp.access & rights) == rights;',
    'return (qp.access & rights) != 0;',
  ],
  [
    'a FLUSH for persistence is answered at once',
    PERSIST,
    'if (!names || !(rights & AccessFlag.FLUSH_PERSISTENT)) return;',
    'return;',
  ],
  [
    'what was before a FLUSH is acknowledged once',
    'assembly/transport/responder.ts',
    '    acknowledgeAgain(qp, psn);\n',
    '',
  ],
  [
    'ATOMIC WRITE overtakes a FLUSH',
    PERSIST,
    'const held = qp.heldJobs > 0;',
    'const held = false;',
  ],
  ['a misaligned ATOMIC WRITE is executed', PERSIST, 'if ((<u32>address) & 7) {', 'if (false) {'],
  ['where memory is misaligned, too', PERSIST, 'return linear & 7 ? 0 : linear;', 'return linear;'],
  [
    'a FLUSH is begun before what waits in front of it',
    PERSIST,
    'if (job.state == <u32>JobState.WAITING) break;',
    '',
  ],
  [
    'an answer to another FLUSH is taken',
    PERSIST,
    'return job.serial == serial && job.state == <u32>JobState.ASKED ? job : null;',
    'return job.state == <u32>JobState.ASKED ? job : null;',
  ],
  ['the first of several stores answers for all', PERSIST, 'if (job.reference != 0) return;', ''],
  ['what failed is acknowledged', PERSIST, 'if (failed) {\n', 'if (false) {\n'],
  ['an impatient peer is told nothing', PERSIST, 'qp.busyPending = 1;\n', ''],
  [
    'answers overtake a FLUSH that is under way',
    RESPONSE,
    'if (job.state != <u32>JobState.READY && !getReady(context, qp, job)) return false;',
    'if (job.state == <u32>JobState.WAITING && !getReady(context, qp, job)) return false;',
  ],
  [
    'what is behind a FLUSH is acknowledged before it',
    RESPONSE,
    'if (qp.jobHead != qp.jobTail) return sendWithheld(context, qp);',
    '',
  ],
  [
    'what is held is dropped when the peer goes back',
    RESPONSE,
    'if (qp.heldJobs > 0) {\n    return psnCompare',
    'if (false) {\n    return psnCompare',
  ],
  [
    'a receive request completes before the FLUSH in front of it',
    RESPONDER,
    'const early = qp.heldJobs > 0 && (flags & PacketFlag.RECEIVE) != 0;',
    'const early = false;',
  ],
  [
    'ATOMIC WRITE may have any length',
    RESPONDER,
    'return size == 8 && rethLength(packet + EXTENDED) == 8 && bthPadCount(packet) == 0;',
    'return true;',
  ],
  [
    'ATOMIC WRITE needs no right of the queue pair',
    RESPONDER,
    'PacketFlag.ATOMIC_WRITE) granted = (qp.access & AccessFlag.REMOTE_WRITE) != 0;',
    'PacketFlag.ATOMIC_WRITE) granted = true;',
  ],
  [
    'a WRITE overtakes an ATOMIC WRITE to its word',
    PLACE,
    'const waits = job.state == <u32>JobState.WAITING;',
    'const waits = false;',
  ],
  [
    'a FLUSH with a fence does not wait',
    FETCH,
    '(request.sendFlags & SendFlag.FENCE) != 0 &&\n    request.state',
    'false &&\n    request.state',
  ],
  [
    'ATOMIC WRITE to any address is sent',
    FETCH,
    'if (word && (<u32>request.remoteAddress) & 7) return WcStatus.LOC_QP_OP_ERR;',
    '',
  ],
  ['a peer at work uses up the retries', COMPLETER, 'if (oldestFlushes(qp)) {', 'if (false) {'],
  [
    'a range at address 0 is the whole region, whoever asks',
    PERSIST,
    'return pathOf(qp).doublesFlush != 0 && rethAddress(reth) == 0 && rethLength(reth) > 0;',
    'return rethAddress(reth) == 0 && rethLength(reth) > 0;',
  ],
  [
    'an ACK completes every FLUSH',
    COMPLETER,
    'return request.opcode == <u32>WrOpcode.FLUSH && pathOf(qp).doublesFlush != 0;',
    'return request.opcode == <u32>WrOpcode.FLUSH;',
  ],
  [
    'a FLUSH through a layout may go beyond it',
    PIECES,
    '} else if (!whole && (address > <u64>layout.packed || length > layout.packed - <u32>address)) {',
    '} else if (false) {',
  ],
  [
    'a FLUSH is acknowledged before its sync',
    THREAD,
    '      await store.flush(ranges);\n      ring.finish(end);',
    '      ring.finish(end);\n      wake();\n      await store.flush(ranges);',
  ],
  [
    'a store that failed is asked again by its thread',
    THREAD,
    'if (ring.failed) ring.fail(end);\n    else {',
    '{',
  ],
  [
    'a store waits for company without end',
    GATHERING,
    'return pending < this.#company ? Math.max(0, left) : 0;',
    'return pending < this.#company ? Infinity : 0;',
  ],
  [
    'a store waits for company as long as its turn took',
    GATHERING,
    'const left = this.#end + took * SHARE - now;',
    'const left = this.#end + took - now;',
  ],
  ['a store that waited in vain waits again', GATHERING, 'this.#alone = this.#vain;', ''],
  [
    'who comes back too late is one group with the others',
    GATHERING,
    'if (left <= 0) this.#halves = now < this.#end + took * LATE_TURNS;',
    '',
  ],
  [
    'who came long ago makes two groups of newcomers',
    GATHERING,
    'if (left <= 0) this.#halves = now < this.#end + took * LATE_TURNS;',
    'if (left <= 0) this.#halves = true;',
  ],
  [
    'a group is all that there are',
    GATHERING,
    'return this.#halves ? Math.ceil(this.#company / 2) : Infinity;',
    'return Infinity;',
  ],
  [
    'a turn is for all that wait, however many',
    RING,
    'const end = (start + Math.min(most, (this.#head - start) >>> 0)) | 0;',
    'const end = this.#head;',
  ],
  ['who gave a store work is in its way', RUNNER, '    this.#stores = true;\n', ''],
  [
    'who took back from a store is in its way',
    RUNNER,
    'this.#stores = answers > 0;',
    'this.#stores = false;',
  ],
  [
    'nobody looks for work beside a slow store',
    RUNNER,
    'this.#stores = answers > 0;',
    'if (answers > 0) this.#stores = true;',
  ],
  [
    'on two processors who looks is in the way of a store',
    SPIN,
    'if (othersWork && this.#isCrowded) return now;',
    '',
  ],
  [
    'on many processors nobody looks beside a store',
    SPIN,
    'if (othersWork && this.#isCrowded) return now;',
    'if (othersWork) return now;',
  ],
  [
    'a store in the application’s thread is believed before it is done',
    COMMITTER,
    'this.#commit(ranges, (error) => {',
    'this.#ring.finish(end);\n    this.#finished();\n    this.#commit(ranges, (error) => {',
  ],
  [
    'what the disk refused is acknowledged',
    RING,
    'answer(part, failed && ((index - firstLost) | 0) >= 0);',
    'answer(part, false);',
  ],
  [
    'a store’s thread sleeps on when work comes',
    RING,
    'if (((this.#head - Atomics.load(words, this.#at + 6)) | 0) >= 0) this.#call();',
    '',
  ],
  [
    'ranges that overlap lose their end',
    RING,
    'last.length = Math.max(last.length, offset + length - last.offset);',
    '',
  ],
  [
    'memory that no store keeps is durable',
    EXCHANGE,
    'this.#answer(part, true);',
    'this.#answer(part, false);',
  ],
  [
    'a region may reach beyond what is kept',
    SEGMENTS,
    'if (offset >= 0 && length <= segment.length - offset) return true;',
    'if (offset >= 0 && offset < segment.length) return true;',
  ],
  ['a region is flushed after its sync failed', SYNC, '    markFailed(state);\n', ''],
  ['a region that was written is not synced', SYNC, '\n  fdatasyncSync(task.fd);\n}', '\n}'],
  [
    'a mapped region is not synced',
    SYNC,
    'posix.syncMemory(task.mappedAt + from, Math.max(to - from, page));\n  } else fdatasyncSync(task.fd);',
    '}',
  ],
  ['a sync that was refused is taken for one', SYNC, 'throw new SyncError(code, message);\n', ''],
  [
    'a file that was cut off is opened',
    HEADER,
    'if (fileBytes - header.dataOffset < header.length) {',
    'if (false) {',
  ],
  [
    'a header that was torn is believed',
    HEADER,
    'if (view.getBigUint64(BODY, true) !== checksum(bytes)) return false;',
    '',
  ],
  [
    'the tail of a log moves before its record is flushed',
    LOG,
    '      conn.flush(mr, offset + from, length, PERSISTENT, COMPLETION_ON_ERROR);\n',
    '',
  ],
  [
    'an append is reported before its tail is flushed',
    LOG,
    'conn.atomicWrite(mr, offset, tail, COMPLETION_ON_ERROR);\n      conn.flush(mr, offset, tail.length, PERSISTENT, COMPLETION_ALWAYS);',
    'conn.atomicWrite(mr, offset, tail, COMPLETION_ALWAYS);',
  ],
  [
    'a record that was damaged is read',
    LOG,
    'if (view.getUint32(at + 4, true) !== checkOf(record)) {',
    'if (false) {',
  ],
  [
    'a descriptor for nothing is taken',
    REGION,
    "if (usage === 0) throw new MisuseError('descriptor', 'is of a region that is for nothing');",
    '',
  ],
  [
    'a region of a browser has its name before it is whole',
    OPFS,
    'const unfinished = `${name}.new`;',
    'const unfinished = name;',
  ],
  [
    'a region of a browser says that it has grown before it has',
    OPFS,
    'allocate(handle, dataOffset + length, dataOffset + bytes);',
    '',
  ],
];
