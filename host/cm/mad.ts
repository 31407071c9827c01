/**
 * Connection management datagrams (IBA 12.6 to 12.11, 13.4.2), and three of our own: one table of
 * fields drives parse, build and explain. 256 bytes: a header of 24, then the message, which ends
 * in private data.
 */

import { RejectReason, SidrStatus } from './enums.js';
import { bits, bytes, wide, type Field, type NumberField, type WideField } from './mad-fields.js';
import { ALTERNATE, LOADED, PRIMARY_LEVEL, PRIMARY_RATE } from './mad-paths.js';

/** Every management datagram has this many bytes. */
export const MAD_BYTES = 256;
/** The same with the trailer of an authenticated REQ, the longest one (auth-session.ts). */
export const MESSAGE_BYTES_MAX = MAD_BYTES + 96;
/** A cookie in a COOKIE, and behind the REQ that repeats it (cookies.ts). */
export const COOKIE_BYTES = 16;
const HEADER_BYTES = 24;
const BASE_VERSION = 1;
const CM_CLASS = 0x07;
const CM_CLASS_VERSION = 2;
/** Send(): connection management has no other method. */
const METHOD_SEND = 0x03;
const TRANSACTION_ID = 8;
const ATTRIBUTE_ID = 16;
/**
 * The messages of the class do not use the attribute modifier: 0, and receivers ignore it. Our own
 * kind sends `| V E | bytes of private data, 16 bits |` where private data do not fill their field.
 */
const ATTRIBUTE_MODIFIER = 20;
const LENGTH_MARK = 0x5645;

const IDS = { localCommId: bits(0, 32), remoteCommId: bits(4, 32) };

