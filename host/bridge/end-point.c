/* librdmacm: queue pairs of ids, rdma_getaddrinfo, rdma_create_ep and rdma_get_request. */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include "connection.h"

/* Milliseconds, as librdmacm's own rdma_create_ep. */
#define RESOLVE_TIMEOUT 2000

/* ---- queue pairs */

/* A queue that goes with the queue pair, with a channel. 0 or an errno. */
static int make_queue(struct rdma_cm_id *id, uint32_t entries, struct ibv_comp_channel **channel,
		      struct ibv_cq **cq)
{
	*channel = ibv_create_comp_channel(cm_verbs());
	if (!*channel)
		return errno;
	*cq = ibv_create_cq(cm_verbs(), entries ? entries : 1, id, *channel, 0);
	if (*cq) {
		ibv_req_notify_cq(*cq, 0);
		return 0;
	}
	int error = errno;
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return error;
}

static void destroy_queue(struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	if (!*channel)
		return;
	ibv_destroy_cq(*cq);
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	*cq = NULL;
}

static void destroy_queues(struct rdma_cm_id *id)
{
	/* Rsockets have one for both. */
	if (id->send_cq_channel == id->recv_cq_channel) {
		id->send_cq_channel = NULL;
		id->send_cq = NULL;
	}
	destroy_queue(&id->send_cq_channel, &id->send_cq);
	destroy_queue(&id->recv_cq_channel, &id->recv_cq);
}

VB_EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (id->qp)
		return cm_fail(EINVAL);
	int error = 0;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = cm_pd(id);
	}
	if (id->srq && !attr->srq)
		attr->srq = id->srq;
	if (!error && !attr->send_cq)
		error = make_queue(id, attr->cap.max_send_wr, &id->send_cq_channel, &attr->send_cq);
	if (!error && !attr->recv_cq)
		error = make_queue(id, attr->cap.max_recv_wr, &id->recv_cq_channel, &attr->recv_cq);
	id->send_cq = attr->send_cq;
	id->recv_cq = attr->recv_cq;
	if (!error && !(id->qp = vb_qp_make(cm_verbs(), attr, cm_id_of(id)->handle)))
		error = errno;
	if (error) {
		destroy_queues(id);
		return cm_fail(error);
	}
	/* INIT; of datagrams RTS. */
	id->qp->state = vb_qp_state((struct vb_qp *)id->qp);
	id->pd = attr->pd;
	id->srq = attr->srq;
	return 0;
}

VB_EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			     struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex wanted = vb_extended(attr, pd);
	if (rdma_create_qp_ex(id, &wanted))
		return -1;
	attr->cap = wanted.cap;
	attr->send_cq = wanted.send_cq;
	attr->recv_cq = wanted.recv_cq;
	return 0;
}

VB_EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (!id->qp)
		return;
	if (!VB_CALL(OP_CM_DESTROY_QP, NULL, 0, cm_id_of(id)->handle, id->qp->handle))
		vb_qp_forget(id->qp);
	id->qp = NULL;
	destroy_queues(id);
}

VB_EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
			      struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = ibv_create_srq(pd ? pd : cm_pd(id), attr);
	if (!srq)
		return -1;
	if (pd)
		id->pd = pd;
	id->srq = srq;
	return 0;
}

VB_EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = cm_pd(id);
	}
	struct ibv_srq *srq = vb_create_srq_ex(cm_verbs(), attr);
	if (!srq)
		return -1;
	id->pd = attr->pd;
	id->srq = srq;
	return 0;
}

VB_EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
}

/* ---- addresses */

static int copy_address(struct sockaddr **to, socklen_t *to_length, const struct sockaddr *from,
			socklen_t length)
{
	*to = malloc(length);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, length);
	*to_length = length;
	return 0;
}

static void choose_service(struct rdma_addrinfo *info, const struct rdma_addrinfo *hints)
{
	int space = hints ? hints->ai_port_space : 0;
	int type = hints ? hints->ai_qp_type : 0;
	if (!space)
		space = type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	if (!type)
		type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
	info->ai_port_space = space;
	info->ai_qp_type = type;
}

