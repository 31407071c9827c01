/* Glue of the engine's C in a test process: traps end a call. */
#include <setjmp.h>
#include <stdlib.h>
#include "wasm-memory.h"

uint32_t wasm_memory_pages;
static __thread jmp_buf *trapped;

void wasm_trap(void)
{
	if (!trapped)
		abort();
	longjmp(*trapped, 1);
}

void test_use_pages(uint32_t pages)
{
	wasm_memory_pages = pages;
}

/* 1: `call` has trapped. */
uint32_t test_traps(void (*call)(uint8_t *), uint8_t *memory)
{
	jmp_buf here;
	trapped = &here;
	uint32_t result = (uint32_t)setjmp(here);
	if (!result)
		call(memory);
	trapped = NULL;
	return result;
}
