/** Authenticated connections: what each check of packets, messages and keys is there for. */
import type { Row } from './mutants.js';

const PACKETS = 'assembly/transport/packet-auth.ts';
const RECEIVE = 'assembly/transport/receive.ts';
const PLAIN = 'assembly/transport/plain-receive.ts';
const CONTROL = 'assembly/transport/control.ts';
const AEAD = 'assembly/crypto/aead.ts';
const POLY = 'assembly/crypto/poly1305.ts';
const CHACHA = 'assembly/crypto/chacha20.ts';
const SESSION = 'host/cm/auth-session.ts';
const MESSAGES = 'host/cm/auth-messages.ts';
const INCOMING = 'host/cm/incoming.ts';
const CM_ID = 'host/cm/cm-id.ts';

const ROWS: readonly Row[] = [
  [
    'a packet without a tag is taken',
    RECEIVE,
    'if (path.auth != 0) {\n      counters.dropTag++;\n      return;\n    }',
    '',
  ],
  ['a short way takes packets without tags', PLAIN, '    pathOf(qp).auth == 0 &&\n', ''],
  [
    'the source of an authenticated packet does not count',
    RECEIVE,
    '    counters.dropSource++;\n    return 0;',
    '    counters.dropSource++;',
  ],
  [
    'the ICRC of an authenticated packet does not count',
    RECEIVE,
    'if (!checkSealed(context, path, descriptor.sourcePort, packet, length)) return 0;',
    '',
  ],
  ['every tag fits', AEAD, 'return (low | high) == 0;', 'return true;'],
  ['half of a tag is compared', AEAD, 'return (low | high) == 0;', 'return low == 0;'],
  [
    'bytes of the last block are not covered',
    AEAD,
    'memory.copy(block, from + <usize>(length - rest), rest);',
    '',
  ],
  ['the lengths are not covered', AEAD, 'store<u64>(block, plain);', 'store<u64>(block, 0);'],
  ['Poly1305 loses a carry', POLY, 'h4 += (d3 >> 32) + 1;', 'h4 += 1;'],
  [
    'Poly1305 does not reduce at the end',
    POLY,
    'const takes: u64 = 0 - ((<u64>state.h4 + (g >> 32)) >> 2);',
    'const takes: u64 = 0;',
  ],
  [
    'ChaCha20 has nine double rounds',
    CHACHA,
    'const DOUBLE_ROUNDS: u32 = 10;',
    'const DOUBLE_ROUNDS: u32 = 9;',
  ],
  [
    'a number is taken twice',
    PACKETS,
    'store<u64>(word, load<u64>(word) | ((<u64>1) << (number & 63)));',
    '',
  ],
  [
    'numbers below the window are taken',
    PACKETS,
    'if (auth.receiveNext - number > REPLAY_WINDOW) return false;',
    '',
  ],
  [
    'the window keeps bits of numbers that are long gone',
    PACKETS,
    'for (let word = from; word <= last; word++) store<u64>(wordOf(auth, word << 6), 0);',
    '',
  ],
  [
    'a forged number moves the window',
    PACKETS,
    'const key = keyOf(auth, ahead, number);',
    'take(auth, number);\n  const key = keyOf(auth, ahead, number);',
  ],
  [
    'a retransmitted packet has the number of the first one',
    PACKETS,
    'auth.sendCounter = counter + 1;',
    'auth.sendCounter = counter + (packet & 0);',
  ],
  [
    'congestion bits are covered',
    PACKETS,
    'store<u8>(packet, 0xff, UNCOVERED);\n  aeadTag(',
    'aeadTag(',
  ],
  [
    'encrypted packets are sent as they are',
    PACKETS,
    'aeadCrypt(context.authScratch, key, counter, packet + BTH_SIZE, covered - BTH_SIZE);\n  }\n  store<u64>(end, counter);',
    '}\n  store<u64>(end, counter);',
  ],
  [
    'the last generation is taken for packets of any number',
    PACKETS,
    'auth.keepsLast != 0 && number < auth.receiveSince;',
    'auth.keepsLast != 0;',
  ],
  [
    'the key of a generation that is over is kept',
    PACKETS,
    "clear(at(auth, offsetof<PacketAuth>('lastReceiveKey')), CHACHA_KEY_SIZE);",
    '',
  ],
  ['a sender goes on without an answer', PACKETS, 'if (!mayRotate(auth)) return Errno.EAGAIN;', ''],
  [
    'the peer does not follow',
    PACKETS,
    'if (sendGeneration(auth) < auth.receiveGeneration) rotate(context, auth);',
    '',
  ],
  [
    'keys are given to a connected queue pair',
    PACKETS,
    'path.auth != 0 || qp.state > <u32>QpState.INIT',
    'path.auth != 0',
  ],
  [
    'keys are given twice',
    PACKETS,
    'path.auth != 0 || qp.state > <u32>QpState.INIT',
    'qp.state > <u32>QpState.INIT',
  ],
  [
    'RESET keeps the keys',
    CONTROL,
    '  forgetAnswers(qp);\n  forgetPacketAuth(context, qp);\n',
    '  forgetAnswers(qp);\n',
  ],
  [
    'both directions have one key',
    SESSION,
    'const ofPassive = both.subarray(PACKET_KEY_BYTES);',
    'const ofPassive = ofActive;',
  ],
  [
    'packet keys do not depend on queue pair numbers',
    SESSION,
    'numbers(encrypts ? 1 : 0, ...pair),',
    'numbers(encrypts ? 1 : 0),',
  ],
  [
    'packet keys do not depend on the nonce of the REP',
    SESSION,
    'const salt = join(nonceA, nonceB, this.#nonceC!);',
    'const salt = join(nonceA, nonceB);',
  ],
  [
    'a tag of any message is right',
    SESSION,
    'if (!isEqual(tag, datagram.subarray(end))) return false;',
    '',
  ],
  [
    'a message of another length is right',
    SESSION,
    'if (datagram.length !== MAD_BYTES + length) return false;',
    'if (datagram.length < MAD_BYTES + TAG_BYTES) return false;',
  ],
  [
    'a listener with a key takes requests without',
    MESSAGES,
    'return claim ? RejectReason.AUTH_UNKNOWN_KEY : RejectReason.AUTH_REQUIRED;',
    'return claim ? RejectReason.AUTH_UNKNOWN_KEY : undefined;',
  ],
  [
    'a REQ with an old nonce is taken',
    MESSAGES,
    'return [slot, slot - 1].some(',
    'return Array.from({ length: 9 }, (_, index) => slot - index).some(',
  ],
  [
    'a REQ that is not encrypted is taken where encryption is required',
    MESSAGES,
    'const isMeant = claim.encrypts || !rule.encrypts;',
    'const isMeant = true;',
  ],
  [
    'an AUTH_REP without our nonce is believed',
    MESSAGES,
    'isEqual(message.peerNonce, pending.nonceA);',
    'message.peerNonce.length > 0;',
  ],
  [
    'messages about an authenticated connection need no tag',
    MESSAGES,
    'const isRight = auth ? auth.verify(name, datagram) : !hasTrailer(datagram);',
    'const isRight = true;',
  ],
  [
    'a repeated REQ without a tag is answered',
    INCOMING,
    'if (isAuthentic(core, known, message.name, datagram)) receiveAgain(core, now, known);',
    'receiveAgain(core, now, known);',
  ],
  [
    'the accepting side gives its queue pair no keys',
    CM_ID,
    '      this.#giveKeys();\n      if (this.qp) makeReadyToReceive(this.qp, agreement);\n',
    '      if (this.qp) makeReadyToReceive(this.qp, agreement);\n',
  ],
  [
    'a key that is a Buffer is not copied',
    'host/cm/auth-option.ts',
    'const bytes = Uint8Array.from(psk);',
    'const bytes = psk.slice();',
  ],
];

export const AUTH: readonly Row[] = ROWS.map(([name, ...rest]) => [`auth: ${name}`, ...rest]);
