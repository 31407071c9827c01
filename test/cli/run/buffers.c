/*
 * Many buffers of malloc, small ones that share pages and large ones, registered in any order, and
 * some written by RDMA: each byte is compared. The arguments are the seed and the steps. Prints how
 * many large ones are registered at a time, how many bytes were wrong, and how many registrations
 * were refused.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "loopback.h"

#define BUFFERS 120
#define LARGE 8
#define MIB (1ul << 20)

static struct buffer {
	unsigned char *bytes;
	size_t length;
	unsigned char value;
	struct ibv_mr *mr;
} all[BUFFERS];

static unsigned long wrong, refused, completions;
static uint64_t state;

static unsigned below(unsigned bound)
{
	state = state * 6364136223846793005ul + 1442695040888963407ul;
	return (state >> 33) % bound;
}

static void fill(struct buffer *one)
{
	one->value = below(256);
	for (size_t i = 0; i < one->length; i++)
		one->bytes[i] = one->value + i * 31;
}

static void check(const struct buffer *one)
{
	for (size_t i = 0; i < one->length; i++)
		wrong += one->bytes[i] != (unsigned char)(one->value + i * 31);
}

static void deregister(struct buffer *one)
{
	if (one->mr)
		wrong += ibv_dereg_mr(one->mr) != 0;
	one->mr = NULL;
}

static void enter(struct buffer *one, struct ibv_pd *pd)
{
	one->mr = ibv_reg_mr(pd, one->bytes, one->length, ACCESS);
	refused += !one->mr;
}

static void anew(struct buffer *one)
{
	deregister(one);
	free(one->bytes);
	one->length = below(2) ? 100 + below(20000) : 100000 + below(3 * MIB);
	one->bytes = malloc(one->length);
	fill(one);
}

/* The peer's bytes are those of the source then. */
static void copy(struct buffer *from, struct buffer *to, struct ibv_qp *qp)
{
	size_t length = from->length < to->length ? from->length : to->length;
	if (from == to || !from->mr || !to->mr)
		return;
	wrong += write_to(qp, from->mr, length, to->bytes, to->mr) != IBV_WC_SUCCESS;
	wrong += memcmp(from->bytes, to->bytes, length) != 0;
	completions++;
	fill(to);
}

/* One below the other, as the C library maps them. */
static int count_large(struct ibv_pd *pd)
{
	char *bytes[LARGE];
	struct ibv_mr *mrs[LARGE];
	int count = 0;
	for (int i = 0; i < LARGE; i++) {
		bytes[i] = malloc(20 * MIB);
		mrs[i] = ibv_reg_mr(pd, bytes[i], 20 * MIB, ACCESS);
		count += mrs[i] != NULL;
	}
	for (int i = 0; i < LARGE; i++) {
		if (mrs[i])
			ibv_dereg_mr(mrs[i]);
		free(bytes[i]);
	}
	return count;
}

/* Each has two mappings, and a gap behind it. */
static bool has_whole(struct ibv_pd *pd)
{
	const size_t step = 16384, count = 300;
	char *area = mmap(NULL, count * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < count; i++)
		ibv_reg_mr(pd, area + i * step, 8192, ACCESS);
	return ibv_reg_mr(pd, area, count * step, ACCESS) != NULL;
}

/* Memory from before the device: its ends, then all. */
static bool has_early(struct ibv_pd *pd, char *early, size_t length)
{
	return ibv_reg_mr(pd, early + 4096, 4096, ACCESS) &&
	       ibv_reg_mr(pd, early + length - 8192, 4096, ACCESS) &&
	       ibv_reg_mr(pd, early, length, ACCESS);
}

