/**
 * Messages of DH-HMAC-CHAP: the data of AUTHENTICATION_SEND and AUTHENTICATION_RECEIVE (Base 2.1
 * section 8.3.5.5). Numbers are little-endian; values of hash and group length follow the fields.
 */
import { DHCHAP_GROUPS } from './dhchap-group.js';
import { DHCHAP_HASHES } from './dhchap-secret.js';
import { Structure, u16, u32, u8 } from './structure.js';

/** Identifiers of messages; NEGOTIATE and the FAILUREs are common to all protocols. */
export const DhchapMessage = Object.freeze({
  NEGOTIATE: 0x00,
  CHALLENGE: 0x01,
  REPLY: 0x02,
  SUCCESS1: 0x03,
  SUCCESS2: 0x04,
  FAILURE2: 0xf0,
  FAILURE1: 0xf1,
});

/** Explanations in a FAILURE1 or FAILURE2. */
export const DhchapFailure = Object.freeze({
  FAILED: 0x01,
  PROTOCOL_NOT_USABLE: 0x02,
  CONCATENATION_MISMATCH: 0x03,
  HASH_NOT_USABLE: 0x04,
  GROUP_NOT_USABLE: 0x05,
  INCORRECT_PAYLOAD: 0x06,
  INCORRECT_MESSAGE: 0x07,
});

/** SECP, SPSP0 and SPSP1 of both commands. */
export const DHCHAP_SECURITY = Object.freeze({ secp: 0xe9, spsp0: 1, spsp1: 1 });
/** Of the longest message, a REPLY with SHA-512 and ffdhe8192: 16 + 64 + 64 + 1024. */
export const DHCHAP_BYTES_MAX = 1168;

const COMMON = 0;
const DHCHAP = 1;
const PROTOCOL_DHCHAP = 1;
const REASON_FAILED = 1;
const HASHES_MAX = 30;
const GROUPS_MAX = 30;

const Header = new Structure(6, { type: u8(0), id: u8(1), transaction: u16(4) });
const NegotiateHead = new Structure(8, { type: u8(0), id: u8(1), transaction: u16(4) });
const ChallengeHead = new Structure(16, {
  ...{ type: u8(0), id: u8(1), transaction: u16(4) },
  ...{ hashBytes: u8(6), hash: u8(8), group: u8(9), valueBytes: u16(10), sequence: u32(12) },
});
const ReplyHead = new Structure(16, {
  ...{ type: u8(0), id: u8(1), transaction: u16(4) },
  ...{ hashBytes: u8(6), challenges: u8(8), valueBytes: u16(10), sequence: u32(12) },
});
const Success1Head = new Structure(16, {
  ...{ type: u8(0), id: u8(1), transaction: u16(4) },
  ...{ hashBytes: u8(6), responds: u8(8) },
});
const Success2 = new Structure(16, { type: u8(0), id: u8(1), transaction: u16(4) });
const Failure = new Structure(8, {
  ...{ type: u8(0), id: u8(1), transaction: u16(4) },
  ...{ reason: u8(6), explanation: u8(7) },
});

/** A message that a state machine refuses; `explanation` is for the peer, the text for a log. */
export class DhchapFault extends Error {
  readonly explanation: number;

  constructor(explanation: number, text: string) {
    super(text);
    this.explanation = explanation;
  }
}

/** The host's offer. `secureChannel`: 0, or a concatenation with TLS. */
export interface Negotiate {
  readonly transaction: number;
  readonly secureChannel: number;
  readonly hashes: readonly number[];
  readonly groups: readonly number[];
}

/** `value`: the controller's public value, empty with the group `null`. */
export interface Challenge {
  readonly transaction: number;
  readonly hash: number;
  readonly group: number;
  readonly sequence: number;
  readonly challenge: Uint8Array;
  readonly value: Uint8Array;
}

/** `challenge`: undefined if the host does not challenge the controller. */
export interface Reply {
  readonly transaction: number;
  readonly sequence: number;
  readonly response: Uint8Array;
  readonly challenge: Uint8Array | undefined;
  readonly value: Uint8Array;
}

export interface Success1 {
  readonly transaction: number;
  readonly response: Uint8Array | undefined;
}

