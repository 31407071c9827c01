/* Apertures of the device's memory for pages of the program (apertures.c). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An aperture: the program's range that it belongs to, 0 for none, and the regions in it. */
struct vb_aperture {
	uintptr_t range;
	uint32_t regions;
};

struct vb_apertures {
	struct vb_aperture *list;
	size_t count;
	/* Bytes of one aperture, a power of two. */
	uintptr_t bytes;
};

/*
 * The first of `count` neighbouring apertures for the program's ranges from `range` on, a multiple
 * of the size of an aperture. all->count: there is no place. Changes nothing.
 */
size_t vb_choose_apertures(const struct vb_apertures *all, uintptr_t range, size_t count);
