/**
 * The ways to break a rule on purpose, one entry each: the spoiled fields, and the expected result.
 * A connection breaks one rule once; afterwards it is taken down and made anew.
 */
import { WcStatus, WrOpcode } from '../../host/index.js';
import type { Area, RemoteKey } from './area.js';
import type { OperationKind } from './operations.js';
import type { Random } from './random.js';

/** A planned request, before it is posted. */
export interface Draft {
  readonly kind: OperationKind;
  readonly length: number;
  /** Path MTU in bytes. */
  readonly mtu: number;
  opcode: number;
  rkey: number;
  /** The key that it kills; 0: none. */
  invalidateRkey: number;
  /** Address of the first byte of what it names, and the offset from there. */
  base: number | bigint;
  remoteOffset: number;
  /** One per local piece. */
  readonly lkeys: number[];
  readonly pieceLengths: readonly number[];
  /** Bytes of its data that may come to lie where they belong. */
  placeable: number;
}

/** Objects with which a draft may be spoiled. */
export interface Surroundings {
  /** The peer's memory that it names. */
  readonly target: Area;
  /** Memory of the peer without remote access. */
  readonly closed: Area;
  /** Of a region in another protection domain of the peer. */
  readonly stranger: RemoteKey;
  /** Bytes of the receive that it will meet. */
  readonly receiveBytes: number;
}

export interface ErrorKind {
  readonly name: string;
  applies(draft: Draft, around: Surroundings): boolean;
  spoil(draft: Draft, around: Surroundings, random: Random): void;
  /** Status of the request's completion. */
  readonly status: number;
  /** Status that a receive in progress at the peer may complete with, besides a flush. */
  readonly receiveStatus: number;
  /** Does the peer's queue pair fail, too? Then what is behind is not executed. */
  readonly peerFails: boolean;
  /** Does it fail without a word? */
  readonly silent?: boolean;
}

const namesMemory = (draft: Draft): boolean => draft.kind.remote !== 'none' && draft.length > 0;

/** An atomic outside is misaligned as well, which is another error. */
const namesRange = (draft: Draft): boolean => namesMemory(draft) && draft.kind.remote !== 'modify';

/** Names other memory: in every respect as it should be, but for the rule that is broken. */
function aim(draft: Draft, { rkey, base }: RemoteKey): void {
  draft.rkey = rkey;
  draft.base = base;
  draft.placeable = 0;
}

const remoteAccess = {
  status: WcStatus.REM_ACCESS_ERR,
  receiveStatus: WcStatus.LOC_ACCESS_ERR,
  peerFails: true,
} as const;

