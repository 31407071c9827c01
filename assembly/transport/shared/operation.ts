/**
 * The table of operations: one row per opcode of a work request. send-queue.ts stores the row in
 * the engine's copy of the request (`SendRequest.operation`); requester and completer read only the
 * row. A new opcode is a row here, its effect (responder/, or requester/local-work.ts) and a test:
 * host/guide/CONTRIBUTING.md, "Add an opcode".
 */
import { storeReth, storeU32, storeU64 } from '../../wire/headers';
import { Header, Opcode, headerOffset, headersLength, headersOf } from '../../wire/opcode';
import { Context } from './context';
import { QueuePair } from './queue-pair';
import { QpType, WcOpcode, WrOpcode } from './status';
import { SendRequest } from './work-request';

/**
 * Bits of a row. Bits 16 to 20 have the wire opcode, bits 24 to 31 the WcOpcode of the completion;
 * bits 0, 1 and 6 are free.
 */
export enum Operation {
  /** Services: bit `QpType`. */
  RC = 0x4,
  UC = 0x8,
  UD = 0x10,
  /** Executed locally (requester/local-work.ts): no packet. */
  LOCAL = 0x20,
  // The answer; a row without any of the next three is answered by an acknowledgement.
  /** READ responses with data. */
  DATA = 0x80,
  /** An ATOMIC ACKNOWLEDGE. */
  ATOMIC = 0x100,
  /** A READ response without payload. */
  EMPTY = 0x200,
  /** The peer may take long to answer: its RNR NAKs are signs of life. */
  SLOW = 0x400,
  /** Starts when all requests before it are complete (IBA 10.6.5.1). */
  AFTER_ALL = 0x800,
  /** The same, if SendFlag.FENCE is set. */
  FENCE_ALL = 0x1000,
  /** Its SGEs name 8 bytes. */
  WORD = 0x2000,
  /** It ignores its SGEs. */
  NO_SGES = 0x4000,
  /** It may carry inline data. */
  INLINE = 0x8000,
  /** It consumes a receive request of the peer, so it may be solicited. */
  RECEIVE = 0x200000,
  /** The last packet carries immediate data. */
  IMMEDIATE = 0x400000,
  /** The last packet carries the key to invalidate. */
  INVALIDATE = 0x800000,
}

/** Any answer but an acknowledgement: the request occupies a place of `max_rd_atomic`. */
const RESPONSES: u32 = Operation.DATA | Operation.ATOMIC | Operation.EMPTY;
/** WcOpcode of an opcode without a row. */
export const NO_OPERATION: u32 = 0xff;

function row(flags: u32, completion: u32, wire: u32): u32 {
  return flags | (wire << 16) | (completion << 24);
}

/**
 * The row of an opcode. An unknown opcode belongs to no service, so every queue pair refuses it.
 */
export function operationOf(opcode: u32): u32 {
  const rc: u32 = Operation.RC;
  const connected: u32 = Operation.RC | Operation.UC;
  const local: u32 = connected | Operation.LOCAL;
  const message: u32 = connected | Operation.INLINE;
  const send: u32 = message | Operation.RECEIVE;
  const write: u32 = Opcode.RC_RDMA_WRITE_FIRST;
  switch (opcode) {
    case WrOpcode.RDMA_WRITE:
      return row(message, WcOpcode.RDMA_WRITE, write);
    case WrOpcode.RDMA_WRITE_WITH_IMM:
      return row(send | Operation.IMMEDIATE, WcOpcode.RDMA_WRITE, write);
    case WrOpcode.SEND:
      return row(send | Operation.UD, WcOpcode.SEND, Opcode.RC_SEND_FIRST);
    case WrOpcode.SEND_WITH_IMM:
      return row(send | Operation.UD | Operation.IMMEDIATE, WcOpcode.SEND, Opcode.RC_SEND_FIRST);
    case WrOpcode.SEND_WITH_INV:
      return row(
        (send & ~(<u32>Operation.UC)) | Operation.INVALIDATE,
        WcOpcode.SEND,
        Opcode.RC_SEND_FIRST,
      );
    case WrOpcode.RDMA_READ:
      return row(rc | Operation.DATA, WcOpcode.RDMA_READ, Opcode.RC_RDMA_READ_REQUEST);
    case WrOpcode.ATOMIC_CMP_AND_SWP:
      return row(
        rc | Operation.ATOMIC | Operation.WORD,
        WcOpcode.COMP_SWAP,
        Opcode.RC_COMPARE_SWAP,
      );
    case WrOpcode.ATOMIC_FETCH_AND_ADD:
      return row(rc | Operation.ATOMIC | Operation.WORD, WcOpcode.FETCH_ADD, Opcode.RC_FETCH_ADD);
    case WrOpcode.FLUSH:
      return row(
        rc | Operation.EMPTY | Operation.SLOW | Operation.FENCE_ALL | Operation.NO_SGES,
        WcOpcode.FLUSH,
        Opcode.RC_FLUSH,
      );
    case WrOpcode.ATOMIC_WRITE:
      return row(
        rc | Operation.EMPTY | Operation.WORD | Operation.INLINE,
        WcOpcode.ATOMIC_WRITE,
        Opcode.RC_ATOMIC_WRITE,
      );
    case WrOpcode.LOCAL_INV:
      return row(local | Operation.AFTER_ALL, WcOpcode.LOCAL_INV, 0);
    case WrOpcode.BIND_MW:
      return row(local, WcOpcode.BIND_MW, 0);
    case WrOpcode.REG_MR:
      return row(local, WcOpcode.REG_MR, 0);
    case WrOpcode.BIND_MR:
      return row(local, WcOpcode.BIND_MR, 0);
    default:
      return row(0, NO_OPERATION, 0);
  }
}

