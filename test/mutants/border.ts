/** Checks of what comes in: packets, keys, posted work. */
import type { Row } from './mutants.js';

const PACKET = 'assembly/wire/packet.ts';
const RECEIVE = 'assembly/transport/receive.ts';
const PLAIN_RECEIVE = 'assembly/transport/plain-receive.ts';
const PLAIN_SEND = 'assembly/transport/plain-send.ts';
const KEYS = 'assembly/region/key-table.ts';
const FETCH = 'assembly/transport/fetch.ts';
const RECEIVE_QUEUE = 'assembly/transport/receive-queue.ts';

export const BORDER: readonly Row[] = [
  // The parser.
  [
    'a packet shorter than BTH and ICRC is parsed',
    PACKET,
    'if (length < 16) return',
    'if (length < 8) return',
  ],
  [
    'a packet longer than any MTU is parsed',
    PACKET,
    'if (length > PACKET_SIZE_MAX) return',
    'if (false) return',
  ],
  ['an unaligned packet is parsed', PACKET, 'if (length & 3) return', 'if (false) return'],
  ['an unknown opcode is parsed', PACKET, 'if (!flags) return PacketStatus.UNKNOWN_OPCODE;', ''],
  [
    'the transport version is not looked at',
    PACKET,
    'if (bthVersion(packet)) return PacketStatus.VERSION;',
    '',
  ],
  [
    'the pad count may reach into the headers',
    PACKET,
    'if (length < frame + pad) return',
    'if (length < frame) return',
  ],
  [
    'payload in a packet that has none is parsed',
    PACKET,
    'if (!(flags & PacketFlag.PAYLOAD) &&',
    'if (false &&',
  ],

  // The border.
  [
    'a queue pair in RESET or ERR is served',
    RECEIVE,
    'if (qp == null || !serves(qp.state)) {',
    'if (qp == null) {',
  ],
  [
    'a queue pair of another number is served',
    RECEIVE,
    'return qp.qpn == qpn ? qp : null;',
    'return qp;',
  ],
  [
    'opcodes of other services are served',
    RECEIVE,
    'if (!serviceFits(qp, bthOpcode(packet))) {',
    'if (false) {',
  ],
  [
    'any source is served',
    RECEIVE,
    'return descriptor.sourceGid0 == path.remoteGid0 && descriptor.sourceGid1 == path.remoteGid1;',
    'return true;',
  ],
  [
    'half of the source address is compared',
    RECEIVE,
    ' && descriptor.sourceGid1 == path.remoteGid1;',
    ';',
  ],
  [
    'the ICRC is not checked',
    RECEIVE,
    'if (!checkIcrc(context, path, sourcePort, packet, length)) {',
    'if (false) {',
  ],
  [
    'the P_Key is not checked',
    RECEIVE,
    'if (mayTalk(bthPkey(packet), context.pkey)) return true;',
    'return true;',
  ],
  [
    'limited members are not heard',
    RECEIVE,
    '((theirs ^ ours) & ~FULL_MEMBER) == 0',
    'theirs == ours',
  ],
  ['limited members talk to each other', RECEIVE, ' && ((theirs | ours) & FULL_MEMBER) != 0', ''],
  [
    'an ICRC without IP may be solved for',
    RECEIVE,
    'if (!isIpv4 || icrcSolveIpId',
    'if (icrcSolveIpId',
  ],
  ['responses are taken before RTS', RECEIVE, 'if (!requests(qp.state)) {', 'if (false) {'],
  [
    'a response with a NAK in its AETH is taken',
    RECEIVE,
    'if (hasAeth && syndromeKind',
    'if (false && syndromeKind',
  ],

  // Keys.
  [
    'the low byte of a key is not compared',
    KEYS,
    'entry.key == key &&\n      entry.pd == pd &&',
    'entry.key >>> 8 == key >>> 8 &&\n      entry.pd == pd &&',
  ],
  [
    'the fast look-up does not compare lengths',
    KEYS,
    '((left | above | below) >> 63);',
    '((above | below) >> 63);',
  ],
  [
    'the fast look does not compare access',
    KEYS,
    '((owner ^ wanted) & (((<u64>need) << 32) | 0xffffffff)) |',
    '',
  ],
  [
    'any protection domain will do',
    KEYS,
    'entry.pd == pd &&\n      (entry.access',
    '(entry.access',
  ],
  ['access flags are not compared', KEYS, '(entry.access & need) == need &&', ''],
  ['the offset is not compared', KEYS, 'offset <= <u64>size &&', ''],
  ['the length is not compared', KEYS, 'length <= size - <u32>offset &&', ''],
  [
    'remote write needs no local write',
    KEYS,
    'if (access & writes && !(access & AccessFlag.LOCAL_WRITE)) return Errno.EINVAL;',
    '',
  ],
  [
    'remote atomics may be misaligned at home',
    KEYS,
    'if (((<u32>iova) ^ address) & 7) return Errno.EINVAL;',
    '',
  ],
  ['unknown access flags are taken', KEYS, 'if (access & ~known) return Errno.EOPNOTSUPP;', ''],
  ['an address may wrap', KEYS, 'if (iova + length < iova) return Errno.EINVAL;', ''],
  [
    'more regions than the limit',
    KEYS,
    'if (atomic.add<u32>(counter, 1) >= arena.regionsMax) {',
    'atomic.add<u32>(counter, 1);\n  if (false) {',
  ],
  [
    'a killed key is found',
    KEYS,
    '  entry.key = 0;\n  note.state = KeyState.DYING;',
    '  note.state = KeyState.DYING;',
  ],
  [
    'a killed region is free at once',
    KEYS,
    'if (!domainQuiesced(arena, note.pd, note.killedAt)) return false;',
    '',
  ],
  ['every key may be invalidated', KEYS, ' && (entry.access & INVALIDATABLE) != 0;', ';'],
  [
    'keys of other domains may be invalidated',
    KEYS,
    'entry.key == key && entry.pd == pd && (entry',
    'entry.key == key && (entry',
  ],

  // Posted work.
  [
    'operations of other services are taken',
    FETCH,
    'if (!supported(qp.type, request.opcode)) return WcStatus.LOC_QP_OP_ERR;',
    '',
  ],
  [
    'more SGEs than the queue has are walked',
    FETCH,
    'if (request.sgeCount > qp.sendSgeMax) return WcStatus.LOC_QP_OP_ERR;',
    '',
  ],
  [
    'messages beyond 2^31 bytes are sent',
    FETCH,
    'if (total > MESSAGE_BYTES_MAX) return WcStatus.LOC_LEN_ERR;',
    '',
  ],
  [
    'atomics of any length are sent',
    FETCH,
    'if ((word || isAtomic(request)) && total != ATOMIC_BYTES) return WcStatus.LOC_LEN_ERR;',
    '',
  ],
  ['inline data beyond the limit is sent', FETCH, 'request.inlineLength > qp.inlineMax', 'false'],
  [
    'a receive with too many SGEs is walked',
    RECEIVE_QUEUE,
    'if (request.sgeCount > sgeMax) request.sgeCount = 0;',
    '',
  ],
  ['an SRQ’s limit fires again and again', RECEIVE_QUEUE, '    srq.limit = 0;\n', ''],

  // The short way of plain WRITEs, and of plain requests.
  [
    'a packet of a run is not compared with its ICRC',
    PLAIN_RECEIVE,
    'load<u32>(packet + length - ICRC_SIZE) != icrc ||',
    '',
  ],
  [
    'a packet of a run may be for another queue pair, or tell of congestion',
    PLAIN_RECEIVE,
    'loadU32(packet + 4) == qp.qpn &&',
    '',
  ],
  ['a packet of a run has any PSN', PLAIN_RECEIVE, 'bthPsn(packet) == qp.psnExpected &&', ''],
  ['a packet of a run has any transport version', PLAIN_RECEIVE, 'bthVersion(packet) == 0 &&', ''],
  [
    'a packet of a run is of any partition',
    PLAIN_RECEIVE,
    'mayTalk(bthPkey(packet), context.pkey)',
    'true',
  ],
  [
    'a packet of a run is as long as it likes, not as its RETH says',
    PLAIN_RECEIVE,
    'if (rethLength(reth) != size || size == 0',
    'if (size == 0',
  ],
  [
    'a run is taken in the middle of a message',
    PLAIN_RECEIVE,
    'qp.message != <u32>MessageKind.NONE ||',
    '',
  ],
  [
    'what continues a WRITE is not compared with its ICRC',
    PLAIN_RECEIVE,
    'if (load<u32>(packet + length - ICRC_SIZE) != icrc) return false;',
    '',
  ],
  [
    'what continues a WRITE may come from anywhere',
    PLAIN_RECEIVE,
    'descriptor.sourceGid0 != path.remoteGid0 ||\n    descriptor.sourceGid1 != path.remoteGid1 ||',
    '',
  ],
  [
    'a WRITE goes on after its end',
    PLAIN_RECEIVE,
    '(ends ? qp.messageLeft != size : qp.messageLeft <= size) ||',
    '',
  ],
  [
    'what continues a WRITE may be shorter than the path MTU',
    PLAIN_RECEIVE,
    'length != CONTINUED_HEADERS + size + ICRC_SIZE ||',
    '',
  ],
  [
    'a run is taken by a queue pair that grants no WRITEs',
    PLAIN_RECEIVE,
    '(qp.access & AccessFlag.REMOTE_WRITE) != 0 &&',
    '',
  ],
  [
    'a plain request may have flags that are seen to elsewhere',
    PLAIN_SEND,
    'if (request.sendFlags & ~(<u32>SendFlag.SIGNALED)) return false;',
    '',
  ],
  [
    'a plain request may be longer than a packet',
    PLAIN_SEND,
    'if (length == 0 || length > qp.mtu) return false;',
    '',
  ],
  [
    'a plain request is sent when the window is closed',
    PLAIN_SEND,
    'if (posted == 0 || !windowOpen(qp)) return false;',
    'if (posted == 0) return false;',
  ],
];
