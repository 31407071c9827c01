/*
 * Which apertures of the device's memory a range of program addresses gets. A range has one
 * aperture for good, and neighbouring ranges have neighbouring apertures, so that regions may
 * overlap in any way.
 *
 * Ranges that are near each other keep their distance, since later regions may span them; each
 * other range goes into the smallest gap that has room for it and for neighbours. A place at the
 * same distance for distant ranges, or in the longest gap, would divide the gaps that large regions
 * need: four processes of an MPI program registered 76 MiB of 128, and the last 38 found no place.
 */
#include "apertures.h"

/* Ranges are near within this part of all apertures; a gap is divided with as much room. */
#define ROOM_SHARE 32

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Whether the apertures from `first` on are free, or belong to these ranges already. */
static bool fits(const struct vb_apertures *all, size_t first, uintptr_t range, size_t count)
{
	if (first > all->count || count > all->count - first)
		return false;
	for (size_t i = 0; i < count; i++, range += all->bytes)
		if (all->list[first + i].range && all->list[first + i].range != range)
			return false;
	return true;
}

/*
 * Where `range` lies if the range of aperture `i` keeps its distance; all->count: before the first.
 */
static size_t relative(const struct vb_apertures *all, size_t i, uintptr_t range)
{
	uintptr_t owner = all->list[i].range;
	if (owner <= range)
		return i + (range - owner) / all->bytes;
	size_t shift = (owner - range) / all->bytes;
	return shift > i ? all->count : i - shift;
}

/*
 * The place that ranges with apertures leave to [range, end), if any lies in it. False: none does;
 * `*first` is all->count if their places cannot be joined.
 */
static bool is_forced(const struct vb_apertures *all, uintptr_t range, size_t count, size_t *first)
{
	bool found = false;
	for (size_t i = 0; i < all->count; i++) {
		uintptr_t owner = all->list[i].range;
		if (!owner || owner < range || owner - range >= count * all->bytes)
			continue;
		size_t wanted = relative(all, i, range);
		*first = found && wanted != *first ? all->count : wanted;
		found = true;
		if (*first == all->count)
			return true;
	}
	return found;
}

/* A free place at its distance from the nearest range, or all->count. */
static size_t place_near(const struct vb_apertures *all, uintptr_t range, size_t count)
{
	uintptr_t end = range + count * all->bytes;
	uintptr_t least = (all->count / ROOM_SHARE + 1) * all->bytes;
	size_t nearest = all->count;
	for (size_t i = 0; i < all->count; i++) {
		uintptr_t owner = all->list[i].range;
		if (!owner)
			continue;
		uintptr_t apart = owner >= end ? owner - end : range - owner;
		size_t first = relative(all, i, range);
		if (apart >= least || !fits(all, first, range, count))
			continue;
		nearest = first;
		least = apart;
	}
	return nearest;
}

/*
 * The first aperture in the smallest gap with room on both sides; without such a gap in the middle
 * of the largest. all->count: no gap is large enough.
 */
static size_t place_in_gap(const struct vb_apertures *all, size_t count)
{
	size_t room = all->count / ROOM_SHARE, wanted = count + 2 * room;
	size_t best = all->count, size = 0, begin = 0;
	for (size_t i = 0; i <= all->count; i++) {
		if (i < all->count && !all->list[i].range)
			continue;
		size_t gap = i - begin;
		bool better = size < wanted ? gap > size : gap >= wanted && gap < size;
		if (gap >= count && better) {
			best = begin;
			size = gap;
		}
		begin = i + 1;
	}
	return best == all->count ? best : best + smaller((size - count) / 2, room);
}

size_t vb_choose_apertures(const struct vb_apertures *all, uintptr_t range, size_t count)
{
	size_t first = all->count;
	if (is_forced(all, range, count, &first))
		return fits(all, first, range, count) ? first : all->count;
	first = place_near(all, range, count);
	return first < all->count ? first : place_in_gap(all, count);
}
