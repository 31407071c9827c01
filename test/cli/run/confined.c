/*
 * A program with fewer rights: not dumpable, or without capabilities. Then all that takes
 * descriptors, memory and events.
 */
#include <linux/capability.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include "check.h"
#include "loopback.h"

static char memory[8192];

/* The process, and all that it starts, has no capability. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	for (int i = 0; i <= CAP_LAST_CAP; i++)
		prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	CHECK(!syscall(SYS_capset, &header, none));
}

static int readable(int fd)
{
	struct pollfd waited = { .fd = fd, .events = POLLIN };
	return poll(&waited, 1, 10000) == 1;
}

static void use_queues(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = channel ? ibv_create_cq(context, 16, NULL, channel, 0) : NULL;
	CHECK(pd && cq && !ibv_req_notify_cq(cq, 0));
	struct ibv_qp *qp = loopback(pd, cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, ACCESS);
	CHECK(qp && mr);
	memset(memory, 'x', 100);
	enum ibv_wc_status status = write_to(qp, mr, 100, memory + 4096, mr);
	struct ibv_cq *of;
	void *unused;
	CHECK(readable(channel->fd) && !ibv_get_cq_event(channel, &of, &unused) && of == cq);
	ibv_ack_cq_events(cq, 1);
	printf("written: %s, %d wrong\n", ibv_wc_status_str(status),
	       memcmp(memory, memory + 4096, 100) != 0);
}

static void use_ids(const char *address)
{
	struct sockaddr_in peer = { .sin_family = AF_INET };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	inet_pton(AF_INET, address, &peer.sin_addr);
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer, 2000));
	CHECK(readable(channel->fd) && !rdma_get_cm_event(channel, &event));
	printf("event: %s\n", rdma_event_str(event->event));
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	if (!strcmp(argv[1], "undumpable")) {
		CHECK(!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
		drop_capabilities();
	}
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	use_queues(context);
	use_ids(argv[2]);
	return 0;
}
