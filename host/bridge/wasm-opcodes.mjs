/**
 * C of each instruction of the engine: operand types, result type, expression ($0 is the first
 * operand). WebAssembly core specification, binary format; threads proposal for 0xFE. Accesses to
 * memory are macros of `wasm-runtime.h` with address and offset.
 */

const rows = (text) =>
  text
    .trim()
    .split('\n')
    .map((line) => /^\s*(\w+) (\S+)\s+(.*?) -> (\w+)\s+(.*)$/.exec(line).slice(1));

/** Kinds: `pure` may move over stores; `trap` may not, since it has an order. */
function table(text, kind) {
  return rows(text).map(([code, name, takes, gives, c]) => [
    Number(code),
    {
      name,
      takes: takes === '-' ? [] : takes.split(' '),
      gives: gives === 'none' ? undefined : gives,
      c,
      kind,
    },
  ]);
}

const PURE = `
  0x45 i32.eqz i32 -> i32 (uint32_t)($0 == 0)
  0x46 i32.eq i32 i32 -> i32 (uint32_t)($0 == $1)
  0x47 i32.ne i32 i32 -> i32 (uint32_t)($0 != $1)
  0x48 i32.lt_s i32 i32 -> i32 (uint32_t)((int32_t)$0 < (int32_t)$1)
  0x49 i32.lt_u i32 i32 -> i32 (uint32_t)($0 < $1)
  0x4a i32.gt_s i32 i32 -> i32 (uint32_t)((int32_t)$0 > (int32_t)$1)
  0x4b i32.gt_u i32 i32 -> i32 (uint32_t)($0 > $1)
  0x4c i32.le_s i32 i32 -> i32 (uint32_t)((int32_t)$0 <= (int32_t)$1)
  0x4d i32.le_u i32 i32 -> i32 (uint32_t)($0 <= $1)
  0x4e i32.ge_s i32 i32 -> i32 (uint32_t)((int32_t)$0 >= (int32_t)$1)
  0x4f i32.ge_u i32 i32 -> i32 (uint32_t)($0 >= $1)
  0x50 i64.eqz i64 -> i32 (uint32_t)($0 == 0)
  0x51 i64.eq i64 i64 -> i32 (uint32_t)($0 == $1)
  0x52 i64.ne i64 i64 -> i32 (uint32_t)($0 != $1)
  0x53 i64.lt_s i64 i64 -> i32 (uint32_t)((int64_t)$0 < (int64_t)$1)
  0x54 i64.lt_u i64 i64 -> i32 (uint32_t)($0 < $1)
  0x55 i64.gt_s i64 i64 -> i32 (uint32_t)((int64_t)$0 > (int64_t)$1)
  0x56 i64.gt_u i64 i64 -> i32 (uint32_t)($0 > $1)
  0x57 i64.le_s i64 i64 -> i32 (uint32_t)((int64_t)$0 <= (int64_t)$1)
  0x58 i64.le_u i64 i64 -> i32 (uint32_t)($0 <= $1)
  0x59 i64.ge_s i64 i64 -> i32 (uint32_t)((int64_t)$0 >= (int64_t)$1)
  0x5a i64.ge_u i64 i64 -> i32 (uint32_t)($0 >= $1)
  0x61 f64.eq f64 f64 -> i32 (uint32_t)($0 == $1)
  0x62 f64.ne f64 f64 -> i32 (uint32_t)($0 != $1)
  0x63 f64.lt f64 f64 -> i32 (uint32_t)($0 < $1)
  0x64 f64.gt f64 f64 -> i32 (uint32_t)($0 > $1)
  0x65 f64.le f64 f64 -> i32 (uint32_t)($0 <= $1)
  0x66 f64.ge f64 f64 -> i32 (uint32_t)($0 >= $1)
  0x67 i32.clz i32 -> i32 i32_clz($0)
  0x68 i32.ctz i32 -> i32 i32_ctz($0)
  0x69 i32.popcnt i32 -> i32 (uint32_t)__builtin_popcount($0)
  0x6a i32.add i32 i32 -> i32 ($0 + $1)
  0x6b i32.sub i32 i32 -> i32 ($0 - $1)
  0x6c i32.mul i32 i32 -> i32 ($0 * $1)
  0x71 i32.and i32 i32 -> i32 ($0 & $1)
  0x72 i32.or i32 i32 -> i32 ($0 | $1)
  0x73 i32.xor i32 i32 -> i32 ($0 ^ $1)
  0x74 i32.shl i32 i32 -> i32 ($0 << ($1 & 31))
  0x75 i32.shr_s i32 i32 -> i32 (uint32_t)((int32_t)$0 >> ($1 & 31))
  0x76 i32.shr_u i32 i32 -> i32 ($0 >> ($1 & 31))
  0x77 i32.rotl i32 i32 -> i32 i32_rotl($0, $1)
  0x78 i32.rotr i32 i32 -> i32 i32_rotr($0, $1)
  0x79 i64.clz i64 -> i64 i64_clz($0)
  0x7a i64.ctz i64 -> i64 i64_ctz($0)
  0x7b i64.popcnt i64 -> i64 (uint64_t)__builtin_popcountll($0)
  0x7c i64.add i64 i64 -> i64 ($0 + $1)
  0x7d i64.sub i64 i64 -> i64 ($0 - $1)
  0x7e i64.mul i64 i64 -> i64 ($0 * $1)
  0x83 i64.and i64 i64 -> i64 ($0 & $1)
  0x84 i64.or i64 i64 -> i64 ($0 | $1)
  0x85 i64.xor i64 i64 -> i64 ($0 ^ $1)
  0x86 i64.shl i64 i64 -> i64 ($0 << ($1 & 63))
  0x87 i64.shr_s i64 i64 -> i64 (uint64_t)((int64_t)$0 >> ($1 & 63))
  0x88 i64.shr_u i64 i64 -> i64 ($0 >> ($1 & 63))
  0x89 i64.rotl i64 i64 -> i64 i64_rotl($0, $1)
  0x8a i64.rotr i64 i64 -> i64 i64_rotr($0, $1)
  0x9f f64.sqrt f64 -> f64 __builtin_sqrt($0)
  0xa0 f64.add f64 f64 -> f64 ($0 + $1)
  0xa1 f64.sub f64 f64 -> f64 ($0 - $1)
  0xa2 f64.mul f64 f64 -> f64 ($0 * $1)
  0xa3 f64.div f64 f64 -> f64 ($0 / $1)
  0xa4 f64.min f64 f64 -> f64 f64_min($0, $1)
  0xa5 f64.max f64 f64 -> f64 f64_max($0, $1)
  0xa7 i32.wrap_i64 i64 -> i32 (uint32_t)$0
  0xac i64.extend_i32_s i32 -> i64 (uint64_t)(int32_t)$0
  0xad i64.extend_i32_u i32 -> i64 (uint64_t)$0
  0xb7 f64.convert_i32_s i32 -> f64 (double)(int32_t)$0
  0xb8 f64.convert_i32_u i32 -> f64 (double)$0
  0xb9 f64.convert_i64_s i64 -> f64 (double)(int64_t)$0
  0xba f64.convert_i64_u i64 -> f64 (double)$0
  0xc0 i32.extend8_s i32 -> i32 (uint32_t)(int8_t)$0
  0xc1 i32.extend16_s i32 -> i32 (uint32_t)(int16_t)$0
  0xfc02 i32.trunc_sat_f64_s f64 -> i32 i32_trunc_sat_s($0)
  0xfc03 i32.trunc_sat_f64_u f64 -> i32 i32_trunc_sat_u($0)
  0xfc06 i64.trunc_sat_f64_s f64 -> i64 i64_trunc_sat_s($0)
  0xfc07 i64.trunc_sat_f64_u f64 -> i64 i64_trunc_sat_u($0)
  0xfd0e i8x16.swizzle v128 v128 -> v128 v128_swizzle($0, $1)
  0xfd0f i8x16.splat i32 -> v128 v128_splat8($0)
  0xfd11 i32x4.splat i32 -> v128 v128_splat32($0)
  0xfd4d v128.not v128 -> v128 (~$0)
  0xfd4e v128.and v128 v128 -> v128 ($0 & $1)
  0xfd50 v128.or v128 v128 -> v128 ($0 | $1)
  0xfd51 v128.xor v128 v128 -> v128 ($0 ^ $1)
  0xfd6e i8x16.add v128 v128 -> v128 ((v128)((lanes8)$0 + (lanes8)$1))
  0xfd71 i8x16.sub v128 v128 -> v128 ((v128)((lanes8)$0 - (lanes8)$1))
  0xfd8d i16x8.shr_u v128 i32 -> v128 ((v128)((lanes16)$0 >> (uint16_t)($1 & 15)))
  0xfdab i32x4.shl v128 i32 -> v128 ($0 << ($1 & 31))
  0xfdad i32x4.shr_u v128 i32 -> v128 ($0 >> ($1 & 31))
  0xfdae i32x4.add v128 v128 -> v128 ($0 + $1)
  0xfdb1 i32x4.sub v128 v128 -> v128 ($0 - $1)
`;

