/**
 * Mutants that no test can notice, or none that ends in reasonable time, each with the reason. A
 * row names function and text, so it stays valid when lines or files move; mutants.test.ts demands
 * that its mutant exists.
 */
import type { Mutation } from './operators.js';

/** `becomes`: the text in place of `source`. An empty `source` is any mutant of the function. */
type Row = readonly [where: string, source: string, becomes: string, why: string];

const SPEED = 'speed only: the slower way does the same';
const RACE = 'needs another engine that changes the same entry between two accesses of this one';

export const SURVIVORS: readonly Row[] = [
  ['translate', 'head ^ ((<u64>key) << 32)', 'head | ((<u64>key) << 32)', SPEED],
  ['copyStrided', 'datum > 256', 'true', SPEED],
  ['move', 'whole > 1', 'false', SPEED],
  ['unevenWithin', 'level > 0', 'false', SPEED],
  ['unevenWithin', 'first + (LEAVES << level)', 'first - (LEAVES << level)', SPEED],
  [
    'isEven',
    'total % repeated != 0 || (cycles != 0 && total / repeated != cycles)',
    'true',
    'speed only: tables for uneven sources describe even ones, too',
  ],
  [
    'killOf',
    'endsWith(arena, slot, index)',
    'true',
    'speed only: the entry is seized, and checked again',
  ],
  ['recount', 'count == bound', 'false', 'speed only: the count is replaced by itself'],
  ['recount', 'boundTo(arena, note.key) == count', 'true', RACE],
  ['beginChange', 'atomic.cmpxchg<u32>(sequenceOf(entry), even, even + 1) == even', 'true', RACE],
  ['takeEntry', '!(sequence & 1) && beginChange(entry, sequence)', 'true', RACE],
  ['invalidateWindow', 'sequence & 1', 'false', RACE],
  ['translateSlowly', 'offset <= <u64>size', 'offset < <u64>size', RACE],
  ['allocBlock', 'address <= limit', 'address < limit', 'no block is empty'],
  ['freeBlock', '1', '2', 'a block has at least 64 bytes'],
  ['settled', '0', '1', 'one look less of 10,000'],
  [
    'countAccess',
    'arena.cacheModel == 0',
    'false',
    'the host makes the model before the first lookup',
  ],
  ['widenHull', 'return;', '', 'for the first source the sums below give the same'],
  [
    'compileComposite',
    'count > 0',
    'true',
    'before the first source is the head: where a source has its key it has 0 or 1, no key',
  ],
  [
    'compileDimensions',
    'count > 1',
    'true',
    'before the first dimension the stride is 0: one of stride 0 is made the same way',
  ],
  [
    'add',
    'count > 0',
    'true',
    'before the first range are a serial number and a count: no address is that low',
  ],
  [
    'sort',
    'itemAt(layout, 0, place - 1).until > until',
    'itemAt(layout, 0, place - 1).until >= until',
    'the order of items of one cycle does not change a sum',
  ],
  [
    'locateInstance',
    'length > layout.packed - within',
    'false',
    'an instance ends with a datum, and `locate` checks the end of the datum',
  ],
  [
    'invalidateWindow',
    'markKilled(arena, note);',
    '',
    'only fastRevoked reads this epoch, and not that of a window',
  ],
  ['usersOf', '0', '1', 'only the order of the counts matters'],
  [
    'drainBucket',
    'min<u32>(pool.mrsMax, arena.keyMask + 1)',
    'max<u32>(pool.mrsMax, arena.keyMask + 1)',
    'the end of the list ends the loop; the limit is for a circle that another process writes',
  ],
  ['drainBucket', 'count > 0', 'count >= 0', 'as above'],
  ['detachDead', 'known', 'true', '`known` is checked again before the domain is used'],
  ['row', 'bit < HEADER_COUNT', 'bit <= HEADER_COUNT', 'no opcode has a header of that number'],
  ['copyBytes', 'return;', '', SPEED],
  ['copyShort', 'length >= 4', 'false', SPEED],
  ['copyStrided', 'datum == 4', 'false', SPEED],
  ['copyStrided', 'datum == 8', 'false', SPEED],
  ['copyStrided', 'datum == 16', 'false', SPEED],
  ['copyStrided', 'datum > 256', 'false', SPEED],
  ['noteShift', 'popcnt(source.datum) == 1', 'false', SPEED],
  [
    'unevenWithin',
    'min<u32>(first + (LEAVES << level), items)',
    'max<u32>(first + (LEAVES << level), items)',
    SPEED,
  ],
  ['continues', '0', '1', 'speed only: data that could be one stay two'],
  ['compileInterleaved', 'parameters.count == 1', 'false', SPEED],
  ['compileInterleaved', 'continues(arena, layout, source)', 'false', SPEED],
  ['copiesPayload', 'size & 15', 'size | 15', SPEED],
  ['receivePlain', 'length - HEADERS', 'length + HEADERS', SPEED],
  ['receivePlain', 'size > qp.mtu', 'size >= qp.mtu', SPEED],
  ['sendPlain', 'source + WORK_REQUEST_SIZE', 'source - WORK_REQUEST_SIZE', SPEED],
  [
    'sendPlain',
    'index + 1 != qp.sendFetched || request.state != <u32>SendState.FETCHED',
    'true',
    SPEED,
  ],
  ['sendPlain', 'length == 0 || length > qp.mtu', 'true', SPEED],
  ['sendPlain', '0', '1', 'speed only: without LOCAL_WRITE the long way sends it'],
  ['sendPlain', 'true', 'false', 'speed only: the long way sends what follows'],
  ['inOnePiece', 'cursor.offset == sge.length', 'false', SPEED],
  ['computeTogether', 'path.skipsIcrc', 'true', SPEED],
  ['receiveBatch', 'segment >= length', 'segment > length', 'a packet as a run of one'],
  ['touchAhead', '', '', 'it only loads ahead: its bounds matter while an entry changes'],
  ['loadAhead', '', '', 'it only loads ahead: its bounds matter while an entry changes'],
  ['takeEntry', 'attempt < READ_ATTEMPTS', 'attempt <= READ_ATTEMPTS', 'one attempt more'],
  ['killOf', 'abandonChange(entry, even(entry));', '', RACE],
  ['takeFrom', '0', '1', 'one attempt less of many'],
  ['pop', 'atomic.cmpxchg<u64>(list, head, next) == head', 'true', RACE],
  ['find', 'atomic.load<u32>(sequenceOf(entry)) != before', 'false', RACE],
  ['findOther', '(sequence & 1) != 0 || atomic.load<u32>(at) != sequence', 'false', RACE],
  ['openChange', 'load<u32>(at) & ~1', 'load<u32>(at) | ~1', RACE],
  ['checkAccess', 'iova + length < iova', 'iova + length <= iova', 'the length is not 0'],
  [
    'isCopy',
    'changetype<usize>(layout) - places < <usize>LAYOUT_PLACES_BYTES',
    'changetype<usize>(layout) - places <= <usize>LAYOUT_PLACES_BYTES',
    'no program begins behind the places',
  ],
  ['holds', 'arena.layoutPlaces == 0', 'false', 'the compiler has checked the same'],
  ['sumUp', 'first < items', 'first <= items', 'the node behind the last one has no items'],
  ['findAttachment', '0', '1', 'a domain has fewer members than there are attachments'],
  ['publishLocalEndpoint', 'false', 'true', 'no caller reads the result'],
  ['publishLocalEndpoint', 'true', 'false', 'no caller reads the result'],
  [
    'insert',
    'blockAt(arena, at).start < block.start',
    'blockAt(arena, at).start <= block.start',
    'of two blocks at one place the next check refuses one as well',
  ],
  ['nextBinding', 'binding == 0', 'true', 'numbers are skipped, and each life has its own'],
  ['polyFinish', 'h1 ^ g1', 'h1 | g1', 'where the difference is taken h1 is all ones, and g1 is 0'],
  ['polyFinish', 'h2 ^ g2', 'h2 | g2', 'as above'],
  ['polyFinish', 'h3 ^ g3', 'h3 | g3', 'as above'],
  ['createCompletionQueue', 'cq.nextFree = 0;', '', 'the word is written again when it is free'],
  [
    'discardCompletions',
    'head - ringTail(cq.ring)',
    'head + ringTail(cq.ring)',
    'what was polled is marked as well, and is not read again',
  ],
  ['enterState', 'to == <u32>QpState.RTS', 'true', 'RTR leads to RTS; ERR and RESET return before'],
  ['countCompletion', 'table == 0', 'false', 'the words at address 0 are 0'],
  ['check', '0', '1', 'a request without SGEs does not read their count'],
  [
    'storeHeaders',
    'headers & Header.DETH',
    'headers | Header.DETH',
    'a header that is missing has offset 0, where the BTH is written afterwards',
  ],
  [
    'sealPacket',
    'covered - BTH_SIZE',
    'covered + BTH_SIZE',
    'counter and tag overwrite the bytes behind the packet',
  ],
  [
    'execute',
    'qp.nakPending < <u32>NakCode.INVALID_REQUEST',
    'qp.nakPending <= <u32>NakCode.INVALID_REQUEST',
    'with that NAK pending the queue pair is in ERR, and executes no request',
  ],
  [
    'needsReceive',
    'flags & PacketFlag.START',
    'flags | PacketFlag.START',
    'in the middle of a message its receive request is in hand',
  ],
  ['lengthFits', 'announces', 'true', 'what is left of a message is no longer than a message'],
  ['receiveRnrNak', '1', '2', 'a flag: only 0 is distinguished'],
  ['noteLoss', '1', '2', 'a flag: only 0 is distinguished'],
  [
    'takeMap',
    '(word << 6) + 1 < span',
    '(word << 6) + 1 <= span',
    'all bits of that word are beyond the span, and the loop below ends',
  ],
  [
    'endRequest',
    'qp.sendSgeOffset = 0;',
    '',
    'at the end of a message the cursor is at an SGE’s begin',
  ],
  ['entryOf', 'first + probe', 'first - probe', 'another order of the same entries'],
  ['checkPacket', 'pad', 'false', 'a packet of this length with a pad was refused before'],
  [
    'seekSge',
    'left < length',
    'left <= length',
    'a cursor at the end of an SGE goes on with the next one',
  ],
  ['initLaneTables', '0', '1', 'entries of value 0 are 0, as the memory is'],
  [
    'stageB',
    'at < past + B_LEFT',
    'at <= past + B_LEFT',
    'one vector more is cleared, which is written before it is read',
  ],
  [
    'crc32Copying',
    'address += part;',
    '',
    'a packet is not longer than a chunk: there is one turn',
  ],
  ['noteHeld', 'tells(qp) && isDue(context, qp)', 'true', 'speed only: one turn too many'],
];

/** Why this mutant may survive; undefined: it may not. */
export function reasonFor(mutation: Mutation): string | undefined {
  return SURVIVORS.find((row) => matches(row, mutation))?.[3];
}

export function matches([where, source, becomes]: Row, mutation: Mutation): boolean {
  if (where !== mutation.function) return false;
  return source === '' || (source === mutation.source && becomes === mutation.becomes);
}
