/* Events that a program has not read go with an id to another channel. */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include "check.h"

static struct rdma_cm_id *next(struct rdma_event_channel *channel, enum rdma_cm_event_type expected)
{
	struct rdma_cm_event *event;
	CHECK(!rdma_get_cm_event(channel, &event));
	struct rdma_cm_id *id = event->id;
	if (event->event != expected) {
		fprintf(stderr, "%s, not %s\n", rdma_event_str(event->event),
			rdma_event_str(expected));
		exit(1);
	}
	CHECK(!rdma_ack_cm_event(event));
	return id;
}

static bool readable(struct rdma_event_channel *channel, int milliseconds)
{
	struct pollfd waited = { .fd = channel->fd, .events = POLLIN };
	return poll(&waited, 1, milliseconds) == 1;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attributes = { .qp_type = IBV_QPT_RC };
	attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 1;
	attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
	CHECK(!rdma_create_qp(id, NULL, &attributes));
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7474) };
	struct sockaddr *target = (struct sockaddr *)&address;
	struct rdma_conn_param parameters = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *listener, *id, *other, *accepted;
	struct rdma_event_channel *passive = rdma_create_event_channel();
	struct rdma_event_channel *first = rdma_create_event_channel();
	struct rdma_event_channel *second = rdma_create_event_channel();
	CHECK(count == 2 && inet_pton(AF_INET, arguments[1], &address.sin_addr) == 1);
	CHECK(passive && first && second);
	CHECK(!rdma_create_id(passive, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, target) && !rdma_listen(listener, 1));
	CHECK(!rdma_create_id(first, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_create_id(first, &other, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, target, 2000));
	next(first, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 2000));
	next(first, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	CHECK(!rdma_connect(id, &parameters));
	accepted = next(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(accepted);
	CHECK(!rdma_accept(accepted, &parameters));
	next(first, RDMA_CM_EVENT_ESTABLISHED);
	next(passive, RDMA_CM_EVENT_ESTABLISHED);
	/* Two events wait in the first channel; none is read. */
	CHECK(!rdma_disconnect(accepted) && readable(first, 5000));
	CHECK(!rdma_resolve_addr(other, NULL, target, 2000));
	next(passive, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_migrate_id(id, second));
	CHECK(readable(second, 5000));
	printf("migrated: %s\n", next(second, RDMA_CM_EVENT_DISCONNECTED) == id ? "yes" : "no");
	printf("stayed: %s\n", next(first, RDMA_CM_EVENT_ADDR_RESOLVED) == other ? "yes" : "no");
	printf("left: %d\n", readable(first, 100) + readable(second, 0));
	rdma_destroy_ep(id);
	rdma_destroy_ep(accepted);
	CHECK(!rdma_destroy_id(other) && !rdma_destroy_id(listener));
	rdma_destroy_event_channel(second);
	rdma_destroy_event_channel(first);
	rdma_destroy_event_channel(passive);
	return 0;
}
