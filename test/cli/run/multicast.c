/* Multicast as the man pages of rdma_join_multicast, ibv_attach_mcast and ibv_create_qp have it. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include "check.h"

#define RECEIVES 32
#define BYTES 64
#define GRH_BYTES 40
#define QUIET_MILLIS 50
#define LIMIT_MILLIS 20000
/* More than a device has memberships. */
#define CONTEXTS 6
#define GROUPS_EACH 15

static struct sockaddr_in own;
static struct rdma_event_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char buffer[BYTES];

static struct sockaddr *group(const char *text)
{
	static struct sockaddr_in made[4];
	static unsigned next;
	struct sockaddr_in *address = &made[next++ % 4];
	*address = (struct sockaddr_in){ .sin_family = AF_INET };
	CHECK(inet_pton(AF_INET, text, &address->sin_addr) == 1);
	return (struct sockaddr *)address;
}

static union ibv_gid gid_of(const char *text)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };
	CHECK(inet_pton(AF_INET, text, gid.raw + 12) == 1);
	return gid;
}

static const char *name(int result)
{
	return result ? strerrorname_np(errno) : "0";
}

/* Of a verb that returns its errno. */
static const char *name_of(int error)
{
	return error ? strerrorname_np(error) : "0";
}

static struct rdma_cm_id *bound(struct rdma_event_channel *on)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(on, &id, NULL, RDMA_PS_UDP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&own));
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attributes = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
		.cap = { RECEIVES, RECEIVES, 1, 1, BYTES },
	};
	CHECK(!rdma_create_qp(id, pd, &attributes));
}

static bool readable(void)
{
	struct pollfd waited = { .fd = channel->fd, .events = POLLIN };
	return poll(&waited, 1, QUIET_MILLIS) == 1;
}

/* The next event: its name, its join context, and the last byte of its group. */
static void print_event(void)
{
	struct rdma_cm_event *event;
	if (!readable()) {
		printf(" none");
		return;
	}
	CHECK(!rdma_get_cm_event(channel, &event));
	const struct rdma_ud_param *ud = &event->param.ud;
	printf(" %s %d %p .%d", rdma_event_str(event->event) + strlen("RDMA_CM_EVENT_"),
	       event->status, ud->private_data, ud->ah_attr.grh.dgid.raw[15]);
	CHECK(!rdma_ack_cm_event(event));
}

static long millis(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Copies of a datagram to the group that arrive; `wanted`: their number, or 0. */
static int copies(struct rdma_cm_id *id, const char *text, int wanted)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh.hop_limit = 1 };
	to.grh.dgid = gid_of(text);
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	struct ibv_sge in = { (uintptr_t)buffer, BYTES, mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &in, .num_sge = 1 }, *bad;
	struct ibv_sge out = { (uintptr_t) "x", 1, 0 };
	struct ibv_send_wr send = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_INLINE,
				    .wr.ud = { ah, 0xffffff, RDMA_UDP_QKEY } }, *bad_send;
	int count = 0;
	/* One more than arrive: a second copy has a place. */
	for (int posted = 0; posted <= wanted; posted++)
		CHECK(!ibv_post_recv(id->qp, &receive, &bad));
	CHECK(ah && !ibv_post_send(id->qp, &send, &bad_send));
	for (long end = millis() + (wanted ? LIMIT_MILLIS : QUIET_MILLIS); millis() < end;) {
		struct ibv_wc wc;
		int found = ibv_poll_cq(cq, 1, &wc);
		CHECK(found >= 0 && (!found || !wc.status));
		if (found && wc.byte_len == GRH_BYTES + 1 && ++count == wanted)
			end = millis() + QUIET_MILLIS;
		usleep(200);
	}
	CHECK(!ibv_destroy_ah(ah));
	return count;
}

static void joins(void)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
	printf("unbound: %s", name(rdma_join_multicast(id, group("239.76.1.1"), NULL)));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&own));
	printf(", %s\n", name(rdma_leave_multicast(id, group("239.76.1.1"))));
	printf("without a queue pair: %s", name(rdma_join_multicast(id, group("239.76.1.1"), (void *)0x11)));
	print_event();
	make_qp(id);
	printf("; copies %d", copies(id, "239.76.1.1", 0));
	union ibv_gid gid = gid_of("239.76.1.1");
	printf(", attached %s", name_of(ibv_attach_mcast(id->qp, &gid, 0)));
	printf(" %s", name_of(ibv_attach_mcast(id->qp, &gid, 0)));
	printf(", copies %d", copies(id, "239.76.1.1", 1));
	printf(", left %s", name(rdma_leave_multicast(id, group("239.76.1.1"))));
	printf(", copies %d\n", copies(id, "239.76.1.1", 0));
	CHECK(!rdma_join_multicast(id, group("239.76.1.2"), (void *)0x12));
	CHECK(!rdma_join_multicast(id, group("239.76.1.2"), (void *)0x13));
	printf("twice:");
	print_event();
	print_event();
	printf("; copies %d", copies(id, "239.76.1.2", 1));
	printf(", left %s", name(rdma_leave_multicast(id, group("239.76.1.2"))));
	printf(", copies %d", copies(id, "239.76.1.2", 0));
	printf(", left %s", name(rdma_leave_multicast(id, group("239.76.1.2"))));
	printf(" %s\n", name(rdma_leave_multicast(id, group("239.76.1.2"))));
	rdma_destroy_ep(id);
	id = bound(channel);
	CHECK(!rdma_join_multicast(id, group("239.76.1.3"), (void *)0x14));
	make_qp(id);
	printf("a queue pair before the event:");
	print_event();
	printf("; copies %d\n", copies(id, "239.76.1.3", 1));
	rdma_destroy_qp(id);
	printf("without it: left %s", name(rdma_leave_multicast(id, group("239.76.1.3"))));
	printf(" %s\n", name(rdma_leave_multicast(id, group("239.76.1.3"))));
	CHECK(!rdma_destroy_id(id));
}

