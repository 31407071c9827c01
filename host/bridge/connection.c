/*
 * librdmacm: ids and event channels. The state machine is that of the sidecar's connection manager;
 * its events come through a pipe, which is the channel's descriptor.
 */
#define _GNU_SOURCE
#include <rdma/rdma_cma.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "connection.h"

/* Parameters of rdma_connect and rdma_accept without an argument. */
#define DEPTH_DEFAULT 16
#define RETRIES_DEFAULT 7

struct channel {
	struct rdma_event_channel channel;
	uint64_t handle;
};

struct event {
	struct rdma_cm_event event;
	uint8_t private_data[CM_PRIVATE_BYTES];
};

struct record {
	uint64_t words[CM_EVENT_WORDS];
	uint8_t private_data[CM_PRIVATE_BYTES];
};

static struct vb_lock lock = VB_LOCK_INITIALIZER;
static struct ibv_context *verbs;
static struct ibv_pd *default_pd;
/* Of the sidecar that both are of: a child of fork has another one. */
static unsigned generation;

int cm_fail(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

/* The device of all ids. 0 or an errno. */
int cm_start(void)
{
	int error = vb_start();
	vb_lock(&lock);
	if (!error && generation != vb.generation) {
		generation = vb.generation;
		verbs = NULL;
		default_pd = NULL;
	}
	if (!error && !verbs && !(verbs = ibv_open_device(&vb_device)))
		error = errno;
	if (!error && !default_pd && !(default_pd = ibv_alloc_pd(verbs)))
		error = errno;
	vb_unlock(&lock);
	return error;
}

struct ibv_context *cm_verbs(void)
{
	return verbs;
}

struct ibv_pd *cm_pd(struct rdma_cm_id *id)
{
	return id->pd ? id->pd : default_pd;
}

/* ---- addresses: an IPv4 address is a mapped GID */

int cm_gid_of(const struct sockaddr *address, uint64_t gid[2], uint16_t *port)
{
	uint8_t bytes[16] = { 0 };
	if (!address)
		return EINVAL;
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)address;
		memset(bytes + 10, 0xff, 2);
		memcpy(bytes + 12, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
	} else if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
		memcpy(bytes, &in->sin6_addr, 16);
		*port = ntohs(in->sin6_port);
	} else
		return EAFNOSUPPORT;
	memcpy(gid, bytes, sizeof bytes);
	return 0;
}

static void address_of(struct sockaddr *address, const void *gid, uint16_t port)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *bytes = gid;
	if (memcmp(bytes, mapped, sizeof mapped)) {
		struct sockaddr_in6 *in = (struct sockaddr_in6 *)address;
		*in = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(port) };
		memcpy(&in->sin6_addr, bytes, 16);
		return;
	}
	struct sockaddr_in *in = (struct sockaddr_in *)address;
	*in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	memcpy(&in->sin_addr, bytes + 12, 4);
}

/* As the kernel has it: a loopback address is on any device. */
static bool is_any(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET) {
		in_addr_t ip = ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr);
		return ip == INADDR_ANY || ip >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
	}
	const struct in6_addr *ip = &((const struct sockaddr_in6 *)address)->sin6_addr;
	return IN6_IS_ADDR_UNSPECIFIED(ip) || IN6_IS_ADDR_LOOPBACK(ip);
}

/* The id is on the device, at this port. */
static void bind_to_device(struct cm_id *id, uint16_t port)
{
	id->id.verbs = verbs;
	id->id.port_num = 1;
	if (!id->id.pd)
		id->id.pd = default_pd;
	memcpy(id->id.route.addr.addr.ibaddr.sgid.raw, vb.hello + HELLO_GID_LOW, 16);
	id->id.route.addr.addr.ibaddr.pkey = 0xffff;
	address_of(&id->id.route.addr.src_addr, vb.hello + HELLO_GID_LOW, port);
}

/* ---- channels */

VB_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	int error = cm_start();
	if (error)
		return vb_null(error);
	struct channel *channel = calloc(1, sizeof *channel);
	if (!channel)
		return vb_null(ENOMEM);
	error = vb_make_channel(OP_CM_CREATE_CHANNEL, &channel->channel.fd, &channel->handle);
	if (error) {
		free(channel);
		return vb_null(error);
	}
	return &channel->channel;
}

VB_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	VB_CALL(OP_CM_DESTROY_CHANNEL, NULL, 0, ((struct channel *)channel)->handle);
	close(channel->fd);
	free(channel);
}

/* ---- ids */

