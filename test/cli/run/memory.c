/*
 * Registered memory: stack, overlaps, a neighbour that another thread writes, churn, refusals, and
 * fork. Prints one line per part; the test compares them. With `crash` it writes to address 0 instead.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "loopback.h"

#define PAGE 4096
#define ROUNDS 100

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static volatile int stop;
static volatile unsigned *counter;
static unsigned long lost;

/* A store that is lost shows when the value is read again. */
static void *count_up(void *unused)
{
	unsigned now = *counter;
	while (!stop) {
		*counter = ++now;
		if (*counter != now) {
			lost++;
			now = *counter;
		}
	}
	return unused;
}

static void check_overlaps(struct ibv_qp *qp)
{
	char stack[10000];
	char *heap = aligned_alloc(PAGE, 8 * PAGE);
	int wrong = 0;
	memset(stack, 7, sizeof stack);
	for (int i = 0; i < 8 * PAGE; i++)
		heap[i] = i * 7;
	struct ibv_mr *source = ibv_reg_mr(pd, stack, sizeof stack, ACCESS);
	struct ibv_mr *oldest = ibv_reg_mr(pd, heap + 100, 5000, ACCESS);
	struct ibv_mr *others[] = { ibv_reg_mr(pd, heap + 4000, 9000, ACCESS),
				    ibv_reg_mr(pd, heap + 12500, 15000, ACCESS),
				    ibv_reg_mr(pd, heap, 8 * PAGE, ACCESS) };
	for (int i = 0; i < 8 * PAGE; i++)
		wrong += heap[i] != (char)(i * 7);
	for (int i = 0; i < 10000; i++)
		wrong += stack[i] != 7;
	enum ibv_wc_status status = write_to(qp, source, 3000, heap + 200, oldest);
	wrong += memcmp(heap + 200, stack, 3000) != 0;
	printf("overlaps: %s, %d wrong\n", ibv_wc_status_str(status), wrong);
	for (int i = 0; i < 3; i++)
		ibv_dereg_mr(others[i]);
	ibv_dereg_mr(oldest);
	ibv_dereg_mr(source);
	free(heap);
}

static void check_neighbour(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t thread;
		char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		counter = (unsigned *)pages;
		stop = 0;
		pthread_create(&thread, NULL, count_up, NULL);
		usleep(200);
		struct ibv_mr *mr = ibv_reg_mr(pd, pages + 64, 4000, ACCESS);
		usleep(100);
		stop = 1;
		pthread_join(thread, NULL);
		ibv_dereg_mr(mr);
		munmap(pages, 2 * PAGE);
	}
	printf("neighbour: %lu stores lost\n", lost);
}

/* Addresses that come back with other pages, and buffers that grow. */
static void check_churn(void)
{
	int wrong = 0;
	for (int i = 0; i < ROUNDS; i++) {
		size_t length = 200000 + 1000 * i;
		char *buffer = malloc(length);
		memset(buffer, i, length);
		struct ibv_mr *mr = ibv_reg_mr(pd, buffer, length, ACCESS);
		wrong += !mr || buffer[0] != (char)i || buffer[length - 1] != (char)i;
		if (mr)
			ibv_dereg_mr(mr);
		buffer = realloc(buffer, 2 * length);
		wrong += buffer[length - 1] != (char)i;
		free(buffer);
	}
	printf("churn: %d wrong\n", wrong);
}

static int error_of(void *address, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, address, length, ACCESS);
	int error = mr ? 0 : errno;
	if (mr)
		ibv_dereg_mr(mr);
	return error;
}

/* All memory of the program, as implicit on-demand paging has it; domains that another one has. */
static void check_domains(struct ibv_context *context)
{
	int on_demand = ACCESS | IBV_ACCESS_ON_DEMAND;
	const char *all = ibv_reg_mr(pd, NULL, SIZE_MAX, on_demand) ? "yes" : strerrorname_np(errno);
	struct ibv_td_init_attr threads = { 0 };
	struct ibv_td *td = ibv_alloc_td(context, &threads);
	struct ibv_pd *own = ibv_alloc_pd(context);
	struct ibv_parent_domain_init_attr attributes = { .pd = own, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attributes);
	CHECK(td && own && parent);
	int of_td = ibv_dealloc_td(td), of_pd = ibv_dealloc_pd(own);
	CHECK(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(td) && !ibv_dealloc_pd(own));
	printf("domains: all memory %s, used %s %s\n", all, strerrorname_np(of_td),
	       strerrorname_np(of_pd));
}

