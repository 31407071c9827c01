/**
 * AEAD_CHACHA20_POLY1305 (RFC 8439, 2.8) over linear memory: a tag over additional data and over a
 * ciphertext that lies behind it, in place.
 */
import { KEY_STREAM_SIZE, chachaBlock, keyStream } from './chacha20';
import { POLY1305_BYTES, Poly1305, TAG_SIZE, polyBegin, polyBlocks, polyFinish } from './poly1305';

const BLOCK: u32 = 16;
const BLOCK_COUNTER_OF_DATA: u32 = 1;

/** Work area: a key stream, the state of Poly1305, a block, a tag. */
export const AEAD_SCRATCH_SIZE: u32 = KEY_STREAM_SIZE + POLY1305_BYTES + BLOCK + TAG_SIZE;

/**
 * The tag of `length` bytes at `data`, the first `plain` of which are additional data and the rest
 * ciphertext, to `tag`. `nonce`: the last 8 bytes of the nonce; the first 4 are 0.
 */
export function aeadTag(
  scratch: usize,
  key: usize,
  nonce: u64,
  data: usize,
  length: u32,
  plain: u32,
  tag: usize,
): void {
  chachaBlock(scratch, key, 0, 0, <u32>nonce, <u32>(nonce >> 32));
  const state = changetype<Poly1305>(scratch + <usize>KEY_STREAM_SIZE);
  polyBegin(state, scratch);
  const block = scratch + <usize>(KEY_STREAM_SIZE + POLY1305_BYTES);
  padded(state, block, data, plain);
  padded(state, block, data + <usize>plain, length - plain);
  store<u64>(block, plain);
  store<u64>(block, length - plain, 8);
  polyBlocks(state, block, 1);
  polyFinish(state, tag);
}

/** Whole blocks, and the rest with zeros behind it. */
function padded(state: Poly1305, block: usize, from: usize, length: u32): void {
  polyBlocks(state, from, length / BLOCK);
  const rest = length % BLOCK;
  if (rest == 0) return;
  store<u64>(block, 0);
  store<u64>(block, 0, 8);
  memory.copy(block, from + <usize>(length - rest), rest);
  polyBlocks(state, block, 1);
}

/** Does `tag` fit? All 16 bytes are compared, in constant time. */
export function aeadVerify(
  scratch: usize,
  key: usize,
  nonce: u64,
  data: usize,
  length: u32,
  plain: u32,
  tag: usize,
): bool {
  const computed = scratch + <usize>(AEAD_SCRATCH_SIZE - TAG_SIZE);
  aeadTag(scratch, key, nonce, data, length, plain, computed);
  const low = load<u64>(computed) ^ load<u64>(tag);
  const high = load<u64>(computed, 8) ^ load<u64>(tag, 8);
  return (low | high) == 0;
}

/** Encrypts, or decrypts, `length` bytes at `data`. */
export function aeadCrypt(scratch: usize, key: usize, nonce: u64, data: usize, length: u32): void {
  let counter = BLOCK_COUNTER_OF_DATA;
  for (let done: u32 = 0; done < length; done += KEY_STREAM_SIZE, counter += 4) {
    keyStream(scratch, key, counter, 0, <u32>nonce, <u32>(nonce >> 32));
    const size = min<u32>(length - done, KEY_STREAM_SIZE);
    const at = data + <usize>done;
    let index: u32 = 0;
    for (; index + BLOCK <= size; index += BLOCK) {
      const place = at + <usize>index;
      v128.store(place, v128.xor(v128.load(place), v128.load(scratch + <usize>index)));
    }
    for (; index < size; index++) {
      const place = at + <usize>index;
      store<u8>(place, load<u8>(place) ^ load<u8>(scratch + <usize>index));
    }
  }
}

/** The key that follows `key`, 32 bytes, to `next`: no packet has this nonce. */
export function nextKey(scratch: usize, key: usize, next: usize): void {
  chachaBlock(scratch, key, 0, 0xffffffff, 0xffffffff, 0xffffffff);
  memory.copy(next, scratch, 32);
}
