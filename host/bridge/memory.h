/* Pages of the program, and their places in the device's memory: memory.c, memory-calls.c. */
#ifndef VERBENA_MEMORY_H
#define VERBENA_MEMORY_H

#include "internal.h"

#define VB_SEGMENTS_MAX 65536

/* A part of a range whose pages lie in one mapping. */
struct vb_segment {
	uintptr_t start;
	uintptr_t end;
	int rights;
	bool shared;
	/* Private memory of no file. */
	bool anonymous;
	/* A segment of System V (shmget), and its identifier. */
	bool system_v;
	int segment;
	/* Bytes of its pages, which move whole. */
	uintptr_t page;
	/* Where its first page lies in the device's memory; 0: elsewhere. */
	uint64_t linear;
};

extern struct vb_places vb_places;

/* Where the area for pages begins in the device's memory. */
static inline uint64_t vb_area(void)
{
	return vb.hello[HELLO_AREA];
}

/* ---- mappings.c */

/* `file`: that of the device's memory for pages. */
void vb_mappings_begin(int file);
/* Neighbouring private mappings around [start, end), as far as `most` bytes below and above. */
struct vb_heap vb_find_heap(uintptr_t start, uintptr_t end, size_t most);

/* Of mappings of that file. */
typedef bool (*vb_choose)(const struct vb_segment *one, uint64_t from, uint64_t to);

/*
 * The mappings that `wanted` chooses of those that meet [start, end), cut to the pages that do.
 * Returns their number, or -1 with errno.
 */
int vb_find_segments(uintptr_t start, uintptr_t end, struct vb_segment *list, vb_choose wanted,
		     uint64_t from, uint64_t to);
/* Chooses pages of the program that lie in the device's memory. */
bool vb_is_of_device(const struct vb_segment *one, uint64_t from, uint64_t to);

/* ---- memory.c */

/* Gives the program pages of its own with these contents. 0 or an errno. */
int vb_make_private(const struct vb_segment *one, const void *contents);

/* Whether a region has any of these pages of the area. */
bool vb_memory_is_held(uint64_t linear, size_t length);
/* As vb_memory_enter; false: a thread forks. */
bool vb_memory_enter_unless_forking(struct vb_quiet *before);

/* ---- memory-calls.c */

/* madvise, mremap or shmdt by its number: a call of `syscall`. */
long vb_memory_call(long number, long first, long second, long third, long fourth, long fifth);

/* ---- system-v.c */

/* Makes those segments private memory that only this program has. Returns how many they were. */
int vb_take_segments(const struct vb_segment *list, int count);
/* As shmdt. */
int vb_detach(const void *address);

#endif
