/*
 * Regions of several pieces: the memory for regions is full but for gaps that are smaller than a
 * range. Each operation reaches into several pieces, and each byte is compared. The argument is the
 * number of steps at random. Prints one line per part.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "loopback.h"

#define PAGE 4096ul
#define MIB (1ul << 20)
#define CHUNK (2 * MIB)
#define CHUNKS_MAX 64
#define RIGHTS (ACCESS | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_pd *pd;
static struct ibv_qp *qp;
static char *chunks;
static struct ibv_mr *chunk_mrs[CHUNKS_MAX];
static int chunk_count;
static unsigned char *range;
static size_t range_bytes;
static uint64_t state = 1;

static unsigned below(unsigned bound)
{
	state = state * 6364136223846793005ul + 1442695040888963407ul;
	return (state >> 33) % bound;
}

static void *map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static unsigned char expected(size_t at)
{
	return at * 31 + (at >> 12) * 7;
}

static unsigned long wrong_bytes(const unsigned char *bytes, size_t first, size_t length)
{
	unsigned long wrong = 0;
	for (size_t i = 0; i < length; i++)
		wrong += bytes[i] != expected(first + i);
	return wrong;
}

/* Places in the device's memory where pages of the range lie that are no neighbours there. */
static int count_pieces(void)
{
	char line[512];
	unsigned long start, end, offset, behind = 0, device;
	int pieces = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (fgets(line, sizeof line, maps)) {
		CHECK(sscanf(line, "%lx-%lx %*s %lx %*s %lu", &start, &end, &offset, &device) == 4);
		if (end <= (uintptr_t)range || start >= (uintptr_t)range + range_bytes)
			continue;
		pieces += offset != behind;
		behind = offset + (end - start);
	}
	fclose(maps);
	return pieces;
}

static struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		continue;
	return wc;
}

static enum ibv_wc_status request(enum ibv_wr_opcode opcode, struct ibv_sge local, uint64_t remote,
				  uint32_t rkey, uint64_t value)
{
	struct ibv_send_wr wr = { .sg_list = &local, .num_sge = 1, .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = value;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
	return completion(qp->send_cq).status;
}

static struct ibv_sge sge_of(const void *at, size_t length, const struct ibv_mr *mr)
{
	return (struct ibv_sge){ (uintptr_t)at, length, mr->lkey };
}

/*
 * An error has ended the queue pair. Not by RESET: a packet of its former life, with a number that
 * comes again, may still be on its way.
 */
static void connect_anew(struct ibv_cq *cq)
{
	struct ibv_qp_attr attr = { .qp_access_flags = RIGHTS };
	CHECK(!qp || !ibv_destroy_qp(qp));
	CHECK((qp = loopback(pd, cq)) && !ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS));
}

/* Every second chunk is free afterwards, and the last one. */
static void fragment(void)
{
	chunks = map(CHUNKS_MAX * CHUNK);
	while (chunk_count < CHUNKS_MAX) {
		char *at = chunks + chunk_count * CHUNK;
		struct ibv_mr *mr = ibv_reg_mr(pd, at, CHUNK, RIGHTS);
		if (!mr)
			break;
		chunk_mrs[chunk_count++] = mr;
	}
	CHECK(errno == ENOMEM && chunk_count > 12);
	for (int i = 1; i < chunk_count; i += 2)
		CHECK(!ibv_dereg_mr(chunk_mrs[i]));
	range_bytes = chunk_count / 2 * CHUNK - 4 * PAGE;
	range = map(range_bytes);
	for (size_t i = 0; i < range_bytes; i++)
		range[i] = expected(i);
}

/* All of the range through the first chunk. */
static void check_reads(struct ibv_mr *mr, uint64_t remote, size_t first, size_t length)
{
	unsigned long wrong = 0, failed = 0;
	for (size_t at = 0, part; at < length; at += part) {
		part = length - at < CHUNK ? length - at : CHUNK;
		memset(chunks, 0, part);
		failed += request(IBV_WR_RDMA_READ, sge_of(chunks, part, chunk_mrs[0]), remote + at,
				  mr->rkey, 0) != IBV_WC_SUCCESS;
		wrong += wrong_bytes((unsigned char *)chunks, first + at, part);
	}
	printf("READ: %lu failed, %lu wrong\n", failed, wrong);
}

