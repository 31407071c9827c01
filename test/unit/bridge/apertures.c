/*
 * Reads lines "place RANGE COUNT", "free RANGE COUNT", "clear APERTURES BYTES" and prints the first
 * aperture of each place, or -1. Numbers are hexadecimal; ranges count in apertures.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apertures.h"

static struct vb_apertures all;

static void clear(size_t count, uintptr_t bytes)
{
	free(all.list);
	all = (struct vb_apertures){ .list = calloc(count, sizeof *all.list), .count = count, .bytes = bytes };
}

static long place(uintptr_t range, size_t count)
{
	size_t first = vb_choose_apertures(&all, range, count);
	if (first == all.count)
		return -1;
	for (size_t i = 0; i < count; i++)
		all.list[first + i].range = range + i * all.bytes;
	return (long)first;
}

static void release(uintptr_t range, size_t count)
{
	for (size_t i = 0; i < all.count; i++)
		if (all.list[i].range >= range && all.list[i].range - range < count * all.bytes)
			all.list[i].range = 0;
}

int main(void)
{
	char word[16];
	unsigned long a, b;
	while (scanf("%15s %lx %lx", word, &a, &b) == 3) {
		if (strcmp(word, "clear") == 0)
			clear(a, b);
		else if (strcmp(word, "free") == 0)
			release(a * all.bytes, b);
		else
			printf("%ld\n", place(a * all.bytes, b));
	}
	free(all.list);
	return 0;
}
