/**
 * ChaCha20 (RFC 8439, 2.1 to 2.4): the block function with one block in four vectors, and four
 * blocks at once for key streams. No branch and no address depends on the key or on the data.
 */

/** Bytes of a key. */
export const CHACHA_KEY_SIZE: u32 = 32;
/** Bytes of one block of the key stream. */
export const CHACHA_BLOCK_SIZE: u32 = 64;
/** Bytes that `keyStream` writes: four blocks. */
export const KEY_STREAM_SIZE: u32 = 256;
const DOUBLE_ROUNDS: u32 = 10;

function constants(): v128 {
  // "expand 32-byte k", read as four little-endian words.
  return i32x4(0x61707865, 0x3320646e, 0x79622d32, 0x6b206574);
}

function rotate16(x: v128): v128 {
  return i8x16.shuffle(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
}

function rotate8(x: v128): v128 {
  return i8x16.shuffle(x, x, 3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14);
}

function rotate(x: v128, bits: i32): v128 {
  return v128.or(i32x4.shl(x, bits), i32x4.shr_u(x, 32 - bits));
}

/** Rotates the lanes of a row by `lanes` to the left. */
function turn1(x: v128): v128 {
  return i8x16.shuffle(x, x, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3);
}

function turn2(x: v128): v128 {
  return i8x16.shuffle(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
}

function turn3(x: v128): v128 {
  return i8x16.shuffle(x, x, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
}

/**
 * One block of 64 bytes to `out`. `key`: 32 bytes; `counter`: the block counter; `nonce0` to
 * `nonce2`: the nonce as little-endian words.
 */
export function chachaBlock(
  out: usize,
  key: usize,
  counter: u32,
  nonce0: u32,
  nonce1: u32,
  nonce2: u32,
): void {
  const row0 = constants();
  const row1 = v128.load(key);
  const row2 = v128.load(key + 16);
  const row3 = i32x4.replace_lane(
    i32x4.replace_lane(i32x4.replace_lane(i32x4.splat(counter), 1, nonce0), 2, nonce1),
    3,
    nonce2,
  );
  let a = row0;
  let b = row1;
  let c = row2;
  let d = row3;
  for (let round: u32 = 0; round < DOUBLE_ROUNDS; round++) {
    for (let half = 0; half < 2; half++) {
      a = i32x4.add(a, b);
      d = rotate16(v128.xor(d, a));
      c = i32x4.add(c, d);
      b = rotate(v128.xor(b, c), 12);
      a = i32x4.add(a, b);
      d = rotate8(v128.xor(d, a));
      c = i32x4.add(c, d);
      b = rotate(v128.xor(b, c), 7);
      c = turn2(c);
      // Columns become diagonals, and columns again.
      b = half == 0 ? turn1(b) : turn3(b);
      d = half == 0 ? turn3(d) : turn1(d);
    }
  }
  v128.store(out, i32x4.add(a, row0));
  v128.store(out, i32x4.add(b, row1), 16);
  v128.store(out, i32x4.add(c, row2), 32);
  v128.store(out, i32x4.add(d, row3), 48);
}

/**
 * Four blocks, 256 bytes, to `out`, of the counters `counter` to `counter` + 3. Word w of the four
 * states lies in vector w.
 */
export function keyStream(
  out: usize,
  key: usize,
  counter: u32,
  nonce0: u32,
  nonce1: u32,
  nonce2: u32,
): void {
  const counters = i32x4.add(i32x4.splat(counter), i32x4(0, 1, 2, 3));
  let x0 = i32x4.splat(0x61707865);
  let x1 = i32x4.splat(0x3320646e);
  let x2 = i32x4.splat(0x79622d32);
  let x3 = i32x4.splat(0x6b206574);
  let x4 = v128.load32_splat(key);
  let x5 = v128.load32_splat(key, 4);
  let x6 = v128.load32_splat(key, 8);
  let x7 = v128.load32_splat(key, 12);
  let x8 = v128.load32_splat(key, 16);
  let x9 = v128.load32_splat(key, 20);
  let x10 = v128.load32_splat(key, 24);
  let x11 = v128.load32_splat(key, 28);
  let x12 = counters;
  let x13 = i32x4.splat(nonce0);
  let x14 = i32x4.splat(nonce1);
  let x15 = i32x4.splat(nonce2);
  for (let round: u32 = 0; round < DOUBLE_ROUNDS; round++) {
    // Columns.
    x0 = i32x4.add(x0, x4);
    x1 = i32x4.add(x1, x5);
    x2 = i32x4.add(x2, x6);
    x3 = i32x4.add(x3, x7);
    x12 = rotate16(v128.xor(x12, x0));
    x13 = rotate16(v128.xor(x13, x1));
    x14 = rotate16(v128.xor(x14, x2));
    x15 = rotate16(v128.xor(x15, x3));
    x8 = i32x4.add(x8, x12);
    x9 = i32x4.add(x9, x13);
    x10 = i32x4.add(x10, x14);
    x11 = i32x4.add(x11, x15);
    x4 = rotate(v128.xor(x4, x8), 12);
    x5 = rotate(v128.xor(x5, x9), 12);
    x6 = rotate(v128.xor(x6, x10), 12);
    x7 = rotate(v128.xor(x7, x11), 12);
    x0 = i32x4.add(x0, x4);
    x1 = i32x4.add(x1, x5);
    x2 = i32x4.add(x2, x6);
    x3 = i32x4.add(x3, x7);
    x12 = rotate8(v128.xor(x12, x0));
    x13 = rotate8(v128.xor(x13, x1));
    x14 = rotate8(v128.xor(x14, x2));
    x15 = rotate8(v128.xor(x15, x3));
    x8 = i32x4.add(x8, x12);
    x9 = i32x4.add(x9, x13);
    x10 = i32x4.add(x10, x14);
    x11 = i32x4.add(x11, x15);
    x4 = rotate(v128.xor(x4, x8), 7);
    x5 = rotate(v128.xor(x5, x9), 7);
    x6 = rotate(v128.xor(x6, x10), 7);
    x7 = rotate(v128.xor(x7, x11), 7);
    // Diagonals.
    x0 = i32x4.add(x0, x5);
    x1 = i32x4.add(x1, x6);
    x2 = i32x4.add(x2, x7);
    x3 = i32x4.add(x3, x4);
    x15 = rotate16(v128.xor(x15, x0));
    x12 = rotate16(v128.xor(x12, x1));
    x13 = rotate16(v128.xor(x13, x2));
    x14 = rotate16(v128.xor(x14, x3));
    x10 = i32x4.add(x10, x15);
    x11 = i32x4.add(x11, x12);
    x8 = i32x4.add(x8, x13);
    x9 = i32x4.add(x9, x14);
    x5 = rotate(v128.xor(x5, x10), 12);
    x6 = rotate(v128.xor(x6, x11), 12);
    x7 = rotate(v128.xor(x7, x8), 12);
    x4 = rotate(v128.xor(x4, x9), 12);
    x0 = i32x4.add(x0, x5);
    x1 = i32x4.add(x1, x6);
    x2 = i32x4.add(x2, x7);
    x3 = i32x4.add(x3, x4);
    x15 = rotate8(v128.xor(x15, x0));
    x12 = rotate8(v128.xor(x12, x1));
    x13 = rotate8(v128.xor(x13, x2));
    x14 = rotate8(v128.xor(x14, x3));
    x10 = i32x4.add(x10, x15);
    x11 = i32x4.add(x11, x12);
    x8 = i32x4.add(x8, x13);
    x9 = i32x4.add(x9, x14);
    x5 = rotate(v128.xor(x5, x10), 7);
    x6 = rotate(v128.xor(x6, x11), 7);
    x7 = rotate(v128.xor(x7, x8), 7);
    x4 = rotate(v128.xor(x4, x9), 7);
  }
  x0 = i32x4.add(x0, i32x4.splat(0x61707865));
  x1 = i32x4.add(x1, i32x4.splat(0x3320646e));
  x2 = i32x4.add(x2, i32x4.splat(0x79622d32));
  x3 = i32x4.add(x3, i32x4.splat(0x6b206574));
  storeRow(out, x0, x1, x2, x3);
  x4 = i32x4.add(x4, v128.load32_splat(key));
  x5 = i32x4.add(x5, v128.load32_splat(key, 4));
  x6 = i32x4.add(x6, v128.load32_splat(key, 8));
  x7 = i32x4.add(x7, v128.load32_splat(key, 12));
  storeRow(out + 16, x4, x5, x6, x7);
  x8 = i32x4.add(x8, v128.load32_splat(key, 16));
  x9 = i32x4.add(x9, v128.load32_splat(key, 20));
  x10 = i32x4.add(x10, v128.load32_splat(key, 24));
  x11 = i32x4.add(x11, v128.load32_splat(key, 28));
  storeRow(out + 32, x8, x9, x10, x11);
  x12 = i32x4.add(x12, counters);
  x13 = i32x4.add(x13, i32x4.splat(nonce0));
  x14 = i32x4.add(x14, i32x4.splat(nonce1));
  x15 = i32x4.add(x15, i32x4.splat(nonce2));
  storeRow(out + 48, x12, x13, x14, x15);
}

/** Four words of each of the four blocks: vectors of words become vectors of blocks. */
function storeRow(out: usize, a: v128, b: v128, c: v128, d: v128): void {
  const ab01 = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const ab23 = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const cd01 = i8x16.shuffle(c, d, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const cd23 = i8x16.shuffle(c, d, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  v128.store(
    out,
    i8x16.shuffle(ab01, cd01, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
  );
  v128.store(
    out + 64,
    i8x16.shuffle(ab01, cd01, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
  );
  v128.store(
    out + 128,
    i8x16.shuffle(ab23, cd23, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
  );
  v128.store(
    out + 192,
    i8x16.shuffle(ab23, cd23, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31),
  );
}