/* From the middle of the range to a chunk and back, with pieces in between. */
static void check_writes(struct ibv_mr *mr)
{
	unsigned long wrong = 0, failed = 0;
	for (size_t at = CHUNK / 2 + 100; at + CHUNK < range_bytes; at += CHUNK / 2 + 60) {
		size_t length = CHUNK - 300;
		struct ibv_sge own = sge_of(range + at, length, mr);
		struct ibv_sge other = sge_of(chunks, length, chunk_mrs[0]);
		failed += request(IBV_WR_RDMA_WRITE, own, (uintptr_t)chunks, chunk_mrs[0]->rkey, 0) !=
			  IBV_WC_SUCCESS;
		wrong += wrong_bytes((unsigned char *)chunks, at, length);
		memset(range + at, 0, length);
		failed += request(IBV_WR_RDMA_WRITE, other, own.addr, mr->rkey, 0) != IBV_WC_SUCCESS;
		wrong += wrong_bytes(range + at, at, length);
	}
	printf("WRITE: %lu failed, %lu wrong\n", failed, wrong);
}

static void check_sends(struct ibv_mr *mr)
{
	unsigned long wrong = 0, failed = 0;
	size_t length = CHUNK + 10000, from = 5000, to = range_bytes - length - 3;
	struct ibv_sge lists[2][2] = { { sge_of(range + to, length - 777, mr),
					 sge_of(range + to + length - 777, 777, mr) },
				       { sge_of(range + from, 333, mr),
					 sge_of(range + from + 333, length - 333, mr) } };
	struct ibv_recv_wr receive = { .sg_list = lists[0], .num_sge = 2 }, *bad_receive;
	struct ibv_send_wr send = { .sg_list = lists[1], .num_sge = 2, .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_recv(qp, &receive, &bad_receive) && !ibv_post_send(qp, &send, &bad));
	for (int i = 0; i < 2; i++)
		failed += completion(qp->send_cq).status != IBV_WC_SUCCESS;
	wrong += memcmp(range + to, range + from, length) != 0;
	for (size_t i = 0; i < length; i++)
		range[to + i] = expected(to + i);
	printf("SEND: %lu failed, %lu wrong\n", failed, wrong);
}

/* The words on both sides of each multiple of a page, with the old value in the range as well. */
static void check_atomics(struct ibv_mr *mr)
{
	unsigned long wrong = 0, failed = 0;
	for (size_t at = 16 * PAGE; at + PAGE < range_bytes; at += 16 * PAGE) {
		uint64_t *word = (uint64_t *)(range + at - (at & 16 * PAGE ? 8 : 0));
		uint64_t before = *word;
		failed += request(IBV_WR_ATOMIC_FETCH_AND_ADD, sge_of(range + 8, 8, mr),
				  (uintptr_t)word, mr->rkey, 5) != IBV_WC_SUCCESS;
		wrong += *word != before + 5 || *(uint64_t *)(range + 8) != before;
		*word = before;
	}
	for (int i = 8; i < 16; i++)
		range[i] = expected(i);
	printf("atomics: %lu failed, %lu wrong\n", failed, wrong);
}

static void check_bounds(struct ibv_mr *mr)
{
	struct ibv_sge own = sge_of(chunks, 16, chunk_mrs[0]);
	enum ibv_wc_status behind = request(IBV_WR_RDMA_READ, own, (uintptr_t)range + range_bytes - 15,
					    mr->rkey, 0);
	connect_anew(qp->send_cq);
	enum ibv_wc_status before = request(IBV_WR_RDMA_READ, own, (uintptr_t)range - 1, mr->rkey, 0);
	connect_anew(qp->send_cq);
	enum ibv_wc_status low = request(IBV_WR_RDMA_READ, own, 0, mr->rkey, 0);
	connect_anew(qp->send_cq);
	int rereg = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ACCESS);
	/* The end of the queue pair, which is its own peer, can be known before the answer. */
	printf("bounds: %s %s %s; rereg %d %s\n", behind ? "refused" : "granted",
	       before ? "refused" : "granted", low ? "refused" : "granted", rereg,
	       strerrorname_np(errno));
}

