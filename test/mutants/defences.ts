/**
 * The defences that host/guide/ATTACKS.md names, each by the mutant that takes it out: a test must
 * fail then. `npm run mutants -- --defences`.
 */
import { CONNECTION_DEFENCES } from './connection-defences.js';
import type { Mutation } from './operators.js';
import { SERVICE_DEFENCES } from './service-defences.js';

/** A defence of the engine: one mutation of operators.ts, by function and text. */
export interface EngineDefence {
  readonly name: string;
  readonly function: string;
  readonly source: string;
  readonly becomes: string;
}

/** A defence of the host: text of a file that is replaced, and the test that must fail. */
export interface HostDefence {
  readonly name: string;
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly test: string;
}

const ENGINE: readonly (readonly [name: string, where: string, source: string, becomes: string])[] =
  [
    ['any source is served', 'isFromPeer', 'descriptor.sourceGid0 == path.remoteGid0', 'true'],
    [
      'half of the source address is compared',
      'isFromPeer',
      'descriptor.sourceGid1 == path.remoteGid1',
      'true',
    ],
    ['the low byte of a key is not compared', 'translateSlowly', 'entry.key == key', 'true'],
    ['the fast look-up does not compare lengths', 'translate', 'left | above', 'left & above'],
    [
      'the fast look does not compare access',
      'translate',
      '((<u64>need) << 32) | 0xffffffff',
      '((<u64>need) << 32) & 0xffffffff',
    ],
    ['any protection domain will do', 'translateSlowly', 'entry.pd == pd', 'true'],
    ['access flags are not compared', 'translateSlowly', '(entry.access & need) == need', 'true'],
    ['the offset is not compared', 'translateSlowly', 'offset <= <u64>size', 'true'],
    ['the length is not compared', 'translateSlowly', 'length <= size - <u32>offset', 'true'],
    [
      'more regions than the limit',
      'registerRegion',
      'atomic.add<u32>(counter, 1) >= arena.regionsMax',
      'false',
    ],
    ['a killed key is found', 'killRegion', 'entry.key = 0;', ''],
    [
      'a killed region is free at once',
      'regionReleased',
      '!domainQuiesced(arena, note.pd, note.killedAt)',
      'false',
    ],
    [
      'every key may be invalidated',
      'invalidateKey',
      '(entry.access & INVALIDATABLE) != 0',
      'true',
    ],
    ['auth: a packet without a tag is taken', 'receivePacket', 'path.auth != 0', 'false'],
    [
      'auth: a short way takes packets without tags',
      'receivesPlain',
      'pathOf(qp).auth == 0',
      'true',
    ],
    ['auth: every tag fits', 'aeadVerify', '(low | high) == 0', 'true'],
    ['auth: half of a tag is compared', 'aeadVerify', 'low | high', 'low & high'],
    [
      'auth: bytes of the last block are not covered',
      'padded',
      'memory.copy(block, from + <usize>(length - rest), rest);',
      '',
    ],
    ['auth: the lengths are not covered', 'aeadTag', 'store<u64>(block, plain);', ''],
    [
      'auth: a number is taken twice',
      'take',
      'store<u64>(word, load<u64>(word) | ((<u64>1) << (number & 63)));',
      '',
    ],
    [
      'auth: numbers below the window are taken',
      'isFresh',
      'auth.receiveNext - number > REPLAY_WINDOW',
      'false',
    ],
    [
      'auth: encrypted packets are sent as they are',
      'sealPacket',
      'aeadCrypt(context.authScratch, key, counter, packet + BTH_SIZE, covered - BTH_SIZE);',
      '',
    ],
    [
      'auth: the last generation is taken for packets of any number',
      'keyOf',
      'number < auth.receiveSince',
      'true',
    ],
    [
      'auth: the key of a generation that is over is kept',
      'forgetLast',
      "clear(at(auth, offsetof<PacketAuth>('lastReceiveKey')), CHACHA_KEY_SIZE);",
      '',
    ],
    [
      'a key opens what lies beyond the shared memory',
      'translate',
      'left | above | below',
      '(left | above) & below',
    ],
    [
      'a READ’s key is not checked',
      'acceptRead',
      'translateRemote(context.arena, key, qp.pd, qp.binding, address, length, need) == 0 && !allowsRemote(context.arena, key, qp.pd, address, length, need)',
      'false',
    ],
    ['a misaligned atomic is executed', 'acceptAtomic', '(<u32>address) & 7', 'false'],
    [
      'SEND_WITH_INV of a wrong key is fine',
      'invalidateReceived',
      '!invalidateRemote(context.arena, key, qp.pd, qp.binding)',
      'false',
    ],
    ['a WRITE is checked packet by packet only', 'placeWrite', 'checked = qp.messageLeft;', ''],
    ['UD takes any Q_Key', 'receiveDatagram', 'dethQkey(deth) != qp.qkey', 'false'],
    [
      'a NAK of a sweep ends a queue pair',
      'doubtsNak',
      'checks.failed < SUSPICIOUS || qp.timeoutMicros == 0',
      'true',
    ],
    [
      'any MSN is believed',
      'believesMsn',
      'isSent ? isPlausible(qp, msn) : isLate(qp, psn)',
      'true',
    ],
    [
      'a packet ahead of its turn is kept without the mark',
      'receiveAhead',
      '!isMarked(qp, packet)',
      'false',
    ],
    [
      'a response ahead is placed without the mark',
      'takeResponse',
      'mark != checksOf(qp).sendMark',
      'false',
    ],
    ['a response of another length is placed', 'place', 'length != expected', 'false'],
    [
      'a packet that is kept stays when another one comes with its PSN',
      'keepAhead',
      'drop(context, qp, psn);',
      '',
    ],
    [
      'UC: wrong keys may be tried for ever',
      'countWrongKey',
      '++checks.wrongKeys < WRONG_KEYS_MAX',
      'true',
    ],
    [
      'an RNR NAK pins a WRITE for ever',
      'receiveRnrNak',
      '!takesReceive(qp) && !oldestFlushes(qp)',
      'false',
    ],
    [
      'READ responses leave whether the peer is there or not',
      'sendResponses',
      'job.kind == <u32>PacketFlag.READ && awaitsSign(context, qp)',
      'false',
    ],
    [
      'congestion notifications close the window',
      'cutCongestionWindow',
      'cutPath(context, qp);',
      '',
    ],
    [
      'each congestion notification lowers the window',
      'noteMark',
      'state.markShare != 0 && since < round',
      'false',
    ],
    [
      'auth: a forged number moves the window',
      'openPacket',
      'key == 0 || !isTagged(context, auth, key, counter, packet, covered)',
      'false',
    ],
  ];

export const ENGINE_DEFENCES: readonly EngineDefence[] = ENGINE.map(
  ([name, where, source, becomes]) => ({ name, function: where, source, becomes }),
);

/** Is this the mutation that the row names? */
export function isOf(row: EngineDefence, mutation: Mutation): boolean {
  const { function: where, source, becomes } = mutation;
  return row.function === where && row.source === source && row.becomes === becomes;
}

export const HOST_DEFENCES: readonly HostDefence[] = Object.entries({
  ...CONNECTION_DEFENCES,
  ...SERVICE_DEFENCES,
}).flatMap(([file, changes]) =>
  changes.map(([name, test, find, replace]) => ({ name, file, find, replace, test })),
);
