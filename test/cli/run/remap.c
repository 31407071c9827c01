/* mremap, and realloc, of memory that is, or was, registered. Prints one line per part; the test compares them. */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "check.h"
#include "loopback.h"

#define PAGE 4096

static struct ibv_pd *pd;
static struct ibv_qp *qp;
static char *source;
static struct ibv_mr *of_source;

/* Pages at a fixed place, and address space without pages behind them. */
static char *pages(int count, int behind)
{
	const int own = MAP_PRIVATE | MAP_ANONYMOUS;
	char *made = mmap(NULL, (count + behind) * PAGE, PROT_READ | PROT_WRITE, own, -1, 0);
	CHECK(made != MAP_FAILED);
	if (behind)
		munmap(made + count * PAGE, behind * PAGE);
	for (int i = 0; i < count * PAGE; i++)
		made[i] = i * 7;
	return made;
}

static int wrong(const char *at, int length)
{
	int count = 0;
	for (int i = 0; i < length; i++)
		count += at[i] != (char)(i * 7);
	return count;
}

/* Whether a WRITE to the region shows at `at`. */
static const char *shows(struct ibv_mr *mr, const char *at)
{
	static char next = 'a';
	source[0] = ++next;
	if (write_to(qp, of_source, 1, mr->addr, mr) != IBV_WC_SUCCESS)
		return "failed";
	return *at == next ? "shows" : "lost";
}

static const char *error_of(void *result)
{
	return result == MAP_FAILED ? strerrorname_np(errno) : "done";
}

static void grow(void)
{
	char *at = pages(4, 4);
	struct ibv_mr *mr = ibv_reg_mr(pd, at, 4 * PAGE, ACCESS);
	char *grown = mremap(at, 4 * PAGE, 8 * PAGE, 0);
	printf("grown while registered: %s, %d wrong", error_of(grown), wrong(at, 4 * PAGE));
	CHECK(grown == at);
	int left = 0;
	for (int i = 4 * PAGE; i < 8 * PAGE; i++)
		left += at[i] != 0;
	struct ibv_mr *whole = ibv_reg_mr(pd, at, 8 * PAGE, ACCESS);
	printf(", %d not zero, %s, %s\n", left, shows(mr, at), shows(whole, at));
	void *shrunk = mremap(at, 8 * PAGE, PAGE, MREMAP_MAYMOVE);
	printf("shrunk: %s, %s\n", error_of(shrunk), shows(mr, shrunk));
	ibv_dereg_mr(mr);
	ibv_dereg_mr(whole);
}

/* One page: a mapping that the kernel would move or grow. */
static void move(void)
{
	char *at = pages(1, 1), *to = pages(1, 0), *behind;
	struct ibv_mr *mr = ibv_reg_mr(pd, at, PAGE, ACCESS);
	void *moved = mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	printf("moved while registered: %s", error_of(moved));
	behind = mmap(at + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(behind == at + PAGE);
	printf(", grown elsewhere: %s", error_of(mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE)));
	printf(", not elsewhere: %s", error_of(mremap(at, PAGE, 2 * PAGE, 0)));
	printf(", %d wrong", wrong(at, PAGE));
	printf(", %s\n", shows(mr, at));
	ibv_dereg_mr(mr);
}

static void move_after(void)
{
	char *at = pages(3, 0), *to = pages(5, 0);
	ibv_dereg_mr(ibv_reg_mr(pd, at, 2 * PAGE, ACCESS));
	char *moved = mremap(at, 3 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	printf("moved afterwards: %s, %d wrong", error_of(moved), wrong(to, 3 * PAGE));
	CHECK(moved == to);
	/* Other memory at the old place. */
	char *again = mmap(at, 3 * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(again == at);
	memset(again, 'y', 3 * PAGE);
	struct ibv_mr *there = ibv_reg_mr(pd, to, 5 * PAGE, ACCESS);
	struct ibv_mr *here = ibv_reg_mr(pd, again, 3 * PAGE, ACCESS);
	printf(", %d wrong", wrong(to, 3 * PAGE));
	printf(", %s, %s\n", shows(there, to), shows(here, again));
}

static struct ibv_mr *register_block(char *block, size_t bytes)
{
	char *first = (char *)((uintptr_t)block & -(uintptr_t)PAGE);
	return ibv_reg_mr(pd, first, bytes, ACCESS);
}

/* A block that has shrunk to one mapping, with the pages of another block behind it in the device. */
static void grow_block(int registered)
{
	const size_t large = 8 << 20, small = 4 << 20, shrunk = 1 << 20;
	char *above = malloc(large), *block = malloc(small);
	for (size_t i = 0; i < large; i++)
		above[i] = i * 7;
	struct ibv_mr *other = register_block(above, large);
	struct ibv_mr *mr = register_block(block, small);
	CHECK(other && mr);
	if (!registered)
		ibv_dereg_mr(mr);
	block = realloc(block, shrunk);
	for (size_t i = 0; i < shrunk; i++)
		block[i] = i * 7;
	block = realloc(block, 2 * large);
	memset(block + shrunk, 'x', 2 * large - shrunk);
	printf("block that grows%s: %d wrong, %d of another one\n", registered ? " while registered" : "",
	       wrong(block, shrunk), wrong(above, large));
	if (registered)
		ibv_dereg_mr(mr);
	ibv_dereg_mr(other);
	free(block);
	free(above);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_cq *cq = context ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	CHECK(pd && cq && (qp = loopback(pd, cq)));
	source = pages(1, 0);
	CHECK((of_source = ibv_reg_mr(pd, source, PAGE, ACCESS)));
	grow();
	move();
	move_after();
	grow_block(0);
	grow_block(1);
	return 0;
}