/** They trap, and have their place among other effects. */
const ORDERED = `
  0x6d i32.div_s i32 i32 -> i32 i32_div_s($0, $1)
  0x6e i32.div_u i32 i32 -> i32 i32_div_u($0, $1)
  0x6f i32.rem_s i32 i32 -> i32 i32_rem_s($0, $1)
  0x70 i32.rem_u i32 i32 -> i32 i32_rem_u($0, $1)
  0x80 i64.div_u i64 i64 -> i64 i64_div_u($0, $1)
  0x82 i64.rem_u i64 i64 -> i64 i64_rem_u($0, $1)
`;

/** With a memarg: $at is the place of the access. */
const ACCESSES = `
  0x28 i32.load i32 -> i32 READ(u32, $at)
  0x29 i64.load i32 -> i64 READ(u64, $at)
  0x2b f64.load i32 -> f64 READ(f64, $at)
  0x2c i32.load8_s i32 -> i32 (uint32_t)(int8_t)READ(u8, $at)
  0x2d i32.load8_u i32 -> i32 (uint32_t)READ(u8, $at)
  0x2e i32.load16_s i32 -> i32 (uint32_t)(int16_t)READ(u16, $at)
  0x2f i32.load16_u i32 -> i32 (uint32_t)READ(u16, $at)
  0x30 i64.load8_s i32 -> i64 (uint64_t)(int8_t)READ(u8, $at)
  0x31 i64.load8_u i32 -> i64 (uint64_t)READ(u8, $at)
  0x33 i64.load16_u i32 -> i64 (uint64_t)READ(u16, $at)
  0x34 i64.load32_s i32 -> i64 (uint64_t)(int32_t)READ(u32, $at)
  0x35 i64.load32_u i32 -> i64 (uint64_t)READ(u32, $at)
  0x36 i32.store i32 i32 -> none WRITE(u32, $at, $1)
  0x37 i64.store i32 i64 -> none WRITE(u64, $at, $1)
  0x39 f64.store i32 f64 -> none WRITE(f64, $at, $1)
  0x3a i32.store8 i32 i32 -> none WRITE(u8, $at, (uint8_t)$1)
  0x3b i32.store16 i32 i32 -> none WRITE(u16, $at, (uint16_t)$1)
  0x3c i64.store8 i32 i64 -> none WRITE(u8, $at, (uint8_t)$1)
  0x3d i64.store16 i32 i64 -> none WRITE(u16, $at, (uint16_t)$1)
  0x3e i64.store32 i32 i64 -> none WRITE(u32, $at, (uint32_t)$1)
  0xfd00 v128.load i32 -> v128 READ(v128, $at)
  0xfd09 v128.load32_splat i32 -> v128 v128_splat32(READ(u32, $at))
  0xfd0b v128.store i32 v128 -> none WRITE(v128, $at, $1)
  0xfd5c v128.load32_zero i32 -> v128 (v128){ READ(u32, $at), 0, 0, 0 }
  0xfe10 i32.atomic.load i32 -> i32 ATOMIC_READ(u32, $at)
  0xfe11 i64.atomic.load i32 -> i64 ATOMIC_READ(u64, $at)
  0xfe17 i32.atomic.store i32 i32 -> none ATOMIC_WRITE(u32, $at, $1)
  0xfe18 i64.atomic.store i32 i64 -> none ATOMIC_WRITE(u64, $at, $1)
  0xfe1e i32.atomic.rmw.add i32 i32 -> i32 ATOMIC_UPDATE(fetch_add, u32, $at, $1)
  0xfe1f i64.atomic.rmw.add i32 i64 -> i64 ATOMIC_UPDATE(fetch_add, u64, $at, $1)
  0xfe25 i32.atomic.rmw.sub i32 i32 -> i32 ATOMIC_UPDATE(fetch_sub, u32, $at, $1)
  0xfe26 i64.atomic.rmw.sub i32 i64 -> i64 ATOMIC_UPDATE(fetch_sub, u64, $at, $1)
  0xfe2c i32.atomic.rmw.and i32 i32 -> i32 ATOMIC_UPDATE(fetch_and, u32, $at, $1)
  0xfe2d i64.atomic.rmw.and i32 i64 -> i64 ATOMIC_UPDATE(fetch_and, u64, $at, $1)
  0xfe33 i32.atomic.rmw.or i32 i32 -> i32 ATOMIC_UPDATE(fetch_or, u32, $at, $1)
  0xfe34 i64.atomic.rmw.or i32 i64 -> i64 ATOMIC_UPDATE(fetch_or, u64, $at, $1)
  0xfe3a i32.atomic.rmw.xor i32 i32 -> i32 ATOMIC_UPDATE(fetch_xor, u32, $at, $1)
  0xfe3b i64.atomic.rmw.xor i32 i64 -> i64 ATOMIC_UPDATE(fetch_xor, u64, $at, $1)
  0xfe41 i32.atomic.rmw.xchg i32 i32 -> i32 ATOMIC_UPDATE(exchange_n, u32, $at, $1)
  0xfe42 i64.atomic.rmw.xchg i32 i64 -> i64 ATOMIC_UPDATE(exchange_n, u64, $at, $1)
  0xfe48 i32.atomic.rmw.cmpxchg i32 i32 i32 -> i32 ATOMIC_COMPARE(u32, $at, $1, $2)
  0xfe49 i64.atomic.rmw.cmpxchg i32 i64 i64 -> i64 ATOMIC_COMPARE(u64, $at, $1, $2)
`;

