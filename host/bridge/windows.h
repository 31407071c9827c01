/* Windows of the device's memory for pages of the program (windows.c). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A window: the program's range that it belongs to, 0 for none, and the regions in it. */
struct vb_window {
	uintptr_t range;
	uint32_t regions;
};

struct vb_windows {
	struct vb_window *list;
	size_t count;
	/* Bytes of one window, a power of two. */
	uintptr_t bytes;
};

/*
 * The first of `count` neighbouring windows for the program's ranges from `range` on, a multiple of
 * the size of a window. all->count: there is no place. Changes nothing.
 */
size_t vb_choose_windows(const struct vb_windows *all, uintptr_t range, size_t count);
