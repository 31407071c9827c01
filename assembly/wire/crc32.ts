/**
 * CRC-32 (IEEE 802.3, reflected, 0xedb88320) of linear memory: the arithmetic of the ICRC.
 *
 * The bytes are the coefficients of a polynomial over GF(2), lowest bit first, highest power first.
 * The register after a message m is m(x) * x^32 mod P, so adding any multiple of P to m changes
 * nothing. Take a multiple with few terms, M(x) = x^d + x^a + x^b + ... + 1. To clear one bit, add
 * M so that x^d falls on it: the bit moves to the places d-a, d-b, ..., d further on. Doing that
 * for each bit in turn, w the bit that is cleared, is the recurrence
 * ```
 *   w[i] = in[i] ^ w[i-(d-a)] ^ w[i-(d-b)] ^ ... ^ w[i-d]
 * ```
 * and what it spills into the last d places is a message of d bits with the same CRC.
 *
 * Over GF(2) squaring is additive: M(x)^2 = M(x^2), hence M(x)^8 = M(x^8). This too is a multiple
 * of P, and all its exponents are multiples of 8: the recurrence above holds word for word with
 * bytes instead of bits. When every distance is at least 16, sixteen steps are independent of each
 * other, and one step of the loop is a few unaligned vector loads.
 *
 * - Stage A: M = x^300 + x^155 + x^117 + x^89 + 1, in bytes: distances 145, 183, 211, 300.
 *   Four history loads per vector; leaves 304 bytes (300, in whole vectors).
 * - Stage B: M = x^137 + x^84 + x^80 + x^70 + x^29 + x^8 + 1, in bytes: distances 53, 57, 67, 108,
 *   129, 137. Six history loads per vector; leaves 144 bytes.
 * - Stage C: stage A's M in bits, on 64-bit words: 300 bits, so it leaves 48 bytes.
 * - Those, and messages too short for stage B, go through tables for sixteen bytes at a time.
 *
 * How the multiples were found: tabulate x^n mod P for n up to 310. A sum of powers is a multiple
 * of P when its residues cancel, so a search for weight w puts the XORs of some inner residues in a
 * hash map and looks up 1 ^ x^d ^ the others, for d upwards, inner exponents at most d - 16. These
 * two are the lowest of five and of seven terms that keep every distance at 16 or more. To check
 * them again:
 * ```
 *   def mod(m):
 *       while m >> 32: m ^= 0x104c11db7 << m.bit_length() - 33
 *       return m
 *   print(mod(sum(1 << n for n in (300, 155, 117, 89, 0))))
 *   print(mod(sum(1 << n for n in (137, 84, 80, 70, 29, 8, 0))))
 * ```
 * prints 0 twice in Python. The recurrence on words is known as Chorba, arXiv 2412.16398.
 */

/** P without x^32. Bit 31 stands for x^0, bit 0 for x^31. */
export const CRC_POLYNOMIAL: u32 = 0xedb88320;

const VECTOR: usize = 16;

/** Bytes of one table of 256 registers. Table k: what a byte does when k more bytes follow it. */
const TABLE: usize = 256 * 4;
const TABLE_COUNT: usize = 16;
/** Read-only after `initCrcTables`; may be shared. */
export const CRC_TABLES_SIZE: usize = TABLE_COUNT * TABLE;

/** Bytes that a stage leaves: its degree, in whole vectors. */
const A_LEFT: usize = 304;
const B_LEFT: usize = 144;
const C_LEFT: usize = 48;

/**
 * Offsets of the history loads of a stage, from `past`: the degree below the vector being made,
 * since immediate offsets cannot be negative. X_HERE is that vector itself.
 */
const A_HERE: usize = 300;
const A_145: usize = A_HERE - 145;
const A_183: usize = A_HERE - 183;
const A_211: usize = A_HERE - 211;
const A_300: usize = A_HERE - 300;
const B_HERE: usize = 137;
const B_53: usize = B_HERE - 53;
const B_57: usize = B_HERE - 57;
const B_67: usize = B_HERE - 67;
const B_108: usize = B_HERE - 108;
const B_129: usize = B_HERE - 129;
const B_137: usize = B_HERE - 137;

