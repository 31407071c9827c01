/**
 * Operations, one entry per kind. The workload plans from this table and the auditor judges by it;
 * nothing else knows an opcode.
 */
import { WcOpcode, WrOpcode } from '../../host/index.js';

export interface OperationKind {
  readonly name: string;
  /** A WrOpcode. */
  readonly opcode: number;
  /** The WcOpcode of its completion. */
  readonly completion: number;
  /** Local memory is read when it is sent, or written when the answer comes. */
  readonly local: 'gather' | 'scatter' | 'none';
  /** Effect on the memory that it names at the peer. */
  readonly remote: 'none' | 'place' | 'fetch' | 'modify' | 'flush';
  /** Effect on a receive of the peer: fills it, or only completes it. */
  readonly receive: 'none' | 'data' | 'notice';
  /** The WcOpcode of that receive's completion. */
  readonly receiveCompletion: number;
  readonly immediate: boolean;
  /** May its data be inline? */
  readonly inline: boolean;
  /** `modify`: what becomes of the 8 bytes, from what they were and both operands. */
  readonly modify?: (before: bigint, compareAdd: bigint, swap: bigint) => bigint;
  /** Is it a word that is written at once, after everything before it? */
  readonly isWord?: boolean;
  /** Whose key it kills. */
  readonly invalidates?: 'ours' | 'theirs';
  /** How often it is chosen. */
  readonly weight: number;
}

const HERE = {
  local: 'none',
  remote: 'none',
  receive: 'none',
  receiveCompletion: 0,
  immediate: false,
  inline: false,
  weight: 0,
} as const;

/** Kinds that send nothing: bindings.ts plans them, and `options.bindings` sets their rate. */
export const LOCAL_KINDS = {
  bind: { name: 'BIND_MW', opcode: WrOpcode.BIND_MW, completion: WcOpcode.BIND_MW, ...HERE },
  register: { name: 'REG_MR', opcode: WrOpcode.REG_MR, completion: WcOpcode.REG_MR, ...HERE },
  invalidate: {
    name: 'LOCAL_INV',
    opcode: WrOpcode.LOCAL_INV,
    completion: WcOpcode.LOCAL_INV,
    ...HERE,
  },
} as const satisfies { readonly [name: string]: OperationKind };

const SEND = {
  completion: WcOpcode.SEND,
  local: 'gather',
  remote: 'none',
  receive: 'data',
  receiveCompletion: WcOpcode.RECV,
  inline: true,
} as const;

const WRITE = {
  completion: WcOpcode.RDMA_WRITE,
  local: 'gather',
  remote: 'place',
  receiveCompletion: WcOpcode.RECV_RDMA_WITH_IMM,
  inline: true,
} as const;

const ATOMIC = {
  isWord: true,
  local: 'scatter',
  remote: 'modify',
  receive: 'none',
  receiveCompletion: 0,
  immediate: false,
  inline: false,
} as const;

export const OPERATION_KINDS: readonly OperationKind[] = [
  { name: 'SEND', opcode: WrOpcode.SEND, ...SEND, immediate: false, weight: 3 },
  { name: 'SEND_WITH_IMM', opcode: WrOpcode.SEND_WITH_IMM, ...SEND, immediate: true, weight: 1 },
  {
    name: 'RDMA_WRITE',
    opcode: WrOpcode.RDMA_WRITE,
    ...WRITE,
    receive: 'none',
    immediate: false,
    weight: 4,
  },
  {
    name: 'RDMA_WRITE_WITH_IMM',
    opcode: WrOpcode.RDMA_WRITE_WITH_IMM,
    ...WRITE,
    receive: 'notice',
    immediate: true,
    weight: 1,
  },
  {
    name: 'RDMA_READ',
    opcode: WrOpcode.RDMA_READ,
    completion: WcOpcode.RDMA_READ,
    local: 'scatter',
    remote: 'fetch',
    receive: 'none',
    receiveCompletion: 0,
    immediate: false,
    inline: false,
    weight: 4,
  },
  {
    name: 'ATOMIC_FETCH_AND_ADD',
    opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
    completion: WcOpcode.FETCH_ADD,
    ...ATOMIC,
    modify: (before, compareAdd) => BigInt.asUintN(64, before + compareAdd),
    weight: 1,
  },
  {
    name: 'ATOMIC_CMP_AND_SWP',
    opcode: WrOpcode.ATOMIC_CMP_AND_SWP,
    completion: WcOpcode.COMP_SWAP,
    ...ATOMIC,
    modify: (before, compareAdd, swap) => (before === compareAdd ? swap : before),
    weight: 1,
  },
];

/** Chosen now and then instead, as `options.placement` says: the target is kept by a store. */
export const PLACEMENT_KINDS: readonly OperationKind[] = [
  {
    name: 'FLUSH',
    opcode: WrOpcode.FLUSH,
    completion: WcOpcode.FLUSH,
    ...HERE,
    remote: 'flush',
    weight: 2,
  },
  {
    name: 'ATOMIC_WRITE',
    opcode: WrOpcode.ATOMIC_WRITE,
    ...WRITE,
    completion: WcOpcode.ATOMIC_WRITE,
    isWord: true,
    receive: 'none',
    immediate: false,
    weight: 1,
  },
];

/** Kinds that invalidate a key: chosen now and then instead of one of the others. */
export const INVALIDATING_KINDS: readonly OperationKind[] = [
  {
    name: 'SEND_WITH_INV',
    opcode: WrOpcode.SEND_WITH_INV,
    ...SEND,
    immediate: false,
    invalidates: 'theirs',
    weight: 1,
  },
  {
    name: 'LOCAL_INV',
    opcode: WrOpcode.LOCAL_INV,
    completion: WcOpcode.LOCAL_INV,
    local: 'gather',
    remote: 'none',
    receive: 'none',
    receiveCompletion: 0,
    immediate: false,
    inline: false,
    invalidates: 'ours',
    weight: 1,
  },
];
