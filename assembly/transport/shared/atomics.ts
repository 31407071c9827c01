/**
 * The effect of each atomic, by its wire opcode. Responder and local path both execute it here, so
 * a new atomic is one case.
 */
import { Opcode } from '../../wire/opcode';

/**
 * Executes an atomic on the word at `linear`, a multiple of 8. `operand` and `compare`: the two
 * values of its ATOMIC_ETH. The word before the operation.
 */
export function executeAtomic(opcode: u32, linear: usize, operand: u64, compare: u64): u64 {
  if (opcode == <u32>Opcode.RC_COMPARE_SWAP) return atomic.cmpxchg<u64>(linear, compare, operand);
  if (opcode == <u32>Opcode.RC_FETCH_ADD) return atomic.add<u64>(linear, operand);
  // A row of the opcode table without an effect: an answer would be a lie.
  unreachable();
  return 0;
}
