/* Declarations that connection.c and end-point.c share. */
#ifndef VERBENA_CONNECTION_H
#define VERBENA_CONNECTION_H

#include <rdma/rdma_cma.h>
#include "internal.h"

/* Words of librdmacm's private part of an id: those that rsockets reads. */
#define CM_PRIVATE_WORDS 32

struct cm_id {
	struct rdma_cm_id id;
	/* First the device, then flags (connection.c fill_private). */
	void *private_part[CM_PRIVATE_WORDS];
	uint64_t handle;
	/* It has a channel of its own: its verbs return with their event. */
	bool alone;
	/* Of a listener of rdma_create_ep: what its requests get. */
	struct ibv_qp_init_attr *attributes;
	/* The one that made it with a request. */
	struct cm_id *listener;
	/* Events that the program has not acknowledged. */
	struct vb_lock events_lock;
	pthread_cond_t acknowledged;
	int events;
};

static inline struct cm_id *cm_id_of(struct rdma_cm_id *id)
{
	return (struct cm_id *)id;
}

/* errno, and -1 for an error. */
int cm_fail(int error);
int cm_start(void);
/* Of an id with a channel of its own: waits for the event of a verb. 0 or -1. */
int cm_complete(struct rdma_cm_id *id);
struct ibv_context *cm_verbs(void);
struct ibv_pd *cm_pd(struct rdma_cm_id *id);
int cm_gid_of(const struct sockaddr *address, uint64_t gid[2], uint16_t *port);

#endif
