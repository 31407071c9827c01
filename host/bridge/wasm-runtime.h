/*
 * Runtime of the engine's C (wasm-to-c.mjs): accesses to its memory, numbers and vectors as
 * WebAssembly defines them. SSE4.1 is required (`WASM_CPU`).
 *
 * An address is a 32-bit index plus a constant. The owner of the memory reserves 4 GiB and
 * WASM_GUARD_BYTES behind its start and maps nothing behind the memory's end, so an access outside
 * is a SIGSEGV in that range.
 */
#ifndef VERBENA_WASM_RUNTIME_H
#define VERBENA_WASM_RUNTIME_H

#include <stdint.h>
#include <string.h>
#include <tmmintrin.h>
#include "wasm-memory.h"

typedef uint32_t v128 __attribute__((vector_size(16)));
typedef uint8_t lanes8 __attribute__((vector_size(16)));
typedef uint16_t lanes16 __attribute__((vector_size(16)));

/* Other threads and processes write this memory: one access for each instruction, no other. */
#define PLACE_TYPE(name, type) typedef type place_##name __attribute__((may_alias, aligned(1)))
PLACE_TYPE(u8, uint8_t);
PLACE_TYPE(u16, uint16_t);
PLACE_TYPE(u32, uint32_t);
PLACE_TYPE(u64, uint64_t);
PLACE_TYPE(f64, double);
typedef v128 place_v128 __attribute__((may_alias, aligned(1)));
typedef uint32_t atomic_u32 __attribute__((may_alias));
typedef uint64_t atomic_u64 __attribute__((may_alias));

