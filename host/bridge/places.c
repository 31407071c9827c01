/*
 * Which part of the device's memory pages of the program get. The pages of a region are neighbours
 * there as well, and a page that two regions share has one place: so a region's place follows from
 * pages that are in use already, and is free to choose otherwise.
 *
 * Ranges of one heap keep their distance where they can, since neighbours share pages and later
 * regions may span them: the first takes a place where its neighbouring mappings have room. As in
 * the program's own memory the heap of brk lies low and grows upwards, and each other range lies
 * below those before it: a gap in the middle, which large regions need, stays in one piece.
 */
#include <string.h>
#include "places.h"

/* Ranges are near within this part of the area; a gap is divided with as much room. */
#define ROOM_SHARE 32

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t end_of(const struct vb_place *one)
{
	return one->at + one->bytes;
}

size_t vb_first_place(const struct vb_places *all, uint64_t at)
{
	size_t low = 0, high = all->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (end_of(&all->list[middle]) <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool vb_place_is_free(const struct vb_places *all, uint64_t at, uint64_t bytes, uintptr_t address)
{
	if (at > all->bytes || bytes > all->bytes - at)
		return false;
	for (size_t i = vb_first_place(all, at); i < all->count && all->list[i].at < at + bytes; i++)
		if (all->list[i].address - all->list[i].at != address - at)
			return false;
	return true;
}

/* Where `address` lies if it keeps its distance from that entry, or VB_NO_PLACE. */
static uint64_t relative(const struct vb_place *one, uintptr_t address)
{
	if (address >= one->address)
		return one->at + (address - one->address);
	uint64_t shift = one->address - address;
	return shift > one->at ? VB_NO_PLACE : one->at - shift;
}

uint64_t vb_place_near(const struct vb_places *all, uintptr_t address, uint64_t bytes,
		       struct vb_heap heap)
{
	uintptr_t end = address + bytes;
	uint64_t room = all->bytes / ROOM_SHARE, least = UINT64_MAX, nearest = VB_NO_PLACE;
	for (size_t i = 0; i < all->count; i++) {
		const struct vb_place *one = &all->list[i];
		uintptr_t behind = one->address + one->bytes;
		uint64_t apart = one->address >= end ? one->address - end : 0;
		if (behind <= address)
			apart = address - behind;
		bool near = apart <= room || (one->address < heap.end && behind > heap.start);
		uint64_t at = relative(one, address);
		if (!near || apart >= least || at == VB_NO_PLACE ||
		    !vb_place_is_free(all, at, bytes, address))
			continue;
		nearest = at;
		least = apart;
	}
	return nearest;
}

uint64_t vb_place_in_gap(const struct vb_places *all, uint64_t bytes, enum vb_growth growth)
{
	/* An arena grows to 64 MiB. */
	uint64_t room = growth == VB_GROWS_ARENA ? all->bytes : all->bytes / ROOM_SHARE;
	uint64_t wanted = bytes + 2 * room;
	uint64_t best = VB_NO_PLACE, size = 0, begin = 0;
	for (size_t i = 0; i <= all->count; i++) {
		uint64_t gap = (i < all->count ? all->list[i].at : all->bytes) - begin;
		bool better = gap >= wanted ? growth == VB_GROWS_DOWN || size < wanted : gap > size;
		if (gap >= bytes && better) {
			best = begin;
			size = gap;
		}
		if (i < all->count)
			begin = end_of(&all->list[i]);
	}
	if (best == VB_NO_PLACE)
		return best;
	uint64_t aside = smaller((size - bytes) / 2, room) & ~(VB_PAGE - 1);
	return growth == VB_GROWS_BRK ? best + aside : best + size - bytes - aside;
}

uint64_t vb_largest_gap(const struct vb_places *all)
{
	uint64_t largest = 0, begin = 0;
	for (size_t i = 0; i <= all->count; i++) {
		uint64_t gap = (i < all->count ? all->list[i].at : all->bytes) - begin;
		if (gap > largest)
			largest = gap;
		if (i < all->count)
			begin = end_of(&all->list[i]);
	}
	return largest;
}

static void insert(struct vb_places *all, size_t index, struct vb_place one)
{
	memmove(all->list + index + 1, all->list + index, (all->count - index) * sizeof one);
	all->list[index] = one;
	all->count++;
}

void vb_leave_place(struct vb_places *all, uint64_t at, uint64_t bytes)
{
	uint64_t end = at + bytes;
	size_t first = vb_first_place(all, at);
	if (first < all->count && all->list[first].at < at) {
		struct vb_place before = all->list[first];
		all->list[first++].bytes = at - before.at;
		if (end_of(&before) > end) {
			insert(all, first,
			       (struct vb_place){ end, end_of(&before) - end, before.address + (end - before.at) });
			return;
		}
	}
	size_t last = first;
	while (last < all->count && end_of(&all->list[last]) <= end)
		last++;
	if (last < all->count && all->list[last].at < end) {
		uint64_t cut = end - all->list[last].at;
		all->list[last].at += cut;
		all->list[last].address += cut;
		all->list[last].bytes -= cut;
	}
	memmove(all->list + first, all->list + last, (all->count - last) * sizeof *all->list);
	all->count -= last - first;
}

/* Whether `next` follows `one`, in the program as well. */
static bool are_one(const struct vb_place *one, const struct vb_place *next)
{
	return end_of(one) == next->at && one->address + one->bytes == next->address;
}

void vb_take_place(struct vb_places *all, uint64_t at, uint64_t bytes, uintptr_t address)
{
	struct vb_place one = { at, bytes, address };
	vb_leave_place(all, at, bytes);
	size_t index = vb_first_place(all, at);
	if (index < all->count && are_one(&one, &all->list[index])) {
		all->list[index].at = at;
		all->list[index].address = address;
		all->list[index].bytes += bytes;
	} else {
		insert(all, index, one);
	}
	if (index == 0 || !are_one(&all->list[index - 1], &all->list[index]))
		return;
	all->list[index - 1].bytes += all->list[index].bytes;
	memmove(all->list + index, all->list + index + 1,
		(all->count - index - 1) * sizeof *all->list);
	all->count--;
}