/** Identifier and transaction of any message. Throws DhchapFault. */
export function readHeader(message: Uint8Array): {
  readonly id: number;
  readonly transaction: number;
} {
  if (message.length < Failure.size) throw payload(`a message of ${message.length} bytes`);
  const { type, id, transaction } = Header.read(message);
  const isCommon =
    id === DhchapMessage.NEGOTIATE ||
    id === DhchapMessage.FAILURE1 ||
    id === DhchapMessage.FAILURE2;
  const isKnown = (Object.values(DhchapMessage) as number[]).includes(id);
  if (!isKnown || type !== (isCommon ? COMMON : DHCHAP)) {
    throw new DhchapFault(DhchapFailure.INCORRECT_MESSAGE, `message ${id} of type ${type}`);
  }
  return { id, transaction };
}

/** All hashes and groups that this implementation has, in the order of their identifiers. */
export function buildNegotiate(transaction: number): Uint8Array {
  const message = new Uint8Array(8 + 64);
  NegotiateHead.build({ type: COMMON, id: DhchapMessage.NEGOTIATE, transaction }, message);
  message[7] = 1;
  const [hashes, groups] = [[...DHCHAP_HASHES.keys()], [...DHCHAP_GROUPS.keys()]];
  message.set([PROTOCOL_DHCHAP, 0, hashes.length, groups.length, ...hashes], 8);
  message.set(groups, 8 + 4 + HASHES_MAX);
  return message;
}

export function readNegotiate(message: Uint8Array): Negotiate {
  const count = message[7] ?? 0;
  if (count === 0 || message.length < 8 + 64 * count) {
    throw payload(`a NEGOTIATE of ${message.length} bytes for ${count} protocols`);
  }
  const { transaction } = NegotiateHead.read(message);
  const secureChannel = message[6]!;
  for (let at = 8; at < 8 + 64 * count; at += 64) {
    const [protocol, , hashCount, groupCount] = message.subarray(at, at + 4);
    if (protocol !== PROTOCOL_DHCHAP) continue;
    if (hashCount! > HASHES_MAX || groupCount! > GROUPS_MAX) {
      throw payload(`a NEGOTIATE with ${hashCount} hashes and ${groupCount} groups`);
    }
    const lists = at + 4;
    const hashes = [...message.subarray(lists, lists + hashCount!)];
    const groupsAt = lists + HASHES_MAX;
    const groups = [...message.subarray(groupsAt, groupsAt + groupCount!)];
    return { transaction, secureChannel, hashes, groups };
  }
  throw new DhchapFault(DhchapFailure.PROTOCOL_NOT_USABLE, 'no protocol is DH-HMAC-CHAP');
}

export function buildChallenge(fields: Challenge): Uint8Array {
  const { challenge, value, ...rest } = fields;
  const message = new Uint8Array(ChallengeHead.size + challenge.length + value.length);
  const lengths = { hashBytes: challenge.length, valueBytes: value.length };
  const id = DhchapMessage.CHALLENGE;
  ChallengeHead.build({ type: DHCHAP, id, ...rest, ...lengths }, message);
  message.set(challenge, ChallengeHead.size);
  message.set(value, ChallengeHead.size + challenge.length);
  return message;
}

export function readChallenge(message: Uint8Array): Challenge {
  if (message.length < ChallengeHead.size) throw payload(`a CHALLENGE of ${message.length} bytes`);
  const { transaction, hash, group, hashBytes, valueBytes, sequence } = ChallengeHead.read(message);
  const known = DHCHAP_HASHES.get(hash);
  if (known?.bytes !== hashBytes) {
    throw new DhchapFault(DhchapFailure.HASH_NOT_USABLE, `hash ${hash} of ${hashBytes} bytes`);
  }
  const modulus = DHCHAP_GROUPS.get(group);
  if (modulus?.bytes !== valueBytes) {
    throw new DhchapFault(DhchapFailure.GROUP_NOT_USABLE, `group ${group} of ${valueBytes} bytes`);
  }
  const middle = ChallengeHead.size + hashBytes;
  if (message.length < middle + valueBytes) {
    throw payload(`a CHALLENGE of ${message.length} bytes, ${middle + valueBytes} are named`);
  }
  const challenge = message.slice(ChallengeHead.size, middle);
  const value = message.slice(middle, middle + valueBytes);
  return { transaction, hash, group, sequence, challenge, value };
}