/** Longest message that is folded at once: the longest packet (4096 + 128), and some more. */
const CHUNK: usize = 4480;
/** From here stage A pays, measured; any multiple of a vector above A_LEFT + VECTOR works. */
const A_FROM: usize = 512;
/** Shortest message for stage B: two vectors with the register in them, then B_LEFT. */
const B_FROM: usize = B_LEFT + 2 * VECTOR;

/**
 * Scratch. Before each stage's w stand zeros that no code ever writes: the w of the places before
 * the message. Behind its last w each stage writes zeros, since the last bytes are not cleared any
 * more (their w is 0) but their neighbours still load them.
 * ```
 *   | zeros | w of stage A | zeros | left by A | zeros | w of stage B | zeros | left by B |
 * ```
 */
const A_WORK: usize = A_LEFT;
const A_RESULT: usize = A_WORK + CHUNK;
const B_WORK: usize = A_RESULT + A_LEFT + B_LEFT;
const B_RESULT: usize = B_WORK + A_FROM;
const C_RESULT: usize = B_RESULT + B_LEFT - C_LEFT;
/** Private to one worker, zeroed by `initCrcScratch` and then only touched by `crc32`. */
export const CRC_SCRATCH_SIZE: usize = (B_RESULT + B_LEFT + 63) & ~63;

/** Writes the tables. `tables`: CRC_TABLES_SIZE bytes. */
export function initCrcTables(tables: usize): void {
  for (let byte: u32 = 0; byte < 256; byte++) {
    let register = byte;
    for (let bit = 0; bit < 8; bit++) {
      register = (register >>> 1) ^ (register & 1 ? CRC_POLYNOMIAL : 0);
    }
    store<u32>(tables + ((<usize>byte) << 2), register);
  }
  for (let at = tables + TABLE; at < tables + CRC_TABLES_SIZE; at += 4) {
    store<u32>(at, crcByte(tables, load<u32>(at - TABLE), 0));
  }
}

/** Makes the scratch ready. `scratch`: CRC_SCRATCH_SIZE bytes. */
export function initCrcScratch(scratch: usize): void {
  memory.fill(scratch, 0, CRC_SCRATCH_SIZE);
}

/** The register after one more byte. */
export function crcByte(tables: usize, register: u32, byte: u32): u32 {
  return (register >>> 8) ^ load<u32>(tables + (((register ^ byte) & 0xff) << 2));
}

/** The register after four more bytes, given as a little-endian word. */
export function crcWord(tables: usize, register: u32, word: u32): u32 {
  return four(tables, register ^ word);
}

/** The register after eight more bytes, given as two little-endian words. */
export function crcTwoWords(tables: usize, register: u32, first: u32, second: u32): u32 {
  return four(tables + 4 * TABLE, register ^ first) ^ four(tables, second);
}

/**
 * Contribution of four bytes to the register; the last of them takes the first table at `tables`.
 */
function four(tables: usize, word: u32): u32 {
  const early =
    load<u32>(tables + ((word & 0xff) << 2), 3 * TABLE) ^
    load<u32>(tables + (((word >>> 8) & 0xff) << 2), 2 * TABLE);
  const late =
    load<u32>(tables + (((word >>> 16) & 0xff) << 2), TABLE) ^
    load<u32>(tables + ((word >>> 24) << 2));
  return early ^ late;
}

/**
 * The register after sixteen more bytes. Only the first lookups wait for the register. The others
 * take their bytes from memory one by one: a load is cheaper than what cuts a byte out of a word.
 */
function sixteen(tables: usize, register: u32, at: usize): u32 {
  const a =
    load<u32>(tables + ((<usize>load<u8>(at, 4)) << 2), 11 * TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 5)) << 2), 10 * TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 6)) << 2), 9 * TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 7)) << 2), 8 * TABLE);
  const b =
    load<u32>(tables + ((<usize>load<u8>(at, 8)) << 2), 7 * TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 9)) << 2), 6 * TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 10)) << 2), 5 * TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 11)) << 2), 4 * TABLE);
  const c =
    load<u32>(tables + ((<usize>load<u8>(at, 12)) << 2), 3 * TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 13)) << 2), 2 * TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 14)) << 2), TABLE) ^
    load<u32>(tables + ((<usize>load<u8>(at, 15)) << 2));
  return a ^ b ^ c ^ four(tables + 12 * TABLE, register ^ load<u32>(at));
}