export const ERROR_KINDS: readonly ErrorKind[] = [
  {
    name: 'badRkey',
    applies: namesMemory,
    spoil(draft, _around, random) {
      draft.rkey = (draft.rkey ^ random.between(1, 255)) >>> 0;
      draft.placeable = 0;
    },
    ...remoteAccess,
  },
  {
    name: 'outOfBounds',
    applies: namesRange,
    spoil(draft, { target }, random) {
      draft.remoteOffset = target.length - draft.length + random.between(1, draft.length);
      // A long READ is requested in parts: those inside the bounds are answered.
      const inside = target.length - draft.remoteOffset;
      draft.placeable = draft.kind.remote === 'fetch' ? inside : 0;
    },
    ...remoteAccess,
  },
  {
    name: 'beforeTheRegion',
    applies: namesRange,
    spoil(draft, _around, random) {
      draft.remoteOffset = -random.between(1, draft.length);
      draft.placeable = 0;
    },
    ...remoteAccess,
  },
  {
    name: 'missingAccess',
    applies: namesMemory,
    spoil(draft, { closed }) {
      const { mr, base } = closed.regions[0]!;
      aim(draft, { rkey: mr.rkey, base });
      draft.remoteOffset = 0;
    },
    ...remoteAccess,
  },
  {
    name: 'deadKey',
    applies: (draft, { target }) => namesMemory(draft) && target.deadKeys.length > 0,
    spoil(draft, { target }, random) {
      aim(draft, random.pick(target.deadKeys));
    },
    ...remoteAccess,
  },
  {
    name: 'otherDomain',
    applies: namesMemory,
    spoil(draft, { stranger }) {
      aim(draft, stranger);
      draft.remoteOffset = 0;
    },
    ...remoteAccess,
  },
  {
    name: 'misaligned',
    applies: ({ kind }) => kind.remote === 'modify',
    spoil(draft, _around, random) {
      draft.remoteOffset += random.between(1, 7);
      draft.placeable = 0;
    },
    status: WcStatus.REM_INV_REQ_ERR,
    receiveStatus: WcStatus.LOC_QP_OP_ERR,
    peerFails: true,
  },
  {
    name: 'badLkey',
    applies: ({ length }) => length > 0,
    spoil(draft, _around, random) {
      // From some piece on: earlier pieces are good, and are sent.
      const filled = draft.pieceLengths.flatMap((length, index) => (length > 0 ? [index] : []));
      const first = random.pick(filled);
      let good = 0;
      for (let index = 0; index < draft.lkeys.length; index++) {
        if (index >= first) draft.lkeys[index] = (draft.lkeys[index]! ^ 0x5a) >>> 0;
        else good += draft.pieceLengths[index]!;
      }
      const whole = Math.floor(good / draft.mtu) * draft.mtu;
      draft.placeable = draft.kind.local === 'scatter' ? good : whole;
    },
    status: WcStatus.LOC_PROT_ERR,
    receiveStatus: WcStatus.WR_FLUSH_ERR,
    peerFails: false,
  },
  {
    name: 'unsupportedOpcode',
    applies: () => true,
    spoil(draft) {
      draft.opcode = WrOpcode.TSO;
      draft.placeable = 0;
    },
    status: WcStatus.LOC_QP_OP_ERR,
    receiveStatus: WcStatus.WR_FLUSH_ERR,
    peerFails: false,
  },
  {
    name: 'tooLongForReceive',
    applies: (draft, { receiveBytes }) =>
      draft.kind.receive === 'data' && draft.length > receiveBytes,
    spoil(draft, { receiveBytes }) {
      draft.placeable = Math.floor(receiveBytes / draft.mtu) * draft.mtu;
    },
    status: WcStatus.REM_INV_REQ_ERR,
    receiveStatus: WcStatus.LOC_LEN_ERR,
    peerFails: true,
  },
  {
    // IBA class J: the data is placed, and nothing is said.
    name: 'badInvalidation',
    applies: ({ kind }) => kind.invalidates === 'theirs',
    spoil(draft, _around, random) {
      draft.invalidateRkey = (draft.invalidateRkey ^ random.between(1, 255)) >>> 0;
    },
    status: WcStatus.RETRY_EXC_ERR,
    receiveStatus: WcStatus.REM_INV_REQ_ERR,
    peerFails: true,
    silent: true,
  },
  {
    name: 'badLocalInvalidation',
    applies: ({ kind }) => kind.invalidates === 'ours',
    spoil(draft, _around, random) {
      draft.invalidateRkey = (draft.invalidateRkey ^ random.between(1, 255)) >>> 0;
    },
    status: WcStatus.LOC_QP_OP_ERR,
    receiveStatus: WcStatus.WR_FLUSH_ERR,
    peerFails: false,
  },
  {
    // Spoiled is the receive, when it is posted (connection.ts).
    name: 'badReceive',
    applies: () => false,
    spoil(draft) {
      draft.placeable = 0;
    },
    status: WcStatus.REM_OP_ERR,
    receiveStatus: WcStatus.LOC_PROT_ERR,
    peerFails: true,
  },
];

export const badReceive = ERROR_KINDS.find(({ name }) => name === 'badReceive')!;
