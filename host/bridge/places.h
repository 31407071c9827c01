/* Which pages of the program lie where in the device's memory (places.c). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VB_PAGE 4096ul
#define VB_HUGE_PAGE (512 * VB_PAGE)
#define VB_NO_PLACE UINT64_MAX

/* Pages of the program from `address` on, which lie from `at` on; multiples of VB_PAGE. */
struct vb_place {
	uint64_t at;
	uint64_t bytes;
	uintptr_t address;
};

/* By `at`, without overlaps; neighbours that could be one are one. */
struct vb_places {
	/* Has room for one entry of each page of the area. */
	struct vb_place *list;
	size_t count;
	/* Of the area; `at` counts from its beginning. */
	uint64_t bytes;
};

/* Where further pages will be: mostly below, as Linux maps; above the heap of brk, and of arenas. */
enum vb_growth { VB_GROWS_DOWN, VB_GROWS_BRK, VB_GROWS_ARENA };

/* Neighbouring mappings of the program around pages: regions there may share pages. */
struct vb_heap {
	uintptr_t start;
	uintptr_t end;
	enum vb_growth growth;
};

/* The first entry that ends behind `at`. */
size_t vb_first_place(const struct vb_places *all, uint64_t at);
/* Whether pages from `address` on may lie at `at`: these pages, or none, lie there. */
bool vb_place_is_free(const struct vb_places *all, uint64_t at, uint64_t bytes, uintptr_t address);
/* A free place at its distance from the nearest pages, of that heap or not far; or VB_NO_PLACE. */
uint64_t vb_place_near(const struct vb_places *all, uintptr_t address, uint64_t bytes,
		       struct vb_heap heap);
/*
 * In the highest gap with room on both sides, or the lowest for the heap of brk; for an arena, and
 * without such a gap, in the middle of the largest. VB_NO_PLACE: no gap is large enough.
 */
uint64_t vb_place_in_gap(const struct vb_places *all, uint64_t bytes, enum vb_growth growth);
/* Bytes of the largest gap. */
uint64_t vb_largest_gap(const struct vb_places *all);
void vb_take_place(struct vb_places *all, uint64_t at, uint64_t bytes, uintptr_t address);
/* Nothing lies there any more. */
void vb_leave_place(struct vb_places *all, uint64_t at, uint64_t bytes);