/*
 * librdmacm's own rsockets run on these ids: all their calls of rdma_* and ibv_* come here. Two
 * private fields they read themselves: the longest queue of the id's device, and whether verbs of
 * the id wait for their events. Where they lie differs between versions, so each word of the device
 * is that length, and each word of the id is not 0: ids of rsockets have a channel of their own.
 */
static void fill_private(struct cm_id *id)
{
	static uint32_t device[256];
	for (size_t i = 0; i < sizeof device / sizeof *device; i++)
		device[i] = vb.hello[HELLO_MAX_QP_WR];
	id->private_part[0] = device;
	memset(id->private_part + 1, 1, sizeof id->private_part - sizeof *id->private_part);
}

static struct cm_id *make_id(struct rdma_event_channel *channel, uint64_t handle, void *context,
			     enum rdma_port_space space)
{
	struct cm_id *id = calloc(1, sizeof *id);
	if (!id)
		return NULL;
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = space;
	id->id.qp_type = space == RDMA_PS_UDP || space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
	id->handle = handle;
	fill_private(id);
	vb_lock_init(&id->events_lock);
	pthread_cond_init(&id->acknowledged, NULL);
	if (vb_handle_put(handle, id)) {
		free(id);
		return NULL;
	}
	return id;
}

VB_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **made_id,
			     void *context, enum rdma_port_space space)
{
	uint64_t made[1];
	bool alone = !channel;
	if (alone && !(channel = rdma_create_event_channel()))
		return -1;
	enum rdma_port_space known = space == RDMA_PS_IPOIB ? RDMA_PS_UDP : space;
	int error = VB_CALL(OP_CM_CREATE_ID, made, 1, ((struct channel *)channel)->handle, known);
	struct cm_id *id = error ? NULL : make_id(channel, made[0], context, space);
	if (!error && !id) {
		VB_CALL(OP_CM_DESTROY_ID, NULL, 0, made[0]);
		error = ENOMEM;
	}
	if (error) {
		if (alone)
			rdma_destroy_event_channel(channel);
		return cm_fail(error);
	}
	id->alone = alone;
	*made_id = &id->id;
	return 0;
}

VB_EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct cm_id *own = cm_id_of(id);
	if (id->event)
		rdma_ack_cm_event(id->event);
	id->event = NULL;
	int error = VB_CALL(OP_CM_DESTROY_ID, NULL, 0, own->handle);
	vb_handle_drop(own->handle);
	/* As the man page has it: waits until the program has acknowledged the id's events. */
	vb_lock(&own->events_lock);
	while (own->events > 0)
		pthread_cond_wait(&own->acknowledged, &own->events_lock.mutex);
	vb_unlock(&own->events_lock);
	if (own->alone)
		rdma_destroy_event_channel(id->channel);
	free(own->attributes);
	free(own);
	return cm_fail(error);
}

/* An id with a channel of its own: the verb returns with its event. */
int cm_complete(struct rdma_cm_id *id)
{
	if (!cm_id_of(id)->alone)
		return 0;
	if (id->event)
		rdma_ack_cm_event(id->event);
	id->event = NULL;
	if (rdma_get_cm_event(id->channel, &id->event))
		return -1;
	int status = id->event->status;
	if (!status)
		return 0;
	if (id->event->event == RDMA_CM_EVENT_REJECTED)
		return cm_fail(ECONNREFUSED);
	return cm_fail(status < 0 ? -status : EIO);
}

VB_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	uint64_t gid[2], bound[1];
	uint16_t port = 0;
	int error = cm_gid_of(address, gid, &port);
	bool own = !error && !memcmp(gid, vb.hello + HELLO_GID_LOW, 16);
	bool any = !error && !own && is_any(address);
	/* An address of another interface, as the kernel refuses it. */
	if (!error && !own && !any)
		error = ENODEV;
	if (!error)
		error = VB_CALL(OP_CM_BIND, bound, 1, cm_id_of(id)->handle, port);
	if (error)
		return cm_fail(error);
	if (!any) {
		bind_to_device(cm_id_of(id), bound[0]);
		return 0;
	}
	bool v4 = address->sa_family == AF_INET;
	memcpy(&id->route.addr.src_addr, address,
	       v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	id->route.addr.src_sin.sin_port = htons(bound[0]);
	return 0;
}