/** Short messages: tables alone. */
function slice(tables: usize, register: u32, address: usize, length: usize): u32 {
  for (; length >= 16; length -= 16, address += 16) {
    register = sixteen(tables, register, address);
  }
  if (length & 8) {
    register = crcTwoWords(tables, register, load<u32>(address), load<u32>(address, 4));
    address += 8;
  }
  if (length & 4) {
    register = crcWord(tables, register, load<u32>(address));
    address += 4;
  }
  for (length &= 3; length > 0; length--, address++) {
    register = crcByte(tables, register, load<u8>(address));
  }
  return register;
}

/** Addend of the recurrence of stage A to the vector at past + A_HERE. */
function historyA(past: usize): v128 {
  return v128.xor(
    v128.xor(v128.load(past, A_300), v128.load(past, A_211)),
    v128.xor(v128.load(past, A_183), v128.load(past, A_145)),
  );
}

/** Sixteen bytes of two vectors, from byte 4, 9, 13 or 15 on. */
function shifted4(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19);
}
function shifted9(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24);
}
function shifted13(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28);
}
function shifted15(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30);
}

/** Addend of the recurrence of stage B to the vector at past + B_HERE. */
function historyB(past: usize): v128 {
  const far = v128.xor(v128.load(past, B_137), v128.load(past, B_129));
  const middle = v128.xor(v128.load(past, B_108), v128.load(past, B_67));
  const near = v128.xor(v128.load(past, B_57), v128.load(past, B_53));
  return v128.xor(v128.xor(far, middle), near);
}

/**
 * Stage A: the first two vectors are arguments, the other `length` bytes are at `address`. Leaves
 * A_LEFT bytes at A_RESULT.
 */
function stageA(scratch: usize, first: v128, second: v128, address: usize, length: usize): void {
  let past = scratch + A_WORK - A_HERE;
  // No distance is below two vectors, so the first two have no history, and any two are
  // independent of each other.
  v128.store(past, first, A_HERE);
  v128.store(past, second, A_HERE + VECTOR);
  past += 2 * VECTOR;
  const end = address + length - A_LEFT;
  if ((length - A_LEFT) & VECTOR) {
    v128.store(past, v128.xor(historyA(past), v128.load(address)), A_HERE);
    past += VECTOR;
    address += VECTOR;
  }
  // Here all loads of what was stored are whole vectors as they were stored, which processors hand
  // on at once: two of them, of which the first was the second one before, make one of the history.
  let v145 = v128.load(past, A_HERE - 160);
  let v183 = v128.load(past, A_HERE - 192);
  let v211 = v128.load(past, A_HERE - 224);
  let v300 = v128.load(past - 4);
  for (; address < end; past += 2 * VECTOR, address += 2 * VECTOR) {
    const w145 = v128.load(past, A_HERE - 144);
    const w183 = v128.load(past, A_HERE - 176);
    const w211 = v128.load(past, A_HERE - 208);
    const w300 = v128.load(past, A_HERE - 288);
    const far = v128.xor(shifted4(v300, w300), shifted13(v211, w211));
    const near = v128.xor(shifted9(v183, w183), shifted15(v145, w145));
    const one = v128.xor(v128.xor(far, near), v128.load(address));
    v128.store(past, one, A_HERE);
    v145 = v128.load(past, A_HERE - 128);
    v183 = v128.load(past, A_HERE - 160);
    v211 = v128.load(past, A_HERE - 192);
    v300 = v128.load(past, A_HERE - 272);
    const farther = v128.xor(shifted4(w300, v300), shifted13(w211, v211));
    const nearer = v128.xor(shifted9(w183, v183), shifted15(w145, v145));
    const two = v128.xor(v128.xor(farther, nearer), v128.load(address, VECTOR));
    v128.store(past, two, A_HERE + VECTOR);
  }
  const zero = i64x2.splat(0);
  for (let at = past; at < past + A_LEFT; at += VECTOR) v128.store(at, zero, A_HERE);
  for (let at = scratch + A_RESULT; at < scratch + A_RESULT + A_LEFT; at += VECTOR) {
    v128.store(at, v128.xor(historyA(past), v128.load(address)));
    past += VECTOR;
    address += VECTOR;
  }
}