export const OPCODES = new Map([
  ...table(PURE, 'pure'),
  ...table(ORDERED, 'ordered'),
  ...table(ACCESSES, 'access'),
]);

/** With operands of their own; `wasm-to-c.mjs` has a method for each. */
export const SPECIAL = new Map([
  [0x00, 'unreachable'],
  [0x01, 'nop'],
  [0x02, 'block'],
  [0x03, 'loop'],
  [0x04, 'if'],
  [0x05, 'else'],
  [0x0b, 'end'],
  [0x0c, 'br'],
  [0x0d, 'brIf'],
  [0x0e, 'brTable'],
  [0x0f, 'return'],
  [0x10, 'call'],
  [0x1a, 'drop'],
  [0x1b, 'select'],
  [0x20, 'localGet'],
  [0x21, 'localSet'],
  [0x22, 'localTee'],
  [0x3f, 'memorySize'],
  [0x41, 'i32Const'],
  [0x42, 'i64Const'],
  [0x44, 'f64Const'],
  [0xfc0a, 'memoryCopy'],
  [0xfc0b, 'memoryFill'],
  [0xfd0c, 'v128Const'],
  [0xfd0d, 'shuffle'],
  [0xfd1b, 'extractLane'],
  [0xfd1c, 'replaceLane'],
  [0xfd56, 'load32Lane'],
  [0xfe03, 'fence'],
]);