VB_EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
				struct sockaddr *target, int timeout_ms)
{
	uint64_t gid[2], bound[1];
	uint16_t port = 0;
	int error = cm_gid_of(target, gid, &port);
	if (error)
		return cm_fail(error);
	if (source && !id->verbs && rdma_bind_addr(id, source))
		return -1;
	error = VB_CALL(OP_CM_RESOLVE_ADDR, bound, 1, cm_id_of(id)->handle, gid[0], gid[1], port);
	if (error)
		return cm_fail(error);
	bind_to_device(cm_id_of(id), bound[0]);
	address_of(&id->route.addr.dst_addr, gid, port);
	memcpy(id->route.addr.addr.ibaddr.dgid.raw, gid, 16);
	return cm_complete(id);
}

VB_EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int error = VB_CALL(OP_CM_RESOLVE_ROUTE, NULL, 0, cm_id_of(id)->handle);
	return error ? cm_fail(error) : cm_complete(id);
}

/* ---- connections */

/* Sends an operation with a conn_param. 0 or -1. */
static int send_parameters(uint32_t operation, struct rdma_cm_id *id, struct rdma_conn_param *given)
{
	const struct rdma_conn_param none = { .responder_resources = DEPTH_DEFAULT,
					      .initiator_depth = DEPTH_DEFAULT,
					      .retry_count = RETRIES_DEFAULT,
					      .rnr_retry_count = RETRIES_DEFAULT };
	const struct rdma_conn_param *param = given ? given : &none;
	size_t length = param->private_data ? param->private_data_len : 0;
	uint64_t words[9 + CM_PRIVATE_BYTES / 8] = {
		cm_id_of(id)->handle,	    param->responder_resources,
		param->initiator_depth,	    param->flow_control,
		param->retry_count,	    param->rnr_retry_count,
		id->srq ? 1 : param->srq,   param->qp_num,
		length,
	};
	if (length > CM_PRIVATE_BYTES)
		return cm_fail(EINVAL);
	if (length > 0)
		memcpy(words + 9, param->private_data, length);
	return cm_fail(vb_call(operation, words, 9 + (length + 7) / 8, NULL, 0));
}

VB_EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return send_parameters(OP_CM_CONNECT, id, param) ? -1 : cm_complete(id);
}

VB_EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	if (send_parameters(OP_CM_ACCEPT, id, param))
		return -1;
	/* A datagram service is ready at once. */
	return id->qp_type == IBV_QPT_UD ? 0 : cm_complete(id);
}

VB_EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	uint64_t bound[1];
	int error = VB_CALL(OP_CM_LISTEN, bound, 1, cm_id_of(id)->handle, backlog < 0 ? 0 : backlog);
	if (error)
		return cm_fail(error);
	id->route.addr.src_sin.sin_port = htons(bound[0]);
	return 0;
}

VB_EXPORT int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	uint64_t words[2 + CM_PRIVATE_BYTES / 8] = { cm_id_of(id)->handle, length };
	if (length > 0)
		memcpy(words + 2, data, length);
	return cm_fail(vb_call(OP_CM_REJECT, words, 2 + (length + 7) / 8, NULL, 0));
}

VB_EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	return rdma_reject(id, data, length);
}

VB_EXPORT int rdma_disconnect(struct rdma_cm_id *id)
{
	int error = VB_CALL(OP_CM_DISCONNECT, NULL, 0, cm_id_of(id)->handle);
	return error ? cm_fail(error) : cm_complete(id);
}

VB_EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	return cm_fail(VB_CALL(OP_CM_ESTABLISH, NULL, 0, cm_id_of(id)->handle));
}

VB_EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	if (event != IBV_EVENT_COMM_EST)
		return cm_fail(EINVAL);
	return cm_fail(VB_CALL(OP_CM_NOTIFY, NULL, 0, cm_id_of(id)->handle));
}

VB_EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct cm_id *own = cm_id_of(id);
	bool alone = !channel;
	if (alone && !(channel = rdma_create_event_channel()))
		return -1;
	int error = VB_CALL(OP_CM_MIGRATE, NULL, 0, own->handle, ((struct channel *)channel)->handle);
	if (error) {
		if (alone)
			rdma_destroy_event_channel(channel);
		return cm_fail(error);
	}
	if (id->event)
		rdma_ack_cm_event(id->event);
	id->event = NULL;
	if (own->alone)
		rdma_destroy_event_channel(id->channel);
	own->alone = alone;
	id->channel = channel;
	return 0;
}

/* ---- events */