/** The vector for `address`, that lies `away` from there, is put there. */
function fetched(address: usize, away: usize): v128 {
  const vector = v128.load(address + away);
  v128.store(address, vector);
  return vector;
}

/**
 * Stage A for bytes that lie `away` from `address`, and are put there. The history is loaded as it
 * comes: whole vectors gain nothing here, measured.
 */
function stageACopying(
  scratch: usize,
  first: v128,
  second: v128,
  address: usize,
  length: usize,
  away: usize,
): void {
  let past = scratch + A_WORK - A_HERE;
  // No distance is below two vectors, so the first two have no history, and any two are
  // independent of each other.
  v128.store(past, first, A_HERE);
  v128.store(past, second, A_HERE + VECTOR);
  past += 2 * VECTOR;
  const end = address + length - A_LEFT;
  if ((length - A_LEFT) & VECTOR) {
    v128.store(past, v128.xor(historyA(past), fetched(address, away)), A_HERE);
    past += VECTOR;
    address += VECTOR;
  }
  for (; address < end; past += 2 * VECTOR, address += 2 * VECTOR) {
    const one = v128.xor(historyA(past), fetched(address, away));
    const two = v128.xor(historyA(past + VECTOR), fetched(address + VECTOR, away));
    v128.store(past, one, A_HERE);
    v128.store(past, two, A_HERE + VECTOR);
  }
  const zero = i64x2.splat(0);
  for (let at = past; at < past + A_LEFT; at += VECTOR) v128.store(at, zero, A_HERE);
  for (let at = scratch + A_RESULT; at < scratch + A_RESULT + A_LEFT; at += VECTOR) {
    v128.store(at, v128.xor(historyA(past), fetched(address, away)));
    past += VECTOR;
    address += VECTOR;
  }
}

/** Stage B, in the same way. Leaves B_LEFT bytes at B_RESULT. */
function stageB(scratch: usize, first: v128, second: v128, address: usize, length: usize): void {
  let past = scratch + B_WORK - B_HERE;
  v128.store(past, first, B_HERE);
  v128.store(past, second, B_HERE + VECTOR);
  past += 2 * VECTOR;
  for (const end = address + length - B_LEFT; address < end; address += VECTOR) {
    v128.store(past, v128.xor(historyB(past), v128.load(address)), B_HERE);
    past += VECTOR;
  }
  const zero = i64x2.splat(0);
  for (let at = past; at < past + B_LEFT; at += VECTOR) v128.store(at, zero, B_HERE);
  for (let at = scratch + B_RESULT; at < scratch + B_RESULT + B_LEFT; at += VECTOR) {
    v128.store(at, v128.xor(historyB(past), v128.load(address)));
    past += VECTOR;
    address += VECTOR;
  }
}

/**
 * Contribution of a cleared word of stage C to the words two, three, four and five further on. The
 * distances are 145, 183, 211 and 300 bits: 2 words and 17 or 55 bits, 3 and 19, 4 and 44. Bits
 * move to later places, which are higher ones; what leaves a word at the top enters the next at the
 * bottom.
 */
function spill2(w: u64): u64 {
  return (w << 17) ^ (w << 55);
}
function spill3(w: u64): u64 {
  return (w >> 47) ^ (w >> 9) ^ (w << 19);
}
function spill4(w: u64): u64 {
  return (w >> 45) ^ (w << 44);
}
function spill5(w: u64): u64 {
  return w >> 20;
}