/** Bytes and bits count from the end of the header. What is reserved is not named, and 0. */
const MESSAGES = {
  REQ: {
    attributeId: 0x0010,
    fields: {
      localCommId: bits(0, 32),
      serviceId: wide(8),
      localCaGuid: wide(16),
      localQkey: bits(28, 32),
      localQpn: bits(32, 24),
      responderResources: bits(35, 8),
      localEecn: bits(36, 24),
      initiatorDepth: bits(39, 8),
      remoteEecn: bits(40, 24),
      remoteCmResponseTimeout: bits(43, 5),
      transportService: bits(43, 2, 5),
      flowControl: bits(43, 1, 7),
      startingPsn: bits(44, 24),
      localCmResponseTimeout: bits(47, 5),
      retryCount: bits(47, 3, 5),
      pkey: bits(48, 16),
      pathMtu: bits(50, 4),
      rdcExists: bits(50, 1, 4),
      rnrRetryCount: bits(50, 3, 5),
      maxCmRetries: bits(51, 4),
      srq: bits(51, 1, 4),
      extendedTransport: bits(51, 3, 5),
      primaryLocalLid: bits(52, 16),
      primaryRemoteLid: bits(54, 16),
      primaryLocalGid: bytes(56, 16),
      primaryRemoteGid: bytes(72, 16),
      ...PRIMARY_RATE,
      primaryHopLimit: bits(93, 8),
      ...PRIMARY_LEVEL,
      primaryLocalAckTimeout: bits(95, 5),
      ...ALTERNATE,
      privateData: bytes(140, 92),
    },
  },
  MRA: {
    attributeId: 0x0011,
    fields: {
      ...IDS,
      messageMraed: bits(8, 2),
      serviceTimeout: bits(9, 5),
      privateData: bytes(10, 222),
    },
  },
  REJ: {
    attributeId: 0x0012,
    fields: {
      ...IDS,
      messageRejected: bits(8, 2),
      rejectInfoLength: bits(9, 7),
      reason: bits(10, 16),
      rejectInfo: bytes(12, 72),
      privateData: bytes(84, 148),
    },
  },
  REP: {
    attributeId: 0x0013,
    fields: {
      ...IDS,
      localQkey: bits(8, 32),
      localQpn: bits(12, 24),
      localEecn: bits(16, 24),
      startingPsn: bits(20, 24),
      responderResources: bits(24, 8),
      initiatorDepth: bits(25, 8),
      targetAckDelay: bits(26, 5),
      failoverAccepted: bits(26, 2, 5),
      flowControl: bits(26, 1, 7),
      rnrRetryCount: bits(27, 3),
      srq: bits(27, 1, 3),
      localCaGuid: wide(28),
      privateData: bytes(36, 196),
    },
  },
  RTU: {
    attributeId: 0x0014,
    fields: { ...IDS, privateData: bytes(8, 224) },
  },
  DREQ: {
    attributeId: 0x0015,
    fields: { ...IDS, remoteQpn: bits(8, 24), privateData: bytes(12, 220) },
  },
  DREP: {
    attributeId: 0x0016,
    fields: { ...IDS, privateData: bytes(8, 224) },
  },
  SIDR_REQ: {
    attributeId: 0x0017,
    fields: {
      requestId: bits(0, 32),
      pkey: bits(4, 16),
      serviceId: wide(8),
      privateData: bytes(16, 216),
    },
  },
  SIDR_REP: {
    attributeId: 0x0018,
    fields: {
      requestId: bits(0, 32),
      status: bits(4, 8),
      infoLength: bits(5, 8),
      qpn: bits(8, 24),
      serviceId: wide(12),
      qkey: bits(20, 32),
      info: bytes(24, 72),
      privateData: bytes(96, 136),
    },
  },
  LAP: {
    attributeId: 0x0019,
    fields: {
      ...IDS,
      remoteQpn: bits(12, 24),
      remoteCmResponseTimeout: bits(15, 5),
      ...LOADED,
      privateData: bytes(64, 168),
    },
  },
  APR: {
    attributeId: 0x001a,
    fields: {
      ...IDS,
      infoLength: bits(8, 8),
      status: bits(9, 8),
      info: bytes(12, 72),
      privateData: bytes(84, 148),
    },
  },
  // Between peers of our own kind; others ignore attributes that they do not know.
  AUTH_REQ: {
    attributeId: 0xff10,
    fields: {
      ...IDS,
      serviceId: wide(8),
      localCaGuid: wide(16),
      keyId: wide(24),
      encrypts: bits(32, 1, 7),
      nonce: bytes(40, 32),
      privateData: bytes(72, 160),
    },
  },
  AUTH_REP: {
    attributeId: 0xff11,
    fields: {
      ...IDS,
      reason: bits(8, 16),
      encrypts: bits(12, 1, 7),
      nonce: bytes(16, 32),
      peerNonce: bytes(48, 32),
      privateData: bytes(80, 152),
    },
  },
  COOKIE: {
    attributeId: 0xff12,
    fields: { ...IDS, cookie: bytes(8, COOKIE_BYTES), privateData: bytes(24, 208) },
  },
} as const;

type Messages = typeof MESSAGES;
export type MessageName = keyof Messages;

type Value<F> = F extends NumberField ? number : F extends WideField ? bigint : Uint8Array;
/** The fields of a message, by their names in the specification. */
export type FieldsOf<Name extends MessageName> = {
  readonly [F in keyof Messages[Name]['fields']]: Value<Messages[Name]['fields'][F]>;
};
export type Message<Name extends MessageName = MessageName> = Name extends MessageName
  ? { readonly name: Name; readonly transactionId: bigint } & FieldsOf<Name>
  : never;
/** Of a REQ that this side sends; fields that are not here are 0. */
export type RequestFields = Pick<
  FieldsOf<'REQ'>,
  | ('serviceId' | 'privateData' | 'startingPsn' | 'localCaGuid' | 'localQpn' | 'localEecn')
  | ('responderResources' | 'initiatorDepth' | 'flowControl' | 'retryCount' | 'rnrRetryCount')
  | ('remoteCmResponseTimeout' | 'localCmResponseTimeout' | 'maxCmRetries' | 'transportService')
  | ('pkey' | 'pathMtu' | 'srq' | 'primaryLocalLid' | 'primaryRemoteLid' | 'primaryHopLimit')
  | ('primaryLocalGid' | 'primaryRemoteGid' | 'primaryLocalAckTimeout')
