/* librdmacm: attributes of queue pairs, options, devices, multicast. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "connection.h"

static int attribute_mask(struct rdma_cm_id *id, enum ibv_qp_state state)
{
	bool datagrams = id->qp_type == IBV_QPT_UD;
	if (state == IBV_QPS_INIT)
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (state == IBV_QPS_RTR && !datagrams)
		return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (state == IBV_QPS_RTS && !datagrams)
		return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return state == IBV_QPS_RTS ? IBV_QP_STATE | IBV_QP_SQ_PSN : IBV_QP_STATE;
}

VB_EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	uint64_t found[16];
	int error = VB_CALL(OP_CM_INIT_QP_ATTR, found, 16, cm_id_of(id)->handle, attr->qp_state);
	if (error)
		return cm_fail(error);
	attr->pkey_index = found[0];
	attr->port_num = found[1];
	attr->qkey = found[2];
	attr->qp_access_flags = found[3];
	attr->path_mtu = found[4];
	attr->dest_qp_num = found[5];
	attr->rq_psn = found[6];
	attr->sq_psn = found[7];
	attr->max_dest_rd_atomic = found[8];
	attr->max_rd_atomic = found[9];
	attr->min_rnr_timer = found[10];
	attr->timeout = found[11];
	attr->retry_cnt = found[12];
	attr->rnr_retry = found[13];
	attr->ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1 };
	attr->ah_attr.grh.hop_limit = 64;
	memcpy(attr->ah_attr.grh.dgid.raw, found + 14, 16);
	*mask = attribute_mask(id, attr->qp_state);
	return 0;
}

VB_EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value,
			      size_t length)
{
	if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT) {
		if (length != 1)
			return cm_fail(EINVAL);
		uint8_t timeout = *(uint8_t *)value;
		return cm_fail(VB_CALL(OP_CM_ACK_TIMEOUT, NULL, 0, cm_id_of(id)->handle, timeout));
	}
	/* Type of service, reuse of addresses, address families: no effect on this device. */
	if (level == RDMA_OPTION_ID && name <= RDMA_OPTION_ID_AFONLY)
		return 0;
	return cm_fail(ENOSYS);
}

VB_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

VB_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return id->route.addr.dst_sin.sin_port;
}

VB_EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	return ece->vendor_id ? cm_fail(EOPNOTSUPP) : 0;
}

VB_EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	memset(ece, 0, sizeof *ece);
	return 0;
}

VB_EXPORT struct ibv_context **rdma_get_devices(int *count)
{
	int error = cm_start();
	struct ibv_context **list = error ? NULL : calloc(2, sizeof *list);
	if (!list)
		return vb_null(error ? error : ENOMEM);
	list[0] = cm_verbs();
	if (count)
		*count = 1;
	return list;
}

VB_EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

/* ---- multicast */

/* 0, or the errno of librdmacm for an address of an unknown family. */
static int group_of(const struct sockaddr *address, uint64_t gid[2])
{
	uint16_t port;
	return cm_gid_of(address, gid, &port) ? EINVAL : 0;
}

static int leave(struct rdma_cm_id *id, const uint64_t gid[2])
{
	return VB_CALL(OP_CM_LEAVE, NULL, 0, cm_id_of(id)->handle, gid[0], gid[1]);
}

static int join(struct rdma_cm_id *id, const struct sockaddr *address, uint32_t flags, void *context)
{
	uint64_t gid[2];
	int error = group_of(address, gid);
	/* The man page has it: the id is on a device. */
	if (!id->verbs)
		error = EINVAL;
	if (!error)
		error = VB_CALL(OP_CM_JOIN, NULL, 0, cm_id_of(id)->handle, gid[0], gid[1], flags,
				(uintptr_t)context);
	if (error)
		return cm_fail(error);
	if (!cm_complete(id))
		return 0;
	error = errno;
	leave(id, gid);
	return cm_fail(error);
}

VB_EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *address, void *context)
{
	return join(id, address, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

VB_EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id,
				     struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	/* As librdmacm: a member that it does not know. */
	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return cm_fail(ENOTSUP);
	if (attr->comp_mask != needed || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return cm_fail(EINVAL);
	return join(id, attr->addr, attr->join_flags, context);
}

VB_EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *address)
{
	uint64_t gid[2];
	int error = group_of(address, gid);
	return cm_fail(error ? error : leave(id, gid));
}
