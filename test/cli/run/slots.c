/*
 * Places in a send queue of 8: a request has one until its completion, or a later one, is polled.
 * Prints a line for each part; the test compares them.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "loopback.h"

#define PLACES 8
#define SETTLE_MICROS 20000

static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char memory[4096];

static int post(struct ibv_qp *qp, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = flags,
				  .wr.rdma = { (uintptr_t)memory + 64, mr->rkey } };
	struct ibv_send_wr *bad;
	return ibv_post_send(qp, &wr, &bad);
}

/* Posts until the queue is full, and for a moment more: the requests are done by then. */
static int fill(struct ibv_qp *qp, unsigned flags)
{
	int count = 0;
	for (int turn = 0; turn < 3; turn++) {
		while (count < 10 * PLACES && post(qp, flags) == 0)
			count++;
		usleep(SETTLE_MICROS);
	}
	return count;
}

static int poll(struct ibv_cq *cq, int most)
{
	struct ibv_wc wc[4 * PLACES];
	int taken = 0;
	for (int turn = 0; turn < 1000 && taken < most; turn++)
		taken += ibv_poll_cq(cq, most - taken, wc + taken);
	return taken;
}

static int poll_extended(struct ibv_cq_ex *cq, int most)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int taken = 0;
	for (int turn = 0; turn < 1000 && taken < most; turn++) {
		if (ibv_start_poll(cq, &attr))
			continue;
		do
			taken++;
		while (taken < most && !ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	return taken;
}

static void check_signaled(struct ibv_cq *cq)
{
	struct ibv_qp *qp = loopback(pd, cq);
	int first = fill(qp, IBV_SEND_SIGNALED), taken = poll(cq, 3);
	int more = fill(qp, IBV_SEND_SIGNALED);
	printf("signaled: %d, %d polled, %d more\n", first, taken, more);
	ibv_destroy_qp(qp);
}

static void check_unsignaled(struct ibv_cq *cq)
{
	struct ibv_qp *qp = loopback(pd, cq);
	for (int i = 0; i < PLACES - 2; i++)
		post(qp, 0);
	post(qp, IBV_SEND_SIGNALED);
	int first = fill(qp, 0), taken = poll(cq, 1);
	int more = fill(qp, 0);
	printf("unsignaled: %d, %d polled, %d more\n", first, taken, more);
	ibv_destroy_qp(qp);
}

static void check_extended(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 64 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
	struct ibv_qp *qp = loopback(pd, ibv_cq_ex_to_cq(cq));
	int first = fill(qp, IBV_SEND_SIGNALED), taken = poll_extended(cq, 5);
	int more = fill(qp, IBV_SEND_SIGNALED);
	printf("extended: %d, %d polled, %d more\n", first, taken, more);
	ibv_destroy_qp(qp);
	ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}

/* A queue of completions as large as the send queue, and one thread that posts while another polls. */
static volatile int stop;
static volatile long polled;

static void *poll_all(void *cq)
{
	struct ibv_wc wc[PLACES];
	while (!stop)
		polled += ibv_poll_cq(cq, PLACES, wc);
	return NULL;
}

static void check_threads(struct ibv_context *context)
{
	struct ibv_cq *cq = ibv_create_cq(context, PLACES, NULL, NULL, 0);
	struct ibv_qp *qp = loopback(pd, cq);
	pthread_t thread;
	long posted = 0;
	int error = 0;
	pthread_create(&thread, NULL, poll_all, cq);
	while (posted < 20000 && (!error || error == ENOMEM))
		posted += !(error = post(qp, IBV_SEND_SIGNALED));
	for (int turn = 0; turn < 1000 && polled < posted; turn++)
		usleep(1000);
	stop = 1;
	pthread_join(thread, NULL);
	printf("threads: %ld of %ld\n", polled, posted);
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
}

/* Posts for each completion while the queue is being polled. */
static void check_within_poll(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex with = { .cqe = PLACES };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &with);
	struct ibv_qp *qp = loopback(pd, ibv_cq_ex_to_cq(cq));
	struct ibv_poll_cq_attr attr = { 0 };
	int posted = fill(qp, IBV_SEND_SIGNALED), taken = 0;
	for (int turn = 0; turn < 1000 && taken < 3 * PLACES; turn++) {
		if (ibv_start_poll(cq, &attr))
			continue;
		do {
			taken++;
			posted += posted < 3 * PLACES && !post(qp, IBV_SEND_SIGNALED);
		} while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	printf("within a poll: %d of %d\n", taken, posted);
	ibv_destroy_qp(qp);
	ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
}

/* Queue pairs come and go: one of them has a number that another one had, or its place. */
static void check_many(struct ibv_cq *cq)
{
	struct ibv_qp *all[200];
	int wrong = 0;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 200; i++)
			all[i] = loopback(pd, cq);
		for (int i = round; i < 200; i += 7) {
			wrong += post(all[i], IBV_SEND_SIGNALED) != 0;
			wrong += poll(cq, 1) != 1;
			for (int k = 0; k < PLACES; k++)
				wrong += post(all[i], 0) != 0;
			wrong += post(all[i], 0) != ENOMEM;
		}
		for (int i = 0; i < 200; i++)
			ibv_destroy_qp(all[(i * 67) % 200]);
	}
	printf("many: %d wrong\n", wrong);
}

static void check_states(struct ibv_cq *cq)
{
	struct ibv_qp *qp = loopback(pd, cq);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int first = fill(qp, IBV_SEND_SIGNALED);
	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	int connected = connect_to_itself(qp), again = fill(qp, IBV_SEND_SIGNALED);
	attr.qp_state = IBV_QPS_ERR;
	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	usleep(SETTLE_MICROS);
	int refused = post(qp, IBV_SEND_SIGNALED), taken = poll(cq, 3), more = fill(qp, 0);
	printf("states: %d, reset %d, %d; error %d, %d polled, %d more, %d polled\n", first, connected,
	       again, refused, taken, more, poll(cq, 2 * PLACES));
	ibv_destroy_qp(qp);
}

static void check_overflow(struct ibv_context *context)
{
	struct ibv_cq *cq = ibv_create_cq(context, PLACES / 2, NULL, NULL, 0);
	struct ibv_qp *qp = loopback(pd, cq);
	struct ibv_wc wc[PLACES];
	fill(qp, IBV_SEND_SIGNALED);
	int taken = ibv_poll_cq(cq, PLACES, wc);
	printf("overflow: %s\n", taken < PLACES ? "lost" : "none");
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_cq *cq = context ? ibv_create_cq(context, 256, NULL, NULL, 0) : NULL;
	pd = cq ? ibv_alloc_pd(context) : NULL;
	mr = pd ? ibv_reg_mr(pd, memory, sizeof memory, ACCESS) : NULL;
	if (!mr)
		return 1;
	check_signaled(cq);
	check_unsignaled(cq);
	check_extended(context);
	check_threads(context);
	check_within_poll(context);
	check_many(cq);
	check_states(cq);
	check_overflow(context);
	return 0;
}
