/* Protection domains, completion channels and queues, shared receive queues. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "internal.h"

/* ---- events that keep an object */

void vb_events_init(struct vb_events *events)
{
	vb_lock_init(&events->lock);
	pthread_cond_init(&events->acknowledged, NULL);
	events->unacknowledged = 0;
}

/* A destroy verb waits until all events of the object are acknowledged. */
void vb_events_wait(struct vb_events *events)
{
	vb_lock(&events->lock);
	while (events->unacknowledged > 0)
		pthread_cond_wait(&events->acknowledged, &events->lock.mutex);
	vb_unlock(&events->lock);
}

/* ---- protection domains */

/* A parent domain has the number of its domain. */
struct parent_domain {
	struct ibv_pd pd;
	struct thread_domain *threads;
	/* The device whose number it has. */
	unsigned generation;
	struct parent_domain *next;
};

/* As in rdma-core: a domain that a parent domain has cannot be freed. */
struct thread_domain {
	struct ibv_td td;
	unsigned parents;
};

static struct parent_domain *parents;
static struct vb_lock parents_lock = VB_LOCK_INITIALIZER;

VB_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	uint64_t made[1];
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	if (!pd)
		return vb_null(ENOMEM);
	int error = vb_call(OP_ALLOC_PD, NULL, 0, made, 1);
	if (error) {
		free(pd);
		return vb_null(error);
	}
	*pd = (struct ibv_pd){ .context = context, .handle = made[0] };
	return pd;
}

struct ibv_pd *vb_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			      IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	if (!attr->pd || attr->comp_mask & ~mask)
		return vb_null(EINVAL);
	struct parent_domain *made = calloc(1, sizeof *made);
	if (!made)
		return vb_null(ENOMEM);
	made->pd = (struct ibv_pd){ .context = context, .handle = attr->pd->handle };
	made->generation = vb.generation;
	made->threads = (struct thread_domain *)attr->td;
	vb_lock(&parents_lock);
	made->next = parents;
	parents = made;
	if (made->threads)
		made->threads->parents++;
	vb_unlock(&parents_lock);
	return &made->pd;
}

static bool forget_parent(struct ibv_pd *pd)
{
	bool found = false;
	vb_lock(&parents_lock);
	for (struct parent_domain **at = &parents; *at; at = &(*at)->next) {
		if (&(*at)->pd != pd)
			continue;
		if ((*at)->threads)
			(*at)->threads->parents--;
		*at = (*at)->next;
		found = true;
		break;
	}
	vb_unlock(&parents_lock);
	return found;
}

static bool has_parent(uint64_t handle)
{
	bool found = false;
	vb_lock(&parents_lock);
	for (const struct parent_domain *one = parents; one && !found; one = one->next)
		found = one->pd.handle == handle && one->generation == vb.generation;
	vb_unlock(&parents_lock);
	return found;
}

VB_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int error = 0;
	if (!forget_parent(pd))
		error = has_parent(pd->handle) ? vb_errno(EBUSY) :
						 VB_CALL(OP_DEALLOC_PD, NULL, 0, pd->handle);
	if (!error)
		free(pd);
	return error;
}

/* Within a process all contexts are one device, so a number is enough. */
VB_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	if (!pd)
		return vb_null(ENOMEM);
	*pd = (struct ibv_pd){ .context = context, .handle = handle };
	return pd;
}

VB_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	free(pd);
}

struct ibv_td *vb_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct thread_domain *made = attr->comp_mask ? NULL : calloc(1, sizeof *made);
	if (!made)
		return vb_null(attr->comp_mask ? EINVAL : ENOMEM);
	made->td.context = context;
	return &made->td;
}

int vb_dealloc_td(struct ibv_td *td)
{
	struct thread_domain *threads = (struct thread_domain *)td;
	vb_lock(&parents_lock);
	bool is_used = threads->parents > 0;
	vb_unlock(&parents_lock);
	if (is_used)
		return vb_errno(EBUSY);
	free(threads);
	return 0;
}

