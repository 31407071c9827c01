/* The memory that the engine's C works on, and its traps. */
#ifndef VERBENA_WASM_MEMORY_H
#define VERBENA_WASM_MEMORY_H

#include <stdint.h>

/* Address space behind the 4 GiB of indices, for constant offsets. */
#define WASM_GUARD_BYTES 65536
/* The processor must have these. */
#define WASM_CPU "ssse3"

/* Pages of 64 KiB. */
extern uint32_t wasm_memory_pages;
/* Where WebAssembly traps. */
void wasm_trap(void) __attribute__((noreturn, cold));

#endif