static void fill_parameters(struct event *event, const struct record *record)
{
	const uint64_t *words = record->words;
	const void *data = words[CM_PRIVATE_LENGTH] ? event->private_data : NULL;
	if (event->event.id->qp_type == IBV_QPT_UD) {
		struct rdma_ud_param *ud = &event->event.param.ud;
		ud->private_data = data;
		ud->private_data_len = words[CM_PRIVATE_LENGTH];
		ud->ah_attr.is_global = 1;
		ud->ah_attr.port_num = 1;
		memcpy(ud->ah_attr.grh.dgid.raw, words + CM_PEER_GID_LOW, 16);
		ud->ah_attr.grh.hop_limit = 64;
		ud->qp_num = words[CM_REMOTE_QPN];
		ud->qkey = words[CM_QKEY];
		return;
	}
	event->event.param.conn = (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = words[CM_PRIVATE_LENGTH],
		.responder_resources = words[CM_RESPONDER_RESOURCES],
		.initiator_depth = words[CM_INITIATOR_DEPTH],
		.flow_control = words[CM_FLOW_CONTROL],
		.retry_count = words[CM_RETRY_COUNT],
		.rnr_retry_count = words[CM_RNR_RETRY_COUNT],
		.srq = words[CM_SRQ],
		.qp_num = words[CM_QP_NUM],
	};
}

/*
 * As the man page has it, the queue pair of the id is attached when the program takes the event of
 * the join. One that the id had before has been attached by the join.
 */
static void complete_join(struct rdma_cm_event *event, const uint64_t *words)
{
	struct rdma_ud_param *ud = &event->param.ud;
	struct ibv_qp *qp = event->id->qp;
	ud->private_data = (void *)(uintptr_t)words[CM_JOIN_CONTEXT];
	if (!qp || words[CM_JOIN_FLAGS] != RDMA_MC_JOIN_FLAG_FULLMEMBER)
		return;
	int error = ibv_attach_mcast(qp, &ud->ah_attr.grh.dgid, 0);
	if (!error)
		return;
	event->event = RDMA_CM_EVENT_MULTICAST_ERROR;
	event->status = -error;
}

static void count_event(struct cm_id *id, int change)
{
	vb_lock(&id->events_lock);
	id->events += change;
	pthread_cond_broadcast(&id->acknowledged);
	vb_unlock(&id->events_lock);
}

static void hold_id(void *object, uint64_t type)
{
	count_event(object, 1);
}

/* The id that a listener's request has made. NULL: the listener is gone, or no memory. */
static struct cm_id *requested_id(struct rdma_event_channel *channel, const struct record *record)
{
	const uint64_t *words = record->words;
	struct cm_id *listener = vb_handle_hold(words[CM_LISTEN_ID], hold_id, 0);
	struct cm_id *id = listener ? make_id(channel, words[CM_ID], listener->id.context,
					      listener->id.ps) :
				      NULL;
	if (!id) {
		VB_CALL(OP_CM_DESTROY_ID, NULL, 0, words[CM_ID]);
		if (listener)
			count_event(listener, -1);
		return NULL;
	}
	bind_to_device(id, words[CM_LOCAL_PORT]);
	address_of(&id->id.route.addr.dst_addr, words + CM_PEER_GID_LOW, words[CM_PEER_PORT]);
	memcpy(id->id.route.addr.addr.ibaddr.dgid.raw, words + CM_PEER_GID_LOW, 16);
	id->listener = listener;
	return id;
}

VB_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **made)
{
	struct record record;
	struct cm_id *id;
	if (!channel)
		return cm_fail(EINVAL);
	do {
		if (vb_read_event(channel->fd, &record, sizeof record))
			return -1;
		bool request = record.words[CM_EVENT] == RDMA_CM_EVENT_CONNECT_REQUEST;
		/* An event of an id that is destroyed has no reader. */
		id = request ? requested_id(channel, &record) :
			       vb_handle_hold(record.words[CM_ID], hold_id, 0);
	} while (!id);
	struct event *event = calloc(1, sizeof *event);
	if (!event)
		return cm_fail(ENOMEM);
	event->event.id = &id->id;
	event->event.event = record.words[CM_EVENT];
	event->event.status = (int64_t)record.words[CM_STATUS];
	if (event->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		event->event.listen_id = &id->listener->id;
	memcpy(event->private_data, record.private_data, sizeof event->private_data);
	fill_parameters(event, &record);
	if (event->event.event == RDMA_CM_EVENT_MULTICAST_JOIN)
		complete_join(&event->event, record.words);
	if (event->event.event == RDMA_CM_EVENT_ESTABLISHED && id->id.qp)
		id->id.qp->state = IBV_QPS_RTS;
	*made = &event->event;
	return 0;
}

VB_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (!event)
		return cm_fail(EINVAL);
	/* A request is an event of the listener. */
	count_event(cm_id_of(event->listen_id ? event->listen_id : event->id), -1);
	free(event);
	return 0;
}