/** Has the request one of these bits of Operation? */
export function isOf(request: SendRequest, bits: u32): bool {
  return (request.operation & bits) != 0;
}

/** Does the request wait for a response of its own, not for an acknowledgement? */
export function awaitsData(request: SendRequest): bool {
  return isOf(request, RESPONSES);
}

export function completionOpcode(request: SendRequest): u32 {
  return request.operation >>> 24;
}

/** The opcode of the request's only packet, RC. */
export function wireOpcode(request: SendRequest): u32 {
  return (request.operation >>> 16) & 0x1f;
}

/**
 * The opcode of a packet of a message, by its place. FIRST, MIDDLE, LAST, LAST_WITH_IMM, ONLY and
 * ONLY_WITH_IMM have adjacent numbers in both families and in all services.
 */
export function messageOpcode(type: u32, request: SendRequest, first: bool, last: bool): u32 {
  if (last && isOf(request, Operation.INVALIDATE)) {
    return first ? Opcode.RC_SEND_ONLY_WITH_INVALIDATE : Opcode.RC_SEND_LAST_WITH_INVALIDATE;
  }
  // Services: RC 0x00, UC 0x20, UD 0x60.
  const service: u32 = type == <u32>QpType.UD ? 0x60 : (type - QpType.RC) << 5;
  const family = service + wireOpcode(request);
  if (!last) return first ? family : family + 1;
  return family + (first ? 4 : 2) + u32(isOf(request, Operation.IMMEDIATE));
}

/** The first value of an ATOMIC_ETH: to swap in, or to add. */
export function atomicOperand(opcode: u32, request: SendRequest): u64 {
  return opcode == <u32>Opcode.RC_COMPARE_SWAP ? request.swap : request.compareAdd;
}

/** The second value of an ATOMIC_ETH: to compare with. */
export function atomicCompared(opcode: u32, request: SendRequest): u64 {
  return opcode == <u32>Opcode.RC_COMPARE_SWAP ? request.compareAdd : 0;
}

/** In a request's Q_Key: use the queue pair's own instead (IBA 10.2.5). */
const QKEY_OF_QUEUE_PAIR: u32 = 0x80000000;

/**
 * Writes the headers behind the BTH that the row of a wire opcode names, with the fields of the
 * request. RETH: `address`, `length`. Returns the length of all headers, BTH included.
 */
export function storeHeaders(
  context: Context,
  qp: QueuePair,
  packet: usize,
  opcode: u32,
  request: SendRequest,
  address: u64,
  length: u32,
): u32 {
  const table = context.opcodeTable;
  const headers = headersOf(table, opcode);
  if (headers & Header.RETH) {
    storeReth(packet + headerOffset(table, opcode, Header.RETH), address, request.key, length);
  }
  if (headers & Header.IMM_DT) {
    storeU32(packet + headerOffset(table, opcode, Header.IMM_DT), request.immediate);
  } else if (headers & Header.IETH) {
    storeU32(packet + headerOffset(table, opcode, Header.IETH), request.key);
  }
  if (headers & Header.FETH) {
    storeU32(packet + headerOffset(table, opcode, Header.FETH), request.flush);
  } else if (headers & Header.ATOMIC_ETH) {
    const at = packet + headerOffset(table, opcode, Header.ATOMIC_ETH);
    storeU64(at, address);
    storeU32(at + 8, request.key);
    storeU64(at + 12, atomicOperand(opcode, request));
    storeU64(at + 20, atomicCompared(opcode, request));
  } else if (headers & Header.DETH) {
    const at = packet + headerOffset(table, opcode, Header.DETH);
    storeU32(at, request.remoteQkey & QKEY_OF_QUEUE_PAIR ? qp.qkey : request.remoteQkey);
    storeU32(at + 4, qp.qpn);
  }
  return headersLength(table, opcode);
}
