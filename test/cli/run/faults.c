/*
 * Meets the faults of `verbena run --fault`: prints the errno of each registration, the statuses of
 * the completions of a loopback queue pair, how long a post takes, and an event of the device.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char memory[8192] __attribute__((aligned(4096)));
static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static long micros(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000l + now.tv_nsec / 1000;
}

static void registrations(struct ibv_pd *pd)
{
	printf("registrations:");
	for (int i = 0; i < 6; i++) {
		errno = 0;
		struct ibv_mr *one = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
		printf(" %d", one ? 0 : errno);
		if (one)
			ibv_dereg_mr(one);
	}
	printf("\n");
}

static struct ibv_qp *make(struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1,
					 .cap = { 16, 16, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	ibv_modify_qp(qp, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	return qp;
}

static void join(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = peer->qp_num,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12 };
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid);
	ibv_modify_qp(qp, &attr,
		      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	ibv_modify_qp(qp, &attr,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Posts a WRITE and waits for its completion. Returns the status; -errno: it is not posted. */
static int write_once(struct ibv_qp *qp, long *took)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	long begin = micros();
	int error = ibv_post_send(qp, &wr, &bad);
	*took = micros() - begin;
	if (error)
		return -error;
	struct ibv_wc wc;
	int got;
	while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	return got < 0 ? got : (int)wc.status;
}

int main(int argc, char **argv)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	context = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	registrations(pd);
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	while (!(mr = ibv_reg_mr(pd, memory, sizeof memory, access)))
		;
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_qp *first = make(pd), *second = make(pd);
	join(first, second);
	join(second, first);
	long took = 0, longest = 0;
	printf("statuses:");
	for (int i = 0; i < 6; i++) {
		printf(" %d", write_once(first, &took));
		longest = took > longest ? took : longest;
	}
	printf("\nstate: %d\n", first->state == IBV_QPS_RTS);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	ibv_query_qp(first, &attr, IBV_QP_STATE, &init);
	printf("state: %d, longest post: %s\n", attr.qp_state,
	       longest >= 50000 ? "50 ms or more" : "less than 50 ms");
	if (argc > 1) {
		struct ibv_async_event event;
		struct pollfd waits = { context->async_fd, POLLIN, 0 };
		if (poll(&waits, 1, 20000) == 1 && !ibv_get_async_event(context, &event)) {
			printf("event: %s\n", ibv_event_type_str(event.event_type));
			ibv_ack_async_event(&event);
		}
		errno = 0;
		const char *how = ibv_alloc_pd(context) ? "allocated" : "refused";
		printf("after: %s %d\n", how, errno);
	}
	ibv_destroy_qp(first);
	ibv_destroy_qp(second);
	ibv_dereg_mr(mr);
	printf("ends: %d\n", ibv_close_device(context));
	return 0;
}
