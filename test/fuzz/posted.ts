/**
 * The fuzzer of posted work: the process that shares the rings with the engine is hostile. It posts
 * entries with any opcode, count and length, heads that jump, words that change between two calls
 * and between two packets of one batch; and everything that receive.ts does, at the same time.
 */
import { fuzz, type FuzzReport } from './receive.js';

export function fuzzPosted(packets: number, seed: number): Promise<FuzzReport> {
  return fuzz('posted', packets, seed);
}
