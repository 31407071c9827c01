/**
 * Completion counters (`ibv_comp_cntr`): count completed operations of a kind, or their bytes,
 * without a queue entry for each. A queue pair has at most one per kind.
 */
import { WcOpcode, WcStatus } from '../shared/status';

/** 32 bytes. */
@unmanaged
export class CompletionCounter {
  /** Completed with success: requests or bytes. */
  value: u64;
  /** Completed with an error: requests. */
  errors: u64;
  /** 1: bytes are counted, not requests. */
  bytes: u32;
  reserved0: u32;
  reserved1: u64;
}
export const COMPLETION_COUNTER_SIZE: u32 = 32;

/** Kinds of operations: indices of a queue pair's table of counters, bits of its mask. */
export enum CountedOperation {
  SEND = 0,
  RECV = 1,
  RDMA_READ = 2,
  REMOTE_RDMA_READ = 3,
  RDMA_WRITE = 4,
  REMOTE_RDMA_WRITE = 5,
}
/** Bytes of a queue pair's table: an address, or 0, for each kind. */
export const COUNTER_TABLE_SIZE: u32 = 24;

/** Counts one completion; `table`: that of the queue pair; 0: it has no counters. */
export function countCompletion(table: usize, operation: u32, status: u32, length: u32): void {
  if (table == 0) return;
  const at = load<u32>(table + <usize>(operation << 2));
  if (at == 0) return;
  const counter = changetype<CompletionCounter>(<usize>at);
  if (status != <u32>WcStatus.SUCCESS) counter.errors++;
  else counter.value += counter.bytes ? length : 1;
}

/** A send request completes: atomics, invalidations and binds are not counted. */
export function countSend(table: usize, opcode: u32, status: u32, length: u32): void {
  if (opcode == <u32>WcOpcode.SEND) {
    countCompletion(table, CountedOperation.SEND, status, length);
  } else if (opcode == <u32>WcOpcode.RDMA_READ) {
    countCompletion(table, CountedOperation.RDMA_READ, status, length);
  } else if (opcode == <u32>WcOpcode.RDMA_WRITE) {
    countCompletion(table, CountedOperation.RDMA_WRITE, status, length);
  }
}