/* ---- completion channels: the sidecar writes the number of a queue into a pipe */

struct channel {
	struct ibv_comp_channel channel;
	uint64_t handle;
};

uint64_t vb_channel_handle(struct ibv_comp_channel *channel)
{
	return channel ? ((struct channel *)channel)->handle : 0;
}

VB_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *channel = calloc(1, sizeof *channel);
	if (!channel)
		return vb_null(ENOMEM);
	channel->channel.context = context;
	int error = vb_make_channel(OP_CREATE_CHANNEL, &channel->channel.fd, &channel->handle);
	if (error) {
		free(channel);
		return vb_null(error);
	}
	return &channel->channel;
}

VB_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (channel->refcnt > 0)
		return vb_errno(EBUSY);
	int error = VB_CALL(OP_DESTROY_CHANNEL, NULL, 0, vb_channel_handle(channel));
	close(channel->fd);
	free(channel);
	return error;
}

static void hold_queue(void *object, uint64_t type)
{
	__atomic_add_fetch(&((struct vb_cq *)object)->events_taken, 1, __ATOMIC_RELAXED);
}

VB_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	for (;;) {
		uint64_t handle;
		if (vb_read_event(channel->fd, &handle, sizeof handle))
			return -1;
		struct vb_cq *found = vb_handle_hold(handle, hold_queue, 0);
		/* The queue is destroyed. */
		if (!found)
			continue;
		*cq = (struct ibv_cq *)&found->cq;
		*context = found->cq.cq_context;
		return 0;
	}
}

VB_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* ---- completion queues */

VB_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int vector)
{
	uint64_t made[3];
	if (cqe < 1 || vector < 0 || vector >= context->num_comp_vectors)
		return vb_null(EINVAL);
	struct vb_cq *cq = calloc(1, sizeof *cq);
	if (!cq)
		return vb_null(ENOMEM);
	int error = VB_CALL(OP_CREATE_CQ, made, 3, vb_context_of(context)->handle, cqe,
			    vb_channel_handle(channel));
	if (!error && (error = vb_handle_put(made[0], cq)))
		VB_CALL(OP_DESTROY_CQ, NULL, 0, made[0]);
	if (error) {
		free(cq);
		return vb_null(error);
	}
	struct ibv_cq *plain = (struct ibv_cq *)&cq->cq;
	plain->context = context;
	plain->channel = channel;
	plain->cq_context = cq_context;
	plain->handle = made[0];
	plain->cqe = made[2];
	pthread_mutex_init(&plain->mutex, NULL);
	pthread_cond_init(&plain->cond, NULL);
	cq->address = made[1];
	vb_lock_init(&cq->lock);
	vb_events_init(&cq->events);
	if (channel)
		__atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_RELAXED);
	return plain;
}

static uint32_t unpolled(const struct vb_cq *cq)
{
	const struct abi_completion_queue *queue = vb_at(cq->address);
	const char *ring = vb_at(queue->ring);
	return vb_load(ring) - vb_load(ring + ABI_RING_TAIL);
}

VB_EXPORT int ibv_resize_cq(struct ibv_cq *ibv_cq, int cqe)
{
	struct vb_cq *cq = (struct vb_cq *)ibv_cq;
	uint64_t made[1];
	if (cqe < 1)
		return vb_errno(EINVAL);
	/* The ring moves: polls of other threads wait. */
	vb_lock(&cq->lock);
	/* The device rounds up; the caller's number must fit what is unpolled, too. */
	int error = (uint32_t)cqe < unpolled(cq) ? EINVAL : 0;
	if (!error)
		error = VB_CALL(OP_RESIZE_CQ, made, 1, ibv_cq->handle, cqe);
	if (!error)
		ibv_cq->cqe = made[0];
	vb_unlock(&cq->lock);
	return vb_errno(error);
}