static void check_addresses(void)
{
	size_t first = 1234, length = range_bytes - 4321;
	struct ibv_mr *named = ibv_reg_mr_iova(pd, range + first, length, 1ul << 40, ACCESS);
	struct ibv_mr *zero = ibv_reg_mr(pd, range + first, length, ACCESS | IBV_ACCESS_ZERO_BASED);
	CHECK(named && zero && zero->length == length);
	check_reads(named, 1ul << 40, first, length);
	check_reads(zero, 0, first, length);
	CHECK(!ibv_dereg_mr(named) && !ibv_dereg_mr(zero));
}

/* Parent and child go on with their own pages. */
static void check_fork(void)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		unsigned long wrong = wrong_bytes(range, 0, range_bytes);
		memset(range, 0, range_bytes);
		_exit(wrong > 0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	printf("fork: %d, %lu wrong\n", WEXITSTATUS(status), wrong_bytes(range, 0, range_bytes));
}

/* Regions that overlap each other, at random; their pages move, and return to the program. */
static void check_random(long steps)
{
	struct { struct ibv_mr *mr; size_t first, length; } all[6] = { 0 };
	unsigned long wrong = 0, refused = 0, failed = 0, scattered = 0;
	for (; steps > 0; steps--) {
		int which = below(6);
		if (all[which].mr) {
			CHECK(!ibv_dereg_mr(all[which].mr));
			all[which].mr = NULL;
			continue;
		}
		size_t first = below(range_bytes - 1), length = 1 + below(range_bytes - first);
		if (below(3))
			length = length < 3 * PAGE ? length : 1 + below(3 * PAGE);
		struct ibv_mr *mr = ibv_reg_mr(pd, range + first, length, RIGHTS);
		refused += !mr;
		if (!mr)
			continue;
		size_t part = length < CHUNK ? length : CHUNK, skip = below(length - part + 1);
		failed += request(IBV_WR_RDMA_READ, sge_of(chunks, part, chunk_mrs[0]),
				  (uintptr_t)range + first + skip, mr->rkey, 0) != IBV_WC_SUCCESS;
		wrong += wrong_bytes((unsigned char *)chunks, first + skip, part);
		all[which].mr = mr;
		all[which].first = first;
		all[which].length = length;
		scattered += count_pieces() > 3;
	}
	wrong += wrong_bytes(range, 0, range_bytes);
	for (int i = 0; i < 6; i++)
		if (all[i].mr)
			CHECK(!ibv_dereg_mr(all[i].mr));
	printf("random: %lu refused, %lu failed, %lu wrong, %s\n", refused, failed, wrong,
	       scattered > 0 ? "scattered" : "in one piece");
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	CHECK(context && (pd = ibv_alloc_pd(context)));
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq);
	connect_anew(cq);
	fragment();
	struct ibv_mr *mr = ibv_reg_mr(pd, range, range_bytes, RIGHTS);
	CHECK(mr);
	printf("whole: %s, %lu wrong\n", count_pieces() > 4 ? "scattered" : "in one piece",
	       wrong_bytes(range, 0, range_bytes));
	check_reads(mr, (uintptr_t)range, 0, range_bytes);
	check_writes(mr);
	check_sends(mr);
	check_atomics(mr);
	check_bounds(mr);
	check_addresses();
	check_fork();
	CHECK(!ibv_dereg_mr(mr));
	check_random(argc > 1 ? strtol(argv[1], NULL, 10) : 0);
	/* Their places are free again. */
	int again = 0;
	for (int i = 1; i < chunk_count; i += 2)
		again += (chunk_mrs[i] = ibv_reg_mr(pd, chunks + i * CHUNK, CHUNK, RIGHTS)) != NULL;
	printf("again: %s, %lu wrong\n", again == chunk_count / 2 ? "all" : "not all",
	       wrong_bytes(range, 0, range_bytes));
	return 0;
}