export function buildReply(fields: Reply): Uint8Array {
  const { transaction, sequence, response, challenge, value } = fields;
  const hashBytes = response.length;
  const message = new Uint8Array(ReplyHead.size + 2 * hashBytes + value.length);
  const lengths = { hashBytes, valueBytes: value.length };
  const head = { type: DHCHAP, id: DhchapMessage.REPLY, transaction, sequence, ...lengths };
  ReplyHead.build({ ...head, challenges: challenge ? 1 : 0 }, message);
  message.set(response, ReplyHead.size);
  if (challenge) message.set(challenge, ReplyHead.size + hashBytes);
  message.set(value, ReplyHead.size + 2 * hashBytes);
  return message;
}

/** `hashBytes`, `valueBytes`: of the hash and the group that the CHALLENGE named. */
export function readReply(message: Uint8Array, hashBytes: number, valueBytes: number): Reply {
  const whole = ReplyHead.size + 2 * hashBytes + valueBytes;
  if (message.length < ReplyHead.size) throw payload(`a REPLY of ${message.length} bytes`);
  const fields = ReplyHead.read(message);
  const { transaction, sequence } = fields;
  if (fields.hashBytes !== hashBytes || fields.valueBytes !== valueBytes) {
    const lengths = `${fields.hashBytes} and ${fields.valueBytes} bytes`;
    throw payload(`a REPLY with a hash and a value of ${lengths}, not ${hashBytes}, ${valueBytes}`);
  }
  if (message.length < whole) throw payload(`a REPLY of ${message.length} bytes, not ${whole}`);
  const [first, second] = [ReplyHead.size + hashBytes, ReplyHead.size + 2 * hashBytes];
  return {
    transaction,
    sequence,
    response: message.slice(ReplyHead.size, first),
    challenge: (fields.challenges & 1) === 0 ? undefined : message.slice(first, second),
    value: message.slice(second, whole),
  };
}

export function buildSuccess1({ transaction, response }: Success1, hashBytes: number): Uint8Array {
  const message = new Uint8Array(Success1Head.size + hashBytes);
  const responds = response ? 1 : 0;
  const id = DhchapMessage.SUCCESS1;
  Success1Head.build({ type: DHCHAP, id, transaction, hashBytes, responds }, message);
  if (response) message.set(response, Success1Head.size);
  return message;
}

export function readSuccess1(message: Uint8Array, hashBytes: number): Success1 {
  if (message.length < Success1Head.size) throw payload(`a SUCCESS1 of ${message.length} bytes`);
  const { transaction, responds, ...fields } = Success1Head.read(message);
  if ((responds & 1) === 0) return { transaction, response: undefined };
  const whole = Success1Head.size + hashBytes;
  if (fields.hashBytes !== hashBytes || message.length < whole) {
    throw payload(`a SUCCESS1 of ${message.length} bytes with a hash of ${fields.hashBytes}`);
  }
  return { transaction, response: message.slice(Success1Head.size, whole) };
}

export function buildSuccess2(transaction: number): Uint8Array {
  return Success2.build({ type: DHCHAP, id: DhchapMessage.SUCCESS2, transaction });
}

/** FAILURE1 is the controller's, FAILURE2 the host's. */
export function buildFailure(
  name: 'FAILURE1' | 'FAILURE2',
  transaction: number,
  explanation: number,
): Uint8Array {
  const fields = { type: COMMON, id: DhchapMessage[name], transaction };
  return Failure.build({ ...fields, reason: REASON_FAILED, explanation });
}

/** Which explanation a FAILURE1 or FAILURE2 has, as a text. */
export function failureText(message: Uint8Array): string {
  if (message.length < Failure.size) throw payload(`a FAILURE of ${message.length} bytes`);
  const { explanation } = Failure.read(message);
  const found = Object.entries(DhchapFailure).find(([, value]) => value === explanation);
  return found?.[0] ?? `explanation ${explanation}`;
}

function payload(text: string): DhchapFault {
  return new DhchapFault(DhchapFailure.INCORRECT_PAYLOAD, text);
}