/* The address of a node and service. 0 or an EAI error. */
static int look_up(const char *node, const char *service, const struct rdma_addrinfo *hints,
		   struct rdma_addrinfo *info)
{
	struct addrinfo wanted = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	bool passive = info->ai_flags & RAI_PASSIVE;
	wanted.ai_family = hints ? hints->ai_family : AF_UNSPEC;
	wanted.ai_flags = (passive ? AI_PASSIVE : 0) |
			  (info->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0);
	/* A device at an IPv4 address has no IPv6 peers. */
	if (!wanted.ai_family && !node)
		wanted.ai_family = AF_INET;
	int error = getaddrinfo(node, service, &wanted, &found);
	if (error)
		return error;
	info->ai_family = found->ai_family;
	error = passive ? copy_address(&info->ai_src_addr, &info->ai_src_len, found->ai_addr,
				       found->ai_addrlen) :
			  copy_address(&info->ai_dst_addr, &info->ai_dst_len, found->ai_addr,
				       found->ai_addrlen);
	freeaddrinfo(found);
	return error;
}

VB_EXPORT int rdma_getaddrinfo(const char *node, const char *service,
			       const struct rdma_addrinfo *hints, struct rdma_addrinfo **made)
{
	int error = 0;
	if (!node && !service && !hints)
		return EAI_NONAME;
	struct rdma_addrinfo *info = calloc(1, sizeof *info);
	if (!info)
		return EAI_MEMORY;
	info->ai_flags = hints ? hints->ai_flags : 0;
	info->ai_family = hints ? hints->ai_family : 0;
	choose_service(info, hints);
	if (node || service)
		error = look_up(node, service, hints, info);
	else if (hints->ai_dst_len)
		error = copy_address(&info->ai_dst_addr, &info->ai_dst_len, hints->ai_dst_addr,
				     hints->ai_dst_len);
	if (!error && !info->ai_src_len && hints && hints->ai_src_len)
		error = copy_address(&info->ai_src_addr, &info->ai_src_len, hints->ai_src_addr,
				     hints->ai_src_len);
	if (error)
		rdma_freeaddrinfo(info);
	else
		*made = info;
	return error;
}

VB_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *info)
{
	while (info) {
		struct rdma_addrinfo *next = info->ai_next;
		free(info->ai_src_addr);
		free(info->ai_dst_addr);
		free(info->ai_src_canonname);
		free(info->ai_dst_canonname);
		free(info);
		info = next;
	}
}

/* ---- end points: ids with a channel of their own */

/* A listener: what its requests get is kept. */
static int begin_passive(struct rdma_cm_id *id, struct rdma_addrinfo *info, struct ibv_pd *pd,
			 const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(id, info->ai_src_addr))
		return -1;
	if (attr) {
		struct ibv_qp_init_attr *kept = malloc(sizeof *kept);
		if (!kept)
			return cm_fail(ENOMEM);
		*kept = *attr;
		cm_id_of(id)->attributes = kept;
	}
	if (pd)
		id->pd = pd;
	return 0;
}

static int begin_active(struct rdma_cm_id *id, struct rdma_addrinfo *info, struct ibv_pd *pd,
			struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(id, info->ai_src_addr, info->ai_dst_addr, RESOLVE_TIMEOUT))
		return -1;
	if (rdma_resolve_route(id, RESOLVE_TIMEOUT))
		return -1;
	if (!attr)
		return 0;
	attr->qp_type = info->ai_qp_type;
	return rdma_create_qp(id, pd, attr);
}

VB_EXPORT int rdma_create_ep(struct rdma_cm_id **made, struct rdma_addrinfo *info,
			     struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	if (rdma_create_id(NULL, &id, NULL, info->ai_port_space))
		return -1;
	id->qp_type = info->ai_qp_type;
	int failed = info->ai_flags & RAI_PASSIVE ? begin_passive(id, info, pd, attr) :
						    begin_active(id, info, pd, attr);
	if (failed) {
		int error = errno;
		rdma_destroy_ep(id);
		return cm_fail(error);
	}
	*made = id;
	return 0;
}

VB_EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

VB_EXPORT int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **made)
{
	struct rdma_cm_event *event;
	struct cm_id *own = cm_id_of(listener);
	if (!own->alone)
		return cm_fail(EINVAL);
	if (listener->event)
		rdma_ack_cm_event(listener->event);
	listener->event = NULL;
	if (rdma_get_cm_event(listener->channel, &event))
		return -1;
	struct rdma_cm_id *id = event->id;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		rdma_ack_cm_event(event);
		return cm_fail(EINVAL);
	}
	if (own->attributes) {
		struct ibv_qp_init_attr attr = *own->attributes;
		attr.qp_type = id->qp_type;
		if (rdma_create_qp(id, listener->pd, &attr))
			goto refused;
	}
	if (rdma_migrate_id(id, NULL))
		goto refused;
	id->event = event;
	*made = id;
	return 0;
refused:;
	int error = errno;
	rdma_ack_cm_event(event);
	rdma_destroy_ep(id);
	return cm_fail(error);
}
