/*
 * A mapping of huge pages, larger than the memory for regions: parts are registered one by one, and
 * written to. All bytes of the mapping are compared. Prints one line per part.
 */
#include <infiniband/verbs.h>
#include <string.h>
#include <sys/mman.h>
#include "check.h"
#include "loopback.h"

#define PAGE 4096ul
#define MIB (1ul << 20)
#define BYTES (80 * MIB)
#define PART (1 * MIB)

static unsigned char expected(size_t at)
{
	return at * 31 + (at >> 12) * 7;
}

/* Of the mapping: where it is not as it was filled. */
static unsigned long wrong_bytes(const unsigned char *bytes, size_t first, size_t behind)
{
	unsigned long wrong = 0;
	for (size_t i = first; i < behind; i++)
		wrong += bytes[i] != expected(i);
	return wrong;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list[0] ? ibv_open_device(list[0]) : NULL;
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = loopback(pd, cq);
	CHECK(qp);
	unsigned char *source = malloc(PART);
	memset(source, 0xa5, PART);
	struct ibv_mr *from = ibv_reg_mr(pd, source, PART, ACCESS);
	CHECK(from);
	unsigned char *huge = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	CHECK(huge != MAP_FAILED);
	for (size_t i = 0; i < BYTES; i++)
		huge[i] = expected(i);
	/* Within a page, over the border of two, at both ends, and of several pages. */
	const size_t starts[] = { 4 * MIB + 3 * PAGE, 11 * MIB + 5, 0, BYTES - PART, 20 * MIB + 100 };
	const size_t lengths[] = { PART, 2 * MIB, PART, PART, 7 * MIB };
	for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, huge + starts[i], lengths[i], ACCESS);
		if (!mr) {
			printf("%zu bytes at %zu: %m\n", lengths[i], starts[i]);
			continue;
		}
		size_t at = starts[i] + lengths[i] - PART;
		enum ibv_wc_status status = write_to(qp, from, PART, huge + at, mr);
		unsigned long wrong = wrong_bytes(huge, 0, at) + wrong_bytes(huge, at + PART, BYTES);
		for (size_t j = 0; j < PART; j++) {
			wrong += huge[at + j] != 0xa5;
			huge[at + j] = expected(at + j);
		}
		printf("%zu bytes at %zu: %s, %lu wrong\n", lengths[i], starts[i],
		       ibv_wc_status_str(status), wrong);
		CHECK(!ibv_dereg_mr(mr));
	}
	CHECK(!munmap(huge, BYTES));
	printf("unmapped\n");
	CHECK(!ibv_dereg_mr(from) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}
