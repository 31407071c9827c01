/**
 * A ring between two parties: one produces, one consumes, each writes only its own index. Indices
 * count up forever and wrap at 2^32; the number of entries is a power of two.
 * ```
 *  0      4                64     68               128
 *  | head | reserved       | tail | reserved       | entries ...
 * ```
 * Head (producer) and tail (consumer) lie in cache lines of their own.
 *
 * The other party may be another thread: an index that it wrote is hostile. `ringCount` does not
 * accept one that names more than the ring holds, or emptying it would take 2^32 turns.
 */
export const RING_HEADER_SIZE: u32 = 128;
const TAIL: usize = 64;

export function ringInit(ring: usize): void {
  memory.fill(ring, 0, RING_HEADER_SIZE);
}

export function ringHead(ring: usize): u32 {
  return atomic.load<u32>(ring);
}

export function ringTail(ring: usize): u32 {
  return atomic.load<u32>(ring + TAIL);
}

export function setRingHead(ring: usize, head: u32): void {
  atomic.store<u32>(ring, head);
}

export function setRingTail(ring: usize, tail: u32): void {
  atomic.store<u32>(ring + TAIL, tail);
}

/**
 * The same for a place without a completion: in no order with anything else, which on most
 * processors costs nothing.
 */
export function giveRingTail(ring: usize, tail: u32): void {
  store<u32>(ring + TAIL, tail);
}

/**
 * How many entries lie between `from` and the producer's head. A head that is farther away than the
 * ring is long was never written by an honest producer: nothing is taken from it.
 */
export function ringCount(ring: usize, from: u32, entries: u32): u32 {
  const count = ringHead(ring) - from;
  return count <= entries ? count : 0;
}
