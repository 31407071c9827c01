/** Steps in which many short packets of one length come, or leave, together. */
import { Opcode, WrOpcode } from '#build/abi.js';
import { Kind, PacketBit, PsnBase, REGIONS, type Action, type Below } from './action-kinds.js';

const SIZES = [8, 8, 8, 1, 60, 61, 64, 200, 228, 300];
/** More than one batch, and not always a whole number of batches. */
const LEAST = 16;

/** WRITEs in order, in one range: all as they should be, or one of them not. */
export function run(below: Below, pair: number): Action[] {
  const count = LEAST + below(24);
  const size = SIZES[below(SIZES.length)]! + 1;
  const spoiled = below(3) === 0 ? -1 : below(count);
  const fault = below(8);
  return Array.from({ length: count }, (_, index) => {
    const is = (which: number): boolean => index === spoiled && fault === which;
    const asks = below(6) === 0 ? PacketBit.ACK_REQUEST : 0;
    const last = index === count - 1 ? PacketBit.SEGMENTED : PacketBit.HOLD;
    const bits = asks | last | (is(0) ? 1 << below(15) : 0);
    const opcode = is(1) ? below(30) : Opcode.RC_RDMA_WRITE_ONLY;
    const delta = is(2) ? below(7) - 3 : 0;
    const region = is(3) ? below(REGIONS) : 0;
    const offset = is(4) ? 1 << below(32) : index;
    const length = is(5) ? 1 + below(300) : 0;
    const own = is(6) ? 1 + below(40) : size;
    return [Kind.PACKET, pair, opcode, PsnBase.AUTO, delta, own, region, offset, length, 0, bits];
  });
}

/** Requests of two pairs wait until the link gives its buffers back, and leave in one of them. */
function crowd(below: Below, pair: number): Action[] {
  const [opcode, length] = [below(2) === 0 ? WrOpcode.RDMA_WRITE : WrOpcode.SEND, below(64)];
  const of = (from: number, count: number): Action[] =>
    Array.from({ length: count }, () => [Kind.SEND, from, opcode, length, 1, 0, 0, 2]);
  const other = [0, 1, 9, 10][below(4)]!;
  return [[Kind.WIRE, 1], ...of(pair, 4), ...of(pair, 11), ...of(other, 11), [Kind.WIRE, 0]];
}

/** The link keeps every buffer that there is: what is to be sent from now on waits. */
export function wait(below: Below, pair: number): Action[] {
  if (below(2) === 0) return crowd(below, pair);
  const one = [Kind.SEND, pair, WrOpcode.SEND, 8, 1];
  return [[Kind.WIRE, 1], one, one, one, one];
}