/** Stage C on the B_LEFT bytes at `at`: the C_LEFT bytes that remain are their last ones. */
function stageC(at: usize): void {
  // Contribution of the words cleared so far to the next five.
  let to0: u64 = 0;
  let to1: u64 = 0;
  let to2: u64 = 0;
  let to3: u64 = 0;
  let to4: u64 = 0;
  for (const end = at + B_LEFT - C_LEFT; at < end; at += 32) {
    const a = load<u64>(at) ^ to0;
    const b = load<u64>(at, 8) ^ to1;
    const c = load<u64>(at, 16) ^ to2 ^ spill2(a);
    const d = load<u64>(at, 24) ^ to3 ^ spill3(a) ^ spill2(b);
    to0 = to4 ^ spill4(a) ^ spill3(b) ^ spill2(c);
    to1 = spill5(a) ^ spill4(b) ^ spill3(c) ^ spill2(d);
    to2 = spill5(b) ^ spill4(c) ^ spill3(d);
    to3 = spill5(c) ^ spill4(d);
    to4 = spill5(d);
  }
  store<u64>(at, load<u64>(at) ^ to0);
  store<u64>(at, load<u64>(at, 8) ^ to1, 8);
  store<u64>(at, load<u64>(at, 16) ^ to2, 16);
  store<u64>(at, load<u64>(at, 24) ^ to3, 24);
  store<u64>(at, load<u64>(at, 32) ^ to4, 32);
}

/**
 * Reduces B_FROM to CHUNK bytes, and the register, to C_LEFT bytes at C_RESULT and register 0.
 * `away`: as `crc32Copying` has it.
 */
function fold(scratch: usize, register: u32, address: usize, length: usize, away: usize): void {
  // Zeros in front change nothing while the register is 0. So the register is added to the first
  // four bytes instead, and zeros in front make the length a multiple of the vector: no tail.
  // Lanes whose index falls outside 0..15 become 0: subtracting the padding from each index moves
  // a vector back and fills its front with zeros; 16 more, and it is what was moved out.
  const pad = -length & (VECTOR - 1);
  const lanes = i8x16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const back = i8x16.sub(lanes, i8x16.splat(<i8>pad));
  const over = i8x16.add(back, i8x16.splat(<i8>VECTOR));
  const start = i32x4.replace_lane(i32x4.splat(0), 0, register);
  let first = i8x16.swizzle(v128.xor(v128.load(address), start), back);
  let second = v128.xor(v128.load(address + VECTOR - pad), i8x16.swizzle(start, over));
  let rest = address + 2 * VECTOR - pad;
  let left = length + pad - 2 * VECTOR;
  if (length >= A_FROM) {
    if (away == 0) stageA(scratch, first, second, rest, left);
    else stageACopying(scratch, first, second, rest, left, away);
    rest = scratch + A_RESULT;
    first = v128.load(rest);
    second = v128.load(rest, VECTOR);
    rest += 2 * VECTOR;
    left = A_LEFT - 2 * VECTOR;
  }
  stageB(scratch, first, second, rest, left);
  stageC(scratch + B_RESULT);
}

/**
 * Advances a raw register by `length` bytes: begin with 0xffffffff and invert at the end for the
 * usual CRC-32. Any length, any alignment. Reads nothing outside the message, writes nothing but
 * the scratch.
 */
export function crc32(
  tables: usize,
  scratch: usize,
  register: u32,
  address: usize,
  length: usize,
): u32 {
  return crc32Copying(tables, scratch, register, address, length, 0);
}

/** Least bytes of a message that may be copied while its CRC is computed. */
export const COPYING_LEAST: usize = A_FROM;

/**
 * The same for a message of which only the first bytes are there: the first two vectors, counted
 * from a place where all vectors would be whole. The others lie `away` from their place, and are
 * put there: what was loaded once is both copied and gone over, which takes little longer than
 * either. COPYING_LEAST to CHUNK bytes. `away` 0: in place, of any length.
 */
export function crc32Copying(
  tables: usize,
  scratch: usize,
  register: u32,
  address: usize,
  length: usize,
  away: usize,
): u32 {
  // One call of each stage, and of `slice`: so the compiler inlines them all.
  do {
    const part = min<usize>(length, CHUNK);
    const isLong = part >= B_FROM;
    if (isLong) fold(scratch, register, address, part, away);
    register = slice(
      tables,
      isLong ? 0 : register,
      isLong ? scratch + C_RESULT : address,
      isLong ? C_LEFT : part,
    );
    address += part;
    length -= part;
  } while (length > 0);
  return register;
}