/* volatile: other processes write there, so each access to memory is one access in C. */
#define ADDRESS(address, offset) (m + ((uint64_t)(address) + (offset)))
#define READ(type, address, offset) (*(volatile place_##type *)ADDRESS(address, offset))
#define WRITE(type, address, offset, value)                                            \
	(*(volatile place_##type *)ADDRESS(address, offset) = (value))

/* A misaligned atomic access traps (threads proposal). */
static inline uint8_t *wasm_aligned(uint8_t *at, unsigned bytes)
{
	if ((uintptr_t)at & (bytes - 1))
		wasm_trap();
	return at;
}
#define ATOMIC_PLACE(type, address, offset)                                            \
	((atomic_##type *)wasm_aligned(ADDRESS(address, offset), sizeof(atomic_##type)))
#define ATOMIC_READ(type, address, offset)                                             \
	__atomic_load_n(ATOMIC_PLACE(type, address, offset), __ATOMIC_SEQ_CST)
#define ATOMIC_WRITE(type, address, offset, value)                                     \
	__atomic_store_n(ATOMIC_PLACE(type, address, offset), value, __ATOMIC_SEQ_CST)
#define ATOMIC_UPDATE(how, type, address, offset, value)                               \
	__atomic_##how(ATOMIC_PLACE(type, address, offset), value, __ATOMIC_SEQ_CST)
#define ATOMIC_COMPARE(type, address, offset, expected, value)                         \
	({                                                                             \
		atomic_##type found = (expected);                                      \
		__atomic_compare_exchange_n(ATOMIC_PLACE(type, address, offset),       \
					    &found, value, 0, __ATOMIC_SEQ_CST,        \
					    __ATOMIC_SEQ_CST);                         \
		found;                                                                 \
	})

static inline void wasm_within(uint64_t end)
{
	if (end > (uint64_t)wasm_memory_pages << 16)
		wasm_trap();
}

static inline void memory_fill(uint8_t *m, uint32_t to, uint32_t value, uint32_t bytes)
{
	wasm_within((uint64_t)to + bytes);
	memset(m + to, (int)(value & 255), bytes);
}

static inline void memory_copy(uint8_t *m, uint32_t to, uint32_t from, uint32_t bytes)
{
	wasm_within((uint64_t)to + bytes);
	wasm_within((uint64_t)from + bytes);
	memmove(m + to, m + from, bytes);
}

/* ---- integers */

static inline uint32_t i32_clz(uint32_t a)
{
	return a ? (uint32_t)__builtin_clz(a) : 32;
}
static inline uint32_t i32_ctz(uint32_t a)
{
	return a ? (uint32_t)__builtin_ctz(a) : 32;
}
static inline uint64_t i64_clz(uint64_t a)
{
	return a ? (uint64_t)__builtin_clzll(a) : 64;
}
static inline uint64_t i64_ctz(uint64_t a)
{
	return a ? (uint64_t)__builtin_ctzll(a) : 64;
}
static inline uint32_t i32_rotl(uint32_t a, uint32_t by)
{
	return a << (by & 31) | a >> (-by & 31);
}
static inline uint32_t i32_rotr(uint32_t a, uint32_t by)
{
	return a >> (by & 31) | a << (-by & 31);
}
static inline uint64_t i64_rotl(uint64_t a, uint64_t by)
{
	return a << (by & 63) | a >> (-by & 63);
}
static inline uint64_t i64_rotr(uint64_t a, uint64_t by)
{
	return a >> (by & 63) | a << (-by & 63);
}

#define DIVISION(name, type, operator)                                                 \
	static inline type name(type a, type b)                                        \
	{                                                                              \
		if (b == 0)                                                            \
			wasm_trap();                                                   \
		return a operator b;                                                   \
	}
DIVISION(i32_div_u, uint32_t, /)
DIVISION(i32_rem_u, uint32_t, %)
DIVISION(i64_div_u, uint64_t, /)
DIVISION(i64_rem_u, uint64_t, %)

static inline uint32_t i32_div_s(uint32_t a, uint32_t b)
{
	if (b == 0 || (a == 1u << 31 && b == ~0u))
		wasm_trap();
	return (uint32_t)((int32_t)a / (int32_t)b);
}
static inline uint32_t i32_rem_s(uint32_t a, uint32_t b)
{
	if (b == 0)
		wasm_trap();
	return b == ~0u ? 0 : (uint32_t)((int32_t)a % (int32_t)b);
}

/* ---- floating point: a NaN stays one, and -0 is less than 0 */

static inline double f64_min(double a, double b)
{
	if (a != a || b != b)
		return a + b;
	if (a == b)
		return __builtin_signbit(a) ? a : b;
	return a < b ? a : b;
}
static inline double f64_max(double a, double b)
{
	if (a != a || b != b)
		return a + b;
	if (a == b)
		return __builtin_signbit(a) ? b : a;
	return a > b ? a : b;
}

/* A NaN is 0, and what is out of range is the nearest number in it. */
#define TRUNCATION(name, result, type, least, below, above)                            \
	static inline result name(double a)                                            \
	{                                                                              \
		if (a != a)                                                            \
			return 0;                                                      \
		if (a <= (double)(least))                                              \
			return (result)(least);                                        \
		if (a >= (above))                                                      \
			return (result)(below);                                        \
		return (result)(type)a;                                                \
	}
TRUNCATION(i32_trunc_sat_u, uint32_t, uint32_t, 0, UINT32_MAX, 4294967296.0)
TRUNCATION(i32_trunc_sat_s, uint32_t, int32_t, INT32_MIN, INT32_MAX, 2147483648.0)
TRUNCATION(i64_trunc_sat_u, uint64_t, uint64_t, 0, UINT64_MAX, 18446744073709551616.0)
TRUNCATION(i64_trunc_sat_s, uint64_t, int64_t, INT64_MIN, INT64_MAX, 9223372036854775808.0)

/* ---- vectors */

static inline v128 v128_splat32(uint32_t a)
{
	return (v128){ a, a, a, a };
}
static inline v128 v128_splat8(uint32_t a)
{
	return (v128)_mm_set1_epi8((char)a);
}
/* An index of 16 or more gives 0: PSHUFB looks at bit 7 alone. */
static inline v128 v128_swizzle(v128 a, v128 by)
{
	const __m128i index = _mm_adds_epu8((__m128i)by, _mm_set1_epi8(0x70));
	return (v128)_mm_shuffle_epi8((__m128i)a, index);
}
#define v128_shuffle(a, b, ...)                                                        \
	((v128)__builtin_shufflevector((lanes8)(a), (lanes8)(b), __VA_ARGS__))

#endif
