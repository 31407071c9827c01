/** Vectors of RFC 8439: ChaCha20 (2.3.2), and the edges of Poly1305 (A.3). */
import { AEAD_SCRATCH_SIZE, aeadCrypt, aeadTag } from '../crypto/aead';
import { chachaBlock, keyStream } from '../crypto/chacha20';
import { Poly1305, polyBegin, polyBlocks, polyFinish } from '../crypto/poly1305';
import { FREE } from './memory';
import { begin, end, same } from './tap';

const KEY = FREE;
const MESSAGE = FREE + 64;
const STATE = FREE + 192;
const TAG = FREE + 256;
const OUT = FREE + 320;

/** `count` bytes of the same value. */
function fill(at: usize, value: u8, count: u32): void {
  memory.fill(at, value, count);
}

function tagIs(blocks: u32, low: u64, high: u64, at: u64): void {
  const state = changetype<Poly1305>(STATE);
  polyBegin(state, KEY);
  polyBlocks(state, MESSAGE, blocks);
  polyFinish(state, TAG);
  same(load<u64>(TAG), low, 'low half of the tag', at);
  same(load<u64>(TAG, 8), high, 'high half of the tag', at);
}

/** r and s of 16 bytes each, from their first byte; the rest is 0. */
function keyIs(r: u8, s: u8): void {
  fill(KEY, 0, 32);
  store<u8>(KEY, r);
  fill(KEY + 16, s, 16);
}

export function checkCrypto(): void {
  begin('a block of ChaCha20 is that of RFC 8439, 2.3.2');
  for (let index: u32 = 0; index < 32; index++) store<u8>(KEY + index, <u8>index);
  chachaBlock(OUT, KEY, 1, 0x09000000, 0x4a000000, 0);
  same(load<u32>(OUT), 0xe4e7f110, 'word', 0);
  same(load<u32>(OUT, 4), 0x15593bd1, 'word', 1);
  same(load<u32>(OUT, 32), 0x466482d2, 'word', 8);
  same(load<u32>(OUT, 60), 0x4e3c50a2, 'word', 15);
  end();

  begin('four blocks at once are the four blocks one by one');
  keyStream(OUT, KEY, 0xfffffffe, 1, 2, 3);
  for (let block: u32 = 0; block < 4; block++) {
    chachaBlock(OUT + 256, KEY, 0xfffffffe + block, 1, 2, 3);
    for (let at: u32 = 0; at < 64; at += 8) {
      const place = OUT + <usize>(64 * block + at);
      same(load<u64>(place), load<u64>(OUT + 256 + <usize>at), 'word', 64 * block + at);
    }
  }
  end();

  begin('Poly1305 meets the edges of its modulus (RFC 8439, A.3)');
  // 7: r is 2, the message is 2^128 - 1: the accumulator passes 2^130 - 5.
  keyIs(2, 0);
  fill(MESSAGE, 0xff, 16);
  tagIs(1, 3, 0, 7);
  // 8: r is 2, s is 2^128 - 1, the message is 2: the sum passes 2^128.
  keyIs(2, 0xff);
  fill(MESSAGE, 0, 16);
  store<u8>(MESSAGE, 2);
  tagIs(1, 3, 0, 8);
  // 9: the sum of three blocks is 5 above the modulus.
  keyIs(1, 0);
  fill(MESSAGE, 0xff, 48);
  store<u8>(MESSAGE + 16, 0xf0);
  fill(MESSAGE + 32, 0, 16);
  store<u8>(MESSAGE + 32, 0x11);
  tagIs(3, 5, 0, 9);
  // 10: it is the modulus itself.
  fill(MESSAGE, 0xff, 16);
  store<u8>(MESSAGE + 16, 0xfb);
  fill(MESSAGE + 17, 0xfe, 15);
  fill(MESSAGE + 32, 1, 16);
  tagIs(3, 0, 0, 10);
  // 11: it is one below the modulus.
  keyIs(2, 0);
  fill(MESSAGE, 0xff, 16);
  store<u8>(MESSAGE, 0xfd);
  tagIs(1, 0xfffffffffffffffa, 0xffffffffffffffff, 11);
  end();

  checkLimbs();
  checkScratch();
}

/** Three blocks whose sum is 3 * 2^128 + the message, and r is 1: the tag is the message. */
function sumIs(low: u64, high: u64, at: u64): void {
  fill(MESSAGE, 0, 48);
  store<u64>(MESSAGE, low);
  store<u64>(MESSAGE, high, 8);
  // 2^130 - 5 and above are reduced.
  const isReduced = high == u64.MAX_VALUE && low >= <u64>-5;
  tagIs(3, isReduced ? low + 5 : low, isReduced ? 0 : high, at);
}

function checkLimbs(): void {
  begin('Poly1305 reduces sums of the modulus and above, and no sum below');
  keyIs(1, 0);
  const ones: u64 = 0xffffffff;
  for (let limbs: u64 = 0; limbs < 16; limbs++) {
    const low = (limbs & 1 ? ones : 0) | (limbs & 2 ? ones << 32 : 0);
    const high = (limbs & 4 ? ones : 0) | (limbs & 8 ? ones << 32 : 0);
    sumIs(low, high, limbs);
  }
  for (let less: u64 = 1; less < 9; less++) sumIs(0 - less, u64.MAX_VALUE, 100 + less);
  end();
}

const SCRATCH = FREE + 4096;
const SEALED = FREE + 8192;

/** Neither a tag nor a decryption writes outside of its scratch memory. */
function checkScratch(): void {
  begin('AEAD writes to its scratch memory and to the data, and nowhere else');
  for (let length: u32 = 12; length < 200; length += 29) {
    fill(SCRATCH - 1024, 0x5a, 2048 + AEAD_SCRATCH_SIZE);
    fill(SEALED, 0x77, 256);
    aeadTag(SCRATCH, KEY, 7, SEALED, length, 12, TAG);
    aeadCrypt(SCRATCH, KEY, 7, SEALED + 12, length - 12);
    for (let at: usize = 0; at < 1024; at += 8) {
      const behind = SCRATCH + <usize>AEAD_SCRATCH_SIZE + at;
      same(load<u64>(SCRATCH - 1024 + at), 0x5a5a5a5a5a5a5a5a, 'before', at);
      same(load<u64>(behind), 0x5a5a5a5a5a5a5a5a, 'behind', at);
    }
    for (let at: u32 = 0; at < 256; at++) {
      if (at < 12 || at >= length) same(load<u8>(SEALED + at), 0x77, 'data', at);
    }
  }
  end();
}
