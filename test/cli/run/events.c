/* Events in bursts and of objects that end, handlers that call verbs, a device that ends. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "check.h"

#define IDS 400
#define ROUNDS 500

static struct sockaddr_in address = { .sin_family = AF_INET };
static struct ibv_context *context;
static struct ibv_pd *pd;
static char memory[8192];

static bool readable(int fd, int milliseconds)
{
	struct pollfd waited = { .fd = fd, .events = POLLIN };
	return poll(&waited, 1, milliseconds) == 1;
}

static struct rdma_cm_id *make_id(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	return id;
}

static enum rdma_cm_event_type next(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	CHECK(readable(channel->fd, 10000) && !rdma_get_cm_event(channel, &event));
	enum rdma_cm_event_type type = event->event;
	CHECK(!rdma_ack_cm_event(event));
	return type;
}

/* More events than a pipe has room for, none read before the last one is sent. */
static void burst(void)
{
	static struct rdma_cm_id *ids[IDS];
	struct rdma_event_channel *channel = rdma_create_event_channel();
	int resolved = 0;
	for (int i = 0; i < IDS; i++) {
		ids[i] = make_id(channel);
		CHECK(!rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)&address, 2000));
	}
	for (int i = 0; i < IDS; i++)
		resolved += next(channel) == RDMA_CM_EVENT_ADDR_RESOLVED;
	for (int i = 0; i < IDS; i++)
		CHECK(!rdma_destroy_id(ids[i]));
	printf("burst: %d of %d\n", resolved, IDS);
	rdma_destroy_event_channel(channel);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr made = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	made.cap.max_send_wr = made.cap.max_recv_wr = 4;
	made.cap.max_send_sge = made.cap.max_recv_sge = 1;
	struct ibv_qp *qp = ibv_create_qp(pd, &made);
	CHECK(qp);
	return qp;
}

/* A flushed receive request is a completion. */
static void fail(struct ibv_qp *qp)
{
	struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr receive = { 0 }, *bad;
	CHECK(!ibv_modify_qp(qp, &attributes,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_post_recv(qp, &receive, &bad));
	attributes.qp_state = IBV_QPS_ERR;
	CHECK(!ibv_modify_qp(qp, &attributes, IBV_QP_STATE));
}

/* Its unread event ends with an object: a reader would wait for the next one. */
static void destroyed(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = make_id(channel);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	CHECK(readable(channel->fd, 5000) && !rdma_destroy_id(id));
	bool of_id = readable(channel->fd, 100);
	struct ibv_comp_channel *queues = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, queues, 0);
	CHECK(queues && cq && !ibv_req_notify_cq(cq, 0));
	struct ibv_qp *qp = make_qp(cq);
	fail(qp);
	CHECK(readable(queues->fd, 5000));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	printf("destroyed: %d left of an id, %d of a queue\n", of_id, readable(queues->fd, 100));
	CHECK(!ibv_destroy_comp_channel(queues));
	rdma_destroy_event_channel(channel);
}

/* A request that is unread is refused when its listener ends. */
static void refused(void)
{
	struct rdma_event_channel *passive = rdma_create_event_channel();
	struct rdma_event_channel *active = rdma_create_event_channel();
	struct rdma_cm_id *listener = make_id(passive), *id = make_id(active);
	struct rdma_conn_param parameters = { .retry_count = 7, .rnr_retry_count = 7 };
	struct ibv_qp_init_attr made = { .qp_type = IBV_QPT_RC };
	made.cap.max_send_wr = made.cap.max_recv_wr = 1;
	made.cap.max_send_sge = made.cap.max_recv_sge = 1;
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&address) && !rdma_listen(listener, 4));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
	CHECK(next(active) == RDMA_CM_EVENT_ADDR_RESOLVED && !rdma_resolve_route(id, 2000));
	CHECK(next(active) == RDMA_CM_EVENT_ROUTE_RESOLVED && !rdma_create_qp(id, NULL, &made));
	CHECK(!rdma_connect(id, &parameters) && readable(passive->fd, 5000));
	CHECK(!rdma_destroy_id(listener));
	printf("refused: %s, %d left\n", rdma_event_str(next(active)), readable(passive->fd, 0));
	rdma_destroy_ep(id);
	rdma_destroy_event_channel(active);
	rdma_destroy_event_channel(passive);
}

static struct ibv_qp *volatile queried;
static volatile sig_atomic_t calls, failures;

static void query(int signal)
{
	struct ibv_qp_attr attributes;
	struct ibv_qp_init_attr made;
	int before = errno;
	calls++;
	failures += ibv_query_qp(queried, &attributes, IBV_QP_STATE, &made) != 0;
	errno = before;
}

/* A handler calls a verb of the process that has the device, while its thread is in another one. */
static void handled(void)
{
	const struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	queried = make_qp(cq);
	signal(SIGALRM, query);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < ROUNDS || calls < 20; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr && !ibv_dereg_mr(mr));
		struct ibv_qp *qp = make_qp(cq);
		CHECK(!ibv_destroy_qp(qp));
	}
	setitimer(ITIMER_REAL, &never, NULL);
	printf("handled: %s, %d failed\n", calls >= 20 ? "some" : "few", (int)failures);
	CHECK(!ibv_destroy_qp(queried) && !ibv_destroy_cq(cq));
}

/* Completions of a destroyed queue pair leave their places for others. */
static void replaced(void)
{
	struct ibv_cq_init_attr_ex wanted = { .cqe = 1 };
	struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &wanted);
	CHECK(ex);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
	struct ibv_poll_cq_attr nothing = { 0 };
	int found = 0;
	for (int round = 0; round < 3; round++) {
		struct ibv_qp *qp = make_qp(cq);
		fail(qp);
		if (round == 2) {
			while (ibv_start_poll(ex, &nothing) == 0) {
				found++;
				ibv_end_poll(ex);
			}
			CHECK(!ibv_destroy_qp(qp));
			continue;
		}
		CHECK(!ibv_destroy_qp(qp));
		CHECK(ibv_start_poll(ex, &nothing) == ENOENT);
	}
	printf("replaced: %d\n", found);
	CHECK(!ibv_destroy_cq(cq));
}

/* A poll says that nothing comes any more. */
static void ended(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_wc completion;
	printf("polling\n");
	fflush(stdout);
	int taken = 0;
	time_t until = time(NULL) + 20;
	while (taken == 0 && time(NULL) < until)
		taken = ibv_poll_cq(cq, 1, &completion);
	printf("ended: %d\n", taken);
	fflush(stdout);
	_exit(0);
}

int main(int count, char **arguments)
{
	int devices;
	CHECK(count >= 2 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	address.sin_port = htons(7475);
	struct ibv_device **list = ibv_get_device_list(&devices);
	CHECK(list && devices == 1 && (context = ibv_open_device(list[0])));
	CHECK((pd = ibv_alloc_pd(context)));
	if (count > 2 && strcmp(arguments[2], "ended") == 0)
		ended();
	burst();
	destroyed();
	refused();
	handled();
	replaced();
	return 0;
}