static void cancels(void)
{
	struct rdma_cm_id *id = bound(channel), *other = bound(channel);
	make_qp(id);
	CHECK(!rdma_join_multicast(id, group("239.76.2.1"), (void *)0x21));
	CHECK(!rdma_join_multicast(other, group("239.76.2.1"), (void *)0x22));
	CHECK(!rdma_join_multicast(id, group("239.76.2.1"), (void *)0x23));
	CHECK(!rdma_join_multicast(id, group("239.76.2.2"), (void *)0x24));
	CHECK(!rdma_leave_multicast(id, group("239.76.2.1")));
	printf("left before the event:");
	print_event();
	print_event();
	print_event();
	print_event();
	CHECK(!rdma_leave_multicast(id, group("239.76.2.1")));
	CHECK(!rdma_join_multicast(id, group("239.76.2.1"), (void *)0x25));
	CHECK(!rdma_leave_multicast(id, group("239.76.2.1")));
	print_event();
	printf("; copies %d %d\n", copies(id, "239.76.2.1", 0), copies(id, "239.76.2.2", 1));
	rdma_destroy_ep(id);
	CHECK(!rdma_destroy_id(other));
}

static void extended(void)
{
	static const struct { uint32_t mask, flags; } wrong[] = {
		{ 1, 0 }, { 2, 0 }, { 3, 2 }, { 3, 7 }, { 7, 0 }, { 0xff, 0 },
	};
	struct rdma_cm_id *id = bound(channel);
	struct rdma_cm_join_mc_attr_ex attributes = { .addr = group("239.76.3.1") };
	struct sockaddr_storage unknown = { .ss_family = 77 };
	make_qp(id);
	printf("attributes:");
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		attributes.comp_mask = wrong[i].mask;
		attributes.join_flags = wrong[i].flags;
		printf(" %s", name(rdma_join_multicast_ex(id, &attributes, NULL)));
	}
	printf(" %s;", name(rdma_join_multicast(id, (struct sockaddr *)&unknown, NULL)));
	print_event();
	attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	for (int flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER; flags >= 0; flags--) {
		attributes.join_flags = flags;
		CHECK(!rdma_join_multicast_ex(id, &attributes, (void *)0x31));
		print_event();
		printf(" copies %d", copies(id, "239.76.3.1", !flags));
	}
	printf("\n");
	rdma_destroy_ep(id);
}

/* An id with a channel of its own: the join returns with its event. */
static void alone(void)
{
	struct rdma_cm_id *id = bound(NULL);
	make_qp(id);
	CHECK(!rdma_join_multicast(id, group("239.76.4.1"), (void *)0x41));
	printf("alone: %p, copies %d\n", id->event->param.ud.private_data,
	       copies(id, "239.76.4.1", 1));
	rdma_destroy_ep(id);
}

static struct ibv_qp *other_qp(struct ibv_context *context, struct ibv_pd **domain)
{
	*domain = ibv_alloc_pd(context);
	struct ibv_cq *queue = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attributes = {
		.send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_UD, .cap = { 1, 1, 1, 1, 0 },
	};
	struct ibv_qp *qp = ibv_create_qp(*domain, &attributes);
	CHECK(qp);
	return qp;
}

static void ends(void)
{
	struct rdma_cm_id *id = bound(channel);
	struct ibv_pd *domain;
	union ibv_gid gid = gid_of("239.76.5.1");
	struct ibv_qp *qp = other_qp(id->verbs, &domain);
	CHECK(!ibv_attach_mcast(qp, &gid, 0));
	printf("destroy: attached %s", name_of(ibv_destroy_qp(qp)));
	CHECK(!ibv_detach_mcast(qp, &gid, 0));
	printf(", detached %s", name_of(ibv_destroy_qp(qp)));
	make_qp(id);
	CHECK(!rdma_join_multicast(id, group("239.76.5.1"), NULL));
	printf(", joined %s", name_of(ibv_destroy_qp(id->qp)));
	print_event();
	CHECK(!rdma_leave_multicast(id, group("239.76.5.1")));
	printf(", left %s\n", name_of(ibv_destroy_qp(id->qp)));
	id->qp = NULL;
	CHECK(!rdma_destroy_id(id));
	struct ibv_device **devices = ibv_get_device_list(NULL);
	int attached = 0;
	for (int context = 0; context < CONTEXTS; context++) {
		struct ibv_context *opened = ibv_open_device(devices[0]);
		qp = other_qp(opened, &domain);
		for (int index = 0; index < GROUPS_EACH; index++) {
			char text[32];
			sprintf(text, "239.77.%d.%d", context, index);
			gid = gid_of(text);
			attached += !ibv_attach_mcast(qp, &gid, 0);
		}
		CHECK(!ibv_close_device(opened));
	}
	ibv_free_device_list(devices);
	printf("closed contexts: %d attached\n", attached);
}

int main(int count, char **arguments)
{
	own.sin_family = AF_INET;
	CHECK(count == 2 && inet_pton(AF_INET, arguments[1], &own.sin_addr) == 1);
	CHECK(channel = rdma_create_event_channel());
	struct rdma_cm_id *id = bound(channel);
	pd = ibv_alloc_pd(id->verbs);
	cq = ibv_create_cq(id->verbs, 256, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && cq && mr);
	joins();
	cancels();
	extended();
	alone();
	ends();
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
	return 0;
}