VB_EXPORT int ibv_destroy_cq(struct ibv_cq *ibv_cq)
{
	struct vb_cq *cq = (struct vb_cq *)ibv_cq;
	int error = VB_CALL(OP_DESTROY_CQ, NULL, 0, ibv_cq->handle);
	if (error)
		return error;
	vb_handle_drop(ibv_cq->handle);
	pthread_mutex_lock(&ibv_cq->mutex);
	while (__atomic_load_n(&cq->events_taken, __ATOMIC_RELAXED) != ibv_cq->comp_events_completed)
		pthread_cond_wait(&ibv_cq->cond, &ibv_cq->mutex);
	pthread_mutex_unlock(&ibv_cq->mutex);
	vb_events_wait(&cq->events);
	if (ibv_cq->channel)
		__atomic_sub_fetch(&ibv_cq->channel->refcnt, 1, __ATOMIC_RELAXED);
	free(cq);
	return 0;
}

/* ---- shared receive queues */

VB_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	uint64_t made[4];
	struct vb_srq *srq = calloc(1, sizeof *srq);
	if (!srq)
		return vb_null(ENOMEM);
	int error = VB_CALL(OP_CREATE_SRQ, made, 4, vb_context_of(pd->context)->handle, pd->handle,
			    attr->attr.max_wr, attr->attr.max_sge, attr->attr.srq_limit);
	if (!error && (error = vb_handle_put(made[0], srq)))
		VB_CALL(OP_DESTROY_SRQ, NULL, 0, made[0]);
	if (error) {
		free(srq);
		return vb_null(error);
	}
	srq->srq.context = pd->context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = pd;
	srq->srq.handle = made[0];
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	srq->address = made[1];
	vb_lock_init(&srq->lock);
	vb_events_init(&srq->events);
	attr->attr.max_wr = made[2];
	attr->attr.max_sge = made[3];
	return &srq->srq;
}

struct ibv_srq *vb_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	bool typed = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE;
	if (typed && attr->srq_type == IBV_SRQT_XRC)
		return vb_null(vb_refuse_xrc("ibv_create_srq_ex"));
	if (typed && attr->srq_type != IBV_SRQT_BASIC)
		return vb_null(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
		return vb_null(EINVAL);
	struct ibv_srq_init_attr plain = { .srq_context = attr->srq_context, .attr = attr->attr };
	struct ibv_srq *srq = ibv_create_srq(attr->pd, &plain);
	attr->attr = plain.attr;
	return srq;
}

VB_EXPORT int ibv_modify_srq(struct ibv_srq *ibv_srq, struct ibv_srq_attr *attr, int mask)
{
	struct vb_srq *srq = (struct vb_srq *)ibv_srq;
	/* The ring may move: posts of other threads wait. */
	vb_lock(&srq->lock);
	int error = VB_CALL(OP_MODIFY_SRQ, NULL, 0, ibv_srq->handle, mask, attr->max_wr,
			    attr->srq_limit);
	vb_unlock(&srq->lock);
	return error;
}

VB_EXPORT int ibv_query_srq(struct ibv_srq *ibv_srq, struct ibv_srq_attr *attr)
{
	struct vb_srq *srq = (struct vb_srq *)ibv_srq;
	const struct abi_shared_receive_queue *queue = vb_at(srq->address);
	*attr = (struct ibv_srq_attr){ .max_wr = queue->entries,
				       .max_sge = queue->sge_max,
				       .srq_limit = queue->limit };
	return 0;
}

VB_EXPORT int ibv_destroy_srq(struct ibv_srq *ibv_srq)
{
	struct vb_srq *srq = (struct vb_srq *)ibv_srq;
	int error = VB_CALL(OP_DESTROY_SRQ, NULL, 0, ibv_srq->handle);
	if (error)
		return error;
	vb_handle_drop(ibv_srq->handle);
	vb_events_wait(&srq->events);
	free(srq);
	return 0;
}