>;

/** Why bytes are no message of the connection manager; the first that applies. */
export type MadFault =
  'LENGTH' | 'BASE_VERSION' | 'MANAGEMENT_CLASS' | 'CLASS_VERSION' | 'METHOD' | 'ATTRIBUTE';

const BY_ATTRIBUTE = new Map<number, MessageName>(
  Object.entries(MESSAGES).map(([name, { attributeId }]) => [attributeId, name as MessageName]),
);

function fieldsOf(name: MessageName): [string, Field][] {
  return Object.entries(MESSAGES[name].fields as Record<string, Field>);
}

const FIELDS = new Map(
  (Object.keys(MESSAGES) as MessageName[]).map((name) => [name, fieldsOf(name)]),
);

function maskOf({ width }: NumberField): number {
  return width === 32 ? 0xffffffff : (1 << width) - 1;
}

function read(view: DataView, field: Field): number | bigint | Uint8Array {
  if (field.kind === 'bigint') return view.getBigUint64(HEADER_BYTES + field.at);
  if (field.kind === 'bytes') {
    const at = view.byteOffset + HEADER_BYTES + field.at;
    return new Uint8Array(view.buffer, at, field.length).slice();
  }
  const word = view.getUint32(HEADER_BYTES + field.word);
  return ((word >>> field.shift) & maskOf(field)) >>> 0;
}

function checkHeader(view: DataView): MadFault | undefined {
  if (view.byteLength !== MAD_BYTES) return 'LENGTH';
  if (view.getUint8(0) !== BASE_VERSION) return 'BASE_VERSION';
  if (view.getUint8(1) !== CM_CLASS) return 'MANAGEMENT_CLASS';
  if (view.getUint8(2) !== CM_CLASS_VERSION) return 'CLASS_VERSION';
  if (view.getUint8(3) !== METHOD_SEND) return 'METHOD';
  if (!BY_ATTRIBUTE.has(view.getUint16(ATTRIBUTE_ID))) return 'ATTRIBUTE';
  return undefined;
}

/** Length of the private data: the whole field where the sender states none, as Linux. */
function privateDataLength(view: DataView, name: MessageName): number {
  const modifier = view.getUint32(ATTRIBUTE_MODIFIER);
  const most = privateDataMax(name);
  return modifier >>> 16 === LENGTH_MARK ? Math.min(modifier & 0xffff, most) : most;
}

/** Bytes from anywhere: a message (which keeps no view of them), or what is wrong with them. */
export function parseMad(mad: Uint8Array): Message | MadFault {
  const view = new DataView(mad.buffer, mad.byteOffset, mad.byteLength);
  const fault = checkHeader(view);
  if (fault) return fault;
  const name = BY_ATTRIBUTE.get(view.getUint16(ATTRIBUTE_ID))!;
  const message: Record<string, unknown> = {
    name,
    transactionId: view.getBigUint64(TRANSACTION_ID),
  };
  for (const [field, place] of FIELDS.get(name)!) message[field] = read(view, place);
  const { privateData } = message as { privateData: Uint8Array };
  message.privateData = privateData.subarray(0, privateDataLength(view, name));
  return message as unknown as Message;
}