/* A region of memory that was unmapped keeps its pages; others get the address. */
static bool keeps_old(struct ibv_pd *pd, struct ibv_qp *qp)
{
	const int own = MAP_PRIVATE | MAP_ANONYMOUS;
	char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, own, -1, 0);
	memset(at, 'O', 4096);
	struct ibv_mr *old = ibv_reg_mr(pd, at, 4096, ACCESS);
	munmap(at, 4096);
	mmap(at, 4096, PROT_READ | PROT_WRITE, own | MAP_FIXED, -1, 0);
	memset(at, 'N', 4096);
	struct ibv_mr *new = ibv_reg_mr(pd, at, 4096, ACCESS);
	static char source[8] = "written", target[8];
	struct ibv_mr *from = ibv_reg_mr(pd, source, 8, ACCESS);
	struct ibv_mr *to = ibv_reg_mr(pd, target, 8, ACCESS);
	bool done = write_to(qp, from, 8, at, old) == IBV_WC_SUCCESS && at[0] == 'N';
	done = done && write_to(qp, old, 8, target, to) == IBV_WC_SUCCESS;
	return done && !strcmp(target, "written") && new;
}

/* A region keeps pages that the program replaces; a later region of the range has the new ones. */
static bool keeps_replaced(struct ibv_pd *pd, struct ibv_qp *qp)
{
	const size_t page = 4096, length = 8 * page;
	const int own = MAP_PRIVATE | MAP_ANONYMOUS;
	char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, own, -1, 0);
	memset(at, 'O', length);
	struct ibv_mr *old = ibv_reg_mr(pd, at, length, ACCESS);
	mmap(at + 2 * page, 4 * page, PROT_READ | PROT_WRITE, own | MAP_FIXED, -1, 0);
	memset(at + 2 * page, 'N', 4 * page);
	struct ibv_mr *new = ibv_reg_mr(pd, at, length, ACCESS);
	static char target[8 * 4096];
	struct ibv_mr *to = ibv_reg_mr(pd, target, length, ACCESS);
	bool kept = old && new && to && write_to(qp, old, length, target, to) == IBV_WC_SUCCESS;
	for (size_t i = 0; kept && i < length; i++)
		kept = target[i] == 'O';
	memset(target, 'W', length);
	kept = kept && write_to(qp, to, length, at, old) == IBV_WC_SUCCESS;
	for (size_t i = 0; kept && i < length; i++)
		kept = at[i] == (i / page < 2 || i / page >= 6 ? 'W' : 'N');
	return kept && write_to(qp, new, length, target, to) == IBV_WC_SUCCESS &&
	       !memcmp(target, at, length);
}

int main(int argc, char **argv)
{
	const size_t early_bytes = 40 * MIB;
	char *early = mmap(NULL, early_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_cq *cq = pd ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
	struct ibv_qp *qp = cq ? loopback(pd, cq) : NULL;
	if (!qp || argc < 3)
		return 1;
	state = strtoul(argv[1], NULL, 10);
	int large = count_large(pd);
	for (int i = 0; i < BUFFERS; i++)
		anew(&all[i]);
	for (long step = strtol(argv[2], NULL, 10); step > 0; step--) {
		struct buffer *one = &all[below(BUFFERS)];
		check(one);
		switch (below(5)) {
		case 0:
			anew(one);
			break;
		case 1:
			deregister(one);
			fill(one);
			break;
		case 2:
			copy(one, &all[below(BUFFERS)], qp);
			break;
		default:
			if (!one->mr)
				enter(one, pd);
		}
	}
	for (int i = 0; i < BUFFERS; i++)
		check(&all[i]);
	for (int i = 0; i < BUFFERS; i++)
		deregister(&all[i]);
	printf("%d of %d large, %lu wrong, %lu refused, %s; ", large, LARGE, wrong, refused,
	       completions > 0 ? "written" : "nothing written");
	printf("whole %s, before the device %s, old pages %s, replaced pages %s\n",
	       has_whole(pd) ? "yes" : "no", has_early(pd, early, early_bytes) ? "yes" : "no",
	       keeps_old(pd, qp) ? "yes" : "no", keeps_replaced(pd, qp) ? "yes" : "no");
	return 0;
}
