/*
 * Segments of System V: one that only this program has becomes private memory when it is
 * registered, and others are refused. madvise, mremap and shmdt by `syscall`, as UCX calls them.
 * The argument says how segments are made: `huge`, or nothing. Prints one line per part.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "loopback.h"

#define PAGE 4096ul
#define MIB (1ul << 20)
#define BYTES (6 * MIB)
#define AT (2 * MIB + 3 * PAGE)

static struct ibv_pd *pd;
static struct ibv_qp *qp;
static struct ibv_mr *source;
static int flags;

static unsigned char expected(size_t at)
{
	return at * 31 + (at >> 12) * 7;
}

static unsigned long wrong_bytes(const unsigned char *bytes, size_t first, size_t behind)
{
	unsigned long wrong = 0;
	for (size_t i = first; i < behind; i++)
		wrong += bytes[i] != expected(i);
	return wrong;
}

/* Attached, and filled; `removed`: it ends with its last attachment. */
static unsigned char *attach(bool removed, int *id)
{
	*id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600 | flags);
	CHECK(*id >= 0);
	unsigned char *bytes = shmat(*id, NULL, 0);
	CHECK(bytes != (void *)-1);
	if (removed)
		CHECK(!shmctl(*id, IPC_RMID, NULL));
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = expected(i);
	return bytes;
}

static bool is_mapped(const void *at)
{
	unsigned char resident;
	return !mincore((void *)at, PAGE, &resident);
}

/* The answer to a registration of the middle; the region is deregistered. */
static const char *refusal(unsigned char *bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes + AT, MIB, ACCESS);
	if (mr)
		CHECK(!ibv_dereg_mr(mr));
	return mr ? "registered" : errno == EOPNOTSUPP ? "EOPNOTSUPP" : "another error";
}

static volatile bool stops;

/* Stores to the last byte as long as others work. */
static void *store(void *at)
{
	unsigned long count = 0;
	while (!stops)
		(*(volatile unsigned char *)at)++, count++;
	return (void *)count;
}

static void sole(void)
{
	int id;
	unsigned char *bytes = attach(true, &id);
	pthread_t thread;
	void *count;
	bytes[BYTES - 1] = 0;
	CHECK(!pthread_create(&thread, NULL, store, bytes + BYTES - 1));
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes + AT, MIB, ACCESS);
	CHECK(mr);
	enum ibv_wc_status status = write_to(qp, source, PAGE, bytes + AT, mr);
	stops = true;
	CHECK(!pthread_join(thread, &count));
	bool counted = bytes[BYTES - 1] == (unsigned char)(unsigned long)count;
	unsigned long wrong = wrong_bytes(bytes, 0, AT) + wrong_bytes(bytes, AT + PAGE, BYTES - 1);
	wrong += memcmp(bytes + AT, source->addr, PAGE) != 0;
	struct shmid_ds after;
	bool ended = shmctl(id, IPC_STAT, &after) && errno == EINVAL;
	CHECK(!ibv_dereg_mr(mr));
	int detached = shmdt(bytes);
	printf("sole: %s, %lu wrong, stores %s, segment %s, detached %d, %s; again %s\n",
	       ibv_wc_status_str(status), wrong, counted ? "kept" : "lost", ended ? "ended" : "there",
	       detached, is_mapped(bytes) ? "mapped" : "unmapped",
	       shmdt(bytes) && errno == EINVAL ? "EINVAL" : "?");
}

static void shared(void)
{
	int id, status;
	unsigned char *bytes = attach(false, &id);
	printf("not removed: %s", refusal(bytes));
	unsigned char *second = shmat(id, NULL, 0);
	CHECK(second != (void *)-1 && !shmctl(id, IPC_RMID, NULL));
	printf(", attached twice: %s", refusal(bytes));
	bytes[7] = 200;
	CHECK(second[7] == 200 && !shmdt(second));
	pid_t child = fork();
	if (child == 0) {
		while (bytes[8] != 201)
			usleep(1000);
		bytes[9] = 202;
		_exit(0);
	}
	printf(", of a child as well: %s", refusal(bytes));
	bytes[8] = 201;
	CHECK(waitpid(child, &status, 0) == child && status == 0 && bytes[9] == 202);
	bytes[7] = expected(7), bytes[8] = expected(8), bytes[9] = expected(9);
	printf(", then sole: %s, %lu wrong\n", refusal(bytes), wrong_bytes(bytes, 0, BYTES));
	CHECK(!syscall(SYS_shmdt, bytes) && !is_mapped(bytes));
}

static void attached_again(void)
{
	int id;
	unsigned char *bytes = attach(true, &id);
	refusal(bytes);
	CHECK(!munmap(bytes, BYTES));
	id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600 | flags);
	CHECK(shmat(id, bytes, 0) == bytes && !shmctl(id, IPC_RMID, NULL));
	CHECK(!shmdt(bytes));
	printf("attached again: %s\n", is_mapped(bytes) ? "mapped" : "unmapped");
}

static void by_number(void)
{
	unsigned char *bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(bytes, 9, BYTES);
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, 2 * PAGE, ACCESS);
	CHECK(mr && !syscall(SYS_madvise, bytes, 3 * PAGE, MADV_DONTNEED));
	size_t left = 0;
	for (size_t i = 0; i < 3 * PAGE; i++)
		left += bytes[i] != 0;
	enum ibv_wc_status status = write_to(qp, source, PAGE, bytes + PAGE, mr);
	left += memcmp(bytes + PAGE, source->addr, PAGE) != 0;
	long at = syscall(SYS_mremap, bytes, BYTES, 2 * BYTES, MREMAP_MAYMOVE, 0);
	/* In place if the addresses behind it are free. */
	bool kept = (at == -1 && errno == ENOMEM) || at == (long)bytes;
	status |= write_to(qp, source, PAGE, bytes, mr);
	left += memcmp(bytes, source->addr, PAGE) != 0;
	CHECK(!ibv_dereg_mr(mr));
	printf("by number: %zu left, %s, address %s, unknown %s\n", left, ibv_wc_status_str(status),
	       kept ? "kept" : "lost", syscall(1000000) == -1 && errno == ENOSYS ? "ENOSYS" : "?");
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list[0] ? ibv_open_device(list[0]) : NULL;
	CHECK(context);
	flags = argc > 1 && !strcmp(argv[1], "huge") ? SHM_HUGETLB : 0;
	pd = ibv_alloc_pd(context);
	qp = loopback(pd, ibv_create_cq(context, 16, NULL, NULL, 0));
	CHECK(qp);
	unsigned char *page = malloc(PAGE);
	memset(page, 0xa5, PAGE);
	source = ibv_reg_mr(pd, page, PAGE, ACCESS);
	CHECK(source);
	sole();
	shared();
	attached_again();
	by_number();
	return 0;
}