/** 256 bytes. Fields that are left out are 0, and so is the rest behind shorter bytes. */
export function buildMad<Name extends MessageName>(
  name: Name,
  transactionId: bigint,
  fields: Partial<FieldsOf<Name>>,
): Uint8Array {
  const mad = new Uint8Array(MAD_BYTES);
  const view = new DataView(mad.buffer);
  mad.set([BASE_VERSION, CM_CLASS, CM_CLASS_VERSION, METHOD_SEND]);
  view.setBigUint64(TRANSACTION_ID, transactionId);
  view.setUint16(ATTRIBUTE_ID, MESSAGES[name].attributeId);
  const values = fields as Readonly<Record<string, number | bigint | Uint8Array | undefined>>;
  const length = (values.privateData as Uint8Array | undefined)?.length ?? 0;
  if (length < privateDataMax(name)) {
    view.setUint32(ATTRIBUTE_MODIFIER, ((LENGTH_MARK << 16) | length) >>> 0);
  }
  for (const [field, place] of FIELDS.get(name)!) {
    const value = values[field];
    if (value === undefined) continue;
    if (place.kind === 'bigint') view.setBigUint64(HEADER_BYTES + place.at, value as bigint);
    else if (place.kind === 'bytes') {
      mad.set((value as Uint8Array).subarray(0, place.length), HEADER_BYTES + place.at);
    } else {
      const at = HEADER_BYTES + place.word;
      const own = ((value as number) & maskOf(place)) << place.shift;
      view.setUint32(at, view.getUint32(at) | own);
    }
  }
  return mad;
}

/** Bytes that the private data of a message may have. */
export function privateDataMax(name: MessageName): number {
  return MESSAGES[name].fields.privateData.length;
}

/** Names of the messages, for explainMad alone. */
const TITLES: Readonly<Record<MessageName, string>> = {
  REQ: 'connect request',
  MRA: 'message receipt acknowledgement',
  REJ: 'connect reject',
  REP: 'connect reply',
  RTU: 'ready to use',
  DREQ: 'disconnect request',
  DREP: 'disconnect reply',
  SIDR_REQ: 'service id resolution request',
  SIDR_REP: 'service id resolution reply',
  LAP: 'load alternate path',
  APR: 'alternate path response',
  AUTH_REQ: 'authentication request',
  AUTH_REP: 'authentication reply',
  COOKIE: 'cookie',
};

/** One sentence: what a datagram says, or why it says nothing. Fields that are 0 are left out. */
export function explainMad(mad: Uint8Array): string {
  const message = parseMad(mad);
  if (typeof message === 'string') {
    return `no message of the connection manager: ${message.toLowerCase().replace('_', ' ')}`;
  }
  const values = message as unknown as Record<string, number | bigint | Uint8Array>;
  const parts: string[] = [];
  for (const [field, place] of FIELDS.get(message.name)!) {
    const value = values[field]!;
    if (value instanceof Uint8Array) {
      const hex = Array.from(value, (byte) => byte.toString(16).padStart(2, '0')).join('');
      const ascii = hex.replace(/(00)+$/, '');
      if (ascii !== '') parts.push(`${field} ${ascii}`);
    } else if (value !== 0 && value !== 0n) {
      const isHex = place.kind === 'bigint' || (place.kind === 'number' && place.width === 32);
      parts.push(`${field} ${isHex ? `0x${value.toString(16)}` : value}`);
    }
  }
  return `${TITLES[message.name]}: ${parts.join(', ')}`;
}

/** A SIDR_REP that rejects the request. */
export function refusedService(status: number = SidrStatus.REJECT): {
  status: number;
  qpn: number;
  qkey: number;
  serviceId: bigint;
  privateData: Uint8Array;
} {
  return { status, qpn: 0, qkey: 0, serviceId: 0n, privateData: new Uint8Array(0) };
}

/** Of a REJ to a peer that did not answer: the peer may know only our GUID and id. */
export function timeoutFields(
  ids: { readonly localId: number; readonly remoteId: number },
  messageRejected: number,
  caGuid: bigint,
): Partial<FieldsOf<'REJ'>> {
  const rejectInfo = new Uint8Array(8);
  new DataView(rejectInfo.buffer).setBigUint64(0, caGuid);
  return {
    localCommId: ids.localId,
    remoteCommId: ids.remoteId,
    messageRejected,
    reason: RejectReason.TIMEOUT,
    rejectInfoLength: rejectInfo.length,
    rejectInfo,
  };
}
