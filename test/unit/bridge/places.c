/*
 * Reads lines "place ADDRESS PAGES", "free ADDRESS PAGES", "heap ADDRESS PAGES" (neighbouring
 * mappings of the places that follow), "clear PAGES 0", "gap 0 0" and "random SEED STEPS".
 * Prints the page of each place, or -1, and the pages of the largest gap; numbers are hexadecimal and count in pages. `random` prints
 * nothing. All changes are compared with a list that has the owner of each page.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "places.h"

#define PAGES_MAX 40000
#define CHECKED_MAX 1024

static struct vb_places all;
/* Pages of the program, by page of the area; 0: none. */
static uintptr_t owners[PAGES_MAX];
static size_t pages;
static struct vb_heap heap;

static void fail(const char *what)
{
	fprintf(stderr, "places: %s\n", what);
	exit(1);
}

static void clear(size_t count)
{
	free(all.list);
	pages = count;
	heap = (struct vb_heap){ 0 };
	all = (struct vb_places){ .list = calloc(count + 1, sizeof *all.list), .bytes = count * VB_PAGE };
	memset(owners, 0, sizeof owners);
}

static void check(void)
{
	size_t at = 0;
	/* It looks at all pages. */
	if (pages > CHECKED_MAX)
		return;
	for (size_t i = 0; i < all.count; i++) {
		const struct vb_place *one = &all.list[i];
		if (one->bytes == 0 || one->at + one->bytes > all.bytes)
			fail("an entry is empty, or too long");
		if (i > 0 && one[-1].at + one[-1].bytes > one->at)
			fail("entries overlap");
		if (i > 0 && one[-1].at + one[-1].bytes == one->at &&
		    one[-1].address + one[-1].bytes == one->address)
			fail("neighbours are two");
		for (; at < one->at / VB_PAGE; at++)
			if (owners[at])
				fail("an entry is missing");
		for (; at < (one->at + one->bytes) / VB_PAGE; at++)
			if (owners[at] != one->address / VB_PAGE + at - one->at / VB_PAGE)
				fail("an entry is wrong");
	}
	for (; at < pages; at++)
		if (owners[at])
			fail("the last entry is missing");
}

static void take(size_t at, uintptr_t page, size_t count)
{
	vb_take_place(&all, at * VB_PAGE, count * VB_PAGE, page * VB_PAGE);
	for (size_t i = 0; i < count; i++)
		owners[at + i] = page + i;
	check();
}

static void leave(size_t at, size_t count)
{
	vb_leave_place(&all, at * VB_PAGE, count * VB_PAGE);
	memset(owners + at, 0, count * sizeof *owners);
	check();
}

static long place(uintptr_t page, size_t count)
{
	uint64_t at = vb_place_near(&all, page * VB_PAGE, count * VB_PAGE, heap);
	if (at == VB_NO_PLACE && heap.end > 0) {
		at = vb_place_in_gap(&all, heap.end - heap.start, heap.growth);
		at += at == VB_NO_PLACE ? 0 : page * VB_PAGE - heap.start;
	}
	if (at == VB_NO_PLACE)
		at = vb_place_in_gap(&all, count * VB_PAGE, heap.growth);
	if (at == VB_NO_PLACE)
		return -1;
	if (at % VB_PAGE || !vb_place_is_free(&all, at, count * VB_PAGE, page * VB_PAGE))
		fail("a place that is not free");
	size_t first = at / VB_PAGE;
	for (size_t i = 0; i < count; i++)
		if (owners[first + i] && owners[first + i] != page + i)
			fail("a place that others have");
	take(first, page, count);
	return (long)first;
}

static void release(uintptr_t page, size_t count)
{
	for (size_t at = 0; at < pages; at++)
		if (owners[at] >= page && owners[at] < page + count)
			leave(at, 1);
}

static void play(unsigned seed, size_t steps)
{
	srand(seed);
	while (steps-- > 0) {
		uintptr_t page = 1 + rand() % (2 * pages);
		size_t at = rand() % pages, count = 1 + rand() % 40;
		if (count > pages - at)
			count = pages - at;
		if (rand() % 3 == 0)
			leave(at, count);
		else if (rand() % 2 == 0)
			place(page, count);
		else if (vb_place_is_free(&all, at * VB_PAGE, count * VB_PAGE, page * VB_PAGE))
			take(at, page, count);
	}
}

int main(void)
{
	char word[16];
	unsigned long a, b;
	while (scanf("%15s %lx %lx", word, &a, &b) == 3) {
		if (strcmp(word, "clear") == 0)
			clear(a);
		else if (strcmp(word, "free") == 0)
			release(a, b);
		else if (strcmp(word, "heap") == 0)
			heap = (struct vb_heap){ a * VB_PAGE, (a + b) * VB_PAGE, VB_GROWS_DOWN };
		else if (strcmp(word, "random") == 0)
			play(a, b);
		else if (strcmp(word, "gap") == 0)
			printf("%ld\n", (long)(vb_largest_gap(&all) / VB_PAGE));
		else
			printf("%ld\n", place(a, b));
	}
	free(all.list);
	return 0;
}