static void check_refusals(void)
{
	const int shared = MAP_SHARED | MAP_ANONYMOUS, own = MAP_PRIVATE | MAP_ANONYMOUS;
	char *pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, own, -1, 0);
	char *others = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, shared, -1, 0);
	char *read_only = mmap(NULL, PAGE, PROT_READ, own, -1, 0);
	munmap(pages + 2 * PAGE, PAGE);
	int gap = error_of(pages, 4 * PAGE), none = error_of(pages, 0);
	int to_write = error_of(read_only, 10), foreign = error_of(others, 10);
	struct ibv_mr *to_read = ibv_reg_mr(pd, read_only, 10, 0);
	int again = ibv_rereg_mr(to_read, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ACCESS);
	int for_what = errno;
	printf("refusals: gap %s, empty %s, read-only %s, shared %s, huge %s; to read: %s, to write then: %s\n",
	       strerrorname_np(gap), strerrorname_np(none), strerrorname_np(to_write),
	       strerrorname_np(foreign), strerrorname_np(error_of(pages, 1ul << 40)),
	       to_read ? "yes" : "no", again ? strerrorname_np(for_what) : "yes");
	fflush(stdout);
}

/* Bytes of the range that are not 0 after MADV_DONTNEED over it and its neighbours. */
static int left_after_drop(char *pages, size_t length)
{
	int left = 0;
	memset(pages, 'x', length);
	if (madvise(pages, length, MADV_DONTNEED))
		return -1;
	for (size_t i = 0; i < length; i++)
		left += pages[i] != 0;
	return left;
}

/* Allocators count on it: calloc returns such memory. */
static void check_drops(void)
{
	const size_t length = 6 * PAGE;
	char *pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, pages + PAGE, 2 * PAGE, ACCESS);
	int registered = left_after_drop(pages, length);
	ibv_dereg_mr(mr);
	int after = left_after_drop(pages, length);
	mr = ibv_reg_mr(pd, pages, length, ACCESS);
	memset(pages, 'y', length);
	int kept = madvise(pages, length, MADV_FREE);
	printf("drops: %d left while registered, %d after; free %d\n", registered, after, kept);
	ibv_dereg_mr(mr);
}

/* The stack is registered, too: parent and child go on with pages of their own. */
static void check_fork(struct ibv_qp *qp)
{
	char stack[3 * PAGE];
	volatile char *heap = aligned_alloc(PAGE, PAGE);
	struct ibv_mr *of_heap = ibv_reg_mr(pd, (void *)heap, PAGE, ACCESS);
	struct ibv_mr *of_stack = ibv_reg_mr(pd, stack, sizeof stack, ACCESS);
	int status = 0;
	heap[0] = stack[0] = 1;
	pid_t child = fork();
	if (child == 0) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
		struct ibv_wc wc;
		heap[0] = stack[0] = 99;
		/* Objects of the parent: refused, and no crash. */
		int posted = ibv_post_send(qp, &wr, &bad), polled = ibv_poll_cq(cq, 1, &wc);
		int refused = !ibv_create_cq(context, 1, NULL, NULL, 0) && errno == EIO;
		refused = refused && !ibv_reg_mr(pd, stack, PAGE, ACCESS) && errno == EIO;
		_exit(posted == EINVAL && polled == 0 && refused ? 7 : 8);
	}
	pid_t ended = waitpid(child, &status, 0);
	stack[1] = 'x';
	enum ibv_wc_status written = write_to(qp, of_stack, 2, (void *)heap, of_heap);
	printf("fork: child %s %d, heap %d %c, %s\n", ended == child ? "ended" : "lost",
	       WEXITSTATUS(status), heap[0], heap[1], ibv_wc_status_str(written));
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (!list || !list[0] || !(context = ibv_open_device(list[0])))
		return 1;
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = pd && cq ? loopback(pd, cq) : NULL;
	if (!qp)
		return 2;
	check_overlaps(qp);
	check_neighbour();
	/* A fault of the program's own still ends it. */
	if (argc > 1 && !strcmp(argv[1], "crash"))
		*(volatile char *)NULL = 1;
	check_churn();
	check_refusals();
	check_domains(pd->context);
	check_drops();
	check_fork(qp);
	return 0;
}
