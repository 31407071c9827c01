/* Queue pairs and address handles. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "faults.h"
#include "internal.h"

int vb_refuse_xrc(const char *verb)
{
	static bool told;
	if (!told)
		vb_complain("%s: the device has no XRC; use RC queue pairs, with an SRQ for many of "
			    "them (EOPNOTSUPP)",
			    verb);
	told = true;
	return EOPNOTSUPP;
}

static int check_init(struct ibv_qp_init_attr_ex *attr)
{
	const uint64_t operations = ((uint64_t)IBV_QP_EX_WITH_ATOMIC_WRITE << 1) - 1;
	const uint64_t absent = IBV_QP_EX_WITH_TSO;
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (attr->qp_type == IBV_QPT_XRC_SEND || attr->qp_type == IBV_QPT_XRC_RECV)
		return vb_refuse_xrc("ibv_create_qp");
	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC && attr->qp_type != IBV_QPT_UD)
		return EOPNOTSUPP;
	if (attr->comp_mask & ~known)
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags)
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER && attr->max_tso_header)
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	    attr->send_ops_flags & (~operations | absent))
		return EOPNOTSUPP;
	return attr->pd && attr->send_cq && attr->recv_cq ? 0 : EINVAL;
}

static void grant(struct vb_qp *qp, struct ibv_qp_init_attr_ex *attr)
{
	const struct abi_queue_pair *rings = &qp->rings;
	attr->cap = (struct ibv_qp_cap){
		.max_send_wr = rings->send_entries,
		.max_send_sge = rings->send_sge_max,
		.max_recv_wr = attr->srq ? 0 : rings->receive_entries,
		.max_recv_sge = attr->srq ? 0 : rings->receive_sge_max,
		.max_inline_data = rings->inline_max,
	};
	qp->cap = attr->cap;
}

/* `cm_id`: the sidecar's number of the rdma_cm_id that the queue pair is for, or 0. */
struct ibv_qp *vb_qp_make(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
			  uint64_t cm_id)
{
	uint64_t made[3];
	struct ibv_qp_cap *cap = &attr->cap;
	int error = check_init(attr);
	if (error)
		return vb_null(error);
	bool extended = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	/* ibv_wr_atomic_write has its eight bytes inline. */
	if (extended && attr->send_ops_flags & IBV_QP_EX_WITH_ATOMIC_WRITE && cap->max_inline_data < 8)
		cap->max_inline_data = 8;
	struct vb_qp *qp = calloc(1, sizeof *qp);
	if (!qp)
		return vb_null(ENOMEM);
	error = VB_CALL(OP_CREATE_QP, made, 3, vb_context_of(context)->handle, cm_id,
			attr->pd->handle, attr->qp_type, attr->send_cq->handle,
			attr->recv_cq->handle, attr->srq ? attr->srq->handle : 0, cap->max_send_wr,
			cap->max_recv_wr, cap->max_send_sge, cap->max_recv_sge,
			cap->max_inline_data, attr->sq_sig_all != 0);
	if (!error && (error = vb_handle_put(made[0], qp)))
		VB_CALL(OP_DESTROY_QP, NULL, 0, made[0]);
	if (error) {
		free(qp);
		return vb_null(error);
	}
	struct ibv_qp *plain = &qp->qp.qp_base;
	plain->context = context;
	plain->qp_context = attr->qp_context;
	plain->pd = attr->pd;
	plain->send_cq = attr->send_cq;
	plain->recv_cq = attr->recv_cq;
	plain->srq = attr->srq;
	plain->handle = made[0];
	plain->qp_num = made[2];
	plain->qp_type = attr->qp_type;
	plain->state = IBV_QPS_RESET;
	pthread_mutex_init(&plain->mutex, NULL);
	pthread_cond_init(&plain->cond, NULL);
	vb_fault_qp(plain->qp_num);
	qp->address = made[1];
	memcpy(&qp->rings, vb_at(qp->address), sizeof qp->rings);
	qp->signals_all = attr->sq_sig_all != 0;
	qp->extended = extended;
	vb_lock_init(&qp->send_lock);
	vb_lock_init(&qp->receive_lock);
	vb_events_init(&qp->events);
	vb_qp_ex_init(&qp->qp);
	grant(qp, attr);
	vb_slots_add(qp);
	return plain;
}

struct ibv_qp *vb_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	return vb_qp_make(context, attr, 0);
}

VB_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex wanted = vb_extended(attr, pd);
	struct ibv_qp *qp = vb_qp_make(pd->context, &wanted, 0);
	if (qp)
		attr->cap = wanted.cap;
	return qp;
}

VB_EXPORT int ibv_modify_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask)
{
	struct vb_qp *qp = (struct vb_qp *)ibv_qp;
	uint64_t gid[2];
	if (mask & IBV_QP_AV && (!attr->ah_attr.is_global || attr->ah_attr.grh.sgid_index != 0))
		return vb_errno(EINVAL);
	memcpy(gid, attr->ah_attr.grh.dgid.raw, sizeof gid);
	vb_lock(&qp->send_lock);
	int error = VB_CALL(OP_MODIFY_QP, NULL, 0, ibv_qp->handle, mask, attr->qp_state,
			    attr->cur_qp_state, attr->path_mtu, attr->qkey, attr->rq_psn,
			    attr->sq_psn, attr->dest_qp_num,
			    attr->qp_access_flags & ABI_QP_ACCESS_FLAGS, attr->pkey_index,
			    attr->port_num, attr->max_rd_atomic, attr->max_dest_rd_atomic,
			    attr->min_rnr_timer, attr->timeout, attr->retry_cnt, attr->rnr_retry,
			    attr->en_sqd_async_notify, gid[0], gid[1],
			    attr->ah_attr.grh.flow_label);
	if (!error && mask & IBV_QP_STATE) {
		ibv_qp->state = attr->qp_state;
		if (attr->qp_state == IBV_QPS_RESET)
			vb_slots_reset(qp);
	}
	if (!error && mask & IBV_QP_AV)
		qp->ah = attr->ah_attr;
	vb_unlock(&qp->send_lock);
	return error;
}

VB_EXPORT int ibv_query_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask,
			   struct ibv_qp_init_attr *init)
{
	struct vb_qp *qp = (struct vb_qp *)ibv_qp;
	uint64_t now[15];
	int error = VB_CALL(OP_QUERY_QP, now, 15, ibv_qp->handle);
	if (error)
		return error;
	*attr = (struct ibv_qp_attr){
		.qp_state = now[0],
		.cur_qp_state = now[0],
		.qp_access_flags = now[1],
		.pkey_index = now[2],
		.port_num = now[3],
		.qkey = now[4],
		.path_mtu = now[5],
		.timeout = now[6],
		.retry_cnt = now[7],
		.rnr_retry = now[8],
		.rq_psn = now[9],
		.sq_psn = now[10],
		.max_rd_atomic = now[11],
		.max_dest_rd_atomic = now[12],
		.min_rnr_timer = now[13],
		.dest_qp_num = now[14],
		.cap = qp->cap,
		.ah_attr = qp->ah,
		.path_mig_state = IBV_MIG_MIGRATED,
	};
	ibv_qp->state = now[0];
	if (init)
		*init = (struct ibv_qp_init_attr){
			.qp_context = ibv_qp->qp_context,
			.send_cq = ibv_qp->send_cq,
			.recv_cq = ibv_qp->recv_cq,
			.srq = ibv_qp->srq,
			.cap = qp->cap,
			.qp_type = ibv_qp->qp_type,
			.sq_sig_all = qp->signals_all,
		};
	return 0;
}

/* The sidecar has destroyed it. */
void vb_qp_forget(struct ibv_qp *ibv_qp)
{
	struct vb_qp *qp = (struct vb_qp *)ibv_qp;
	vb_handle_drop(ibv_qp->handle);
	vb_slots_remove(qp);
	vb_events_wait(&qp->events);
	free(qp);
}

VB_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	int error = VB_CALL(OP_DESTROY_QP, NULL, 0, qp->handle);
	if (!error)
		vb_qp_forget(qp);
	return error;
}

VB_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

VB_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	memset(ece, 0, sizeof *ece);
	return 0;
}

/* No vendor's enhancements: none is set, as the man page has it for such devices. */
VB_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	memset(ece, 0, sizeof *ece);
	return 0;
}

static int multicast(uint32_t operation, struct ibv_qp *qp, const union ibv_gid *gid)
{
	uint64_t words[2];
	memcpy(words, gid->raw, sizeof words);
	return VB_CALL(operation, NULL, 0, qp->handle, words[0], words[1]);
}

VB_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return multicast(OP_ATTACH_MCAST, qp, gid);
}

VB_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return multicast(OP_DETACH_MCAST, qp, gid);
}

/* ---- address handles */

VB_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	uint64_t gid[2], made[2];
	if (!attr->is_global || attr->port_num != 1 || attr->grh.sgid_index != 0)
		return vb_null(EINVAL);
	struct vb_ah *ah = calloc(1, sizeof *ah);
	if (!ah)
		return vb_null(ENOMEM);
	memcpy(gid, attr->grh.dgid.raw, sizeof gid);
	int error = VB_CALL(OP_CREATE_AH, made, 2, pd->handle, gid[0], gid[1], attr->grh.flow_label);
	if (error) {
		free(ah);
		return vb_null(error);
	}
	ah->ah = (struct ibv_ah){ .context = pd->context, .pd = pd, .handle = made[0] };
	ah->address = made[1];
	return &ah->ah;
}

/* The sender of a datagram: the GRH area has its IP header. */
VB_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
				  struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const uint8_t *bytes = (const uint8_t *)grh;
	if (port != 1 || !(wc->wc_flags & IBV_WC_GRH))
		return vb_errno(EINVAL);
	memset(attr, 0, sizeof *attr);
	attr->is_global = 1;
	attr->port_num = port;
	attr->grh.hop_limit = 255;
	/* The last 20 bytes are an IPv4 header (IBA annex A17.4.5.2), or it is an IPv6 header. */
	if (bytes[20] >> 4 == 4 && bytes[0] >> 4 != 6) {
		memset(attr->grh.dgid.raw + 10, 0xff, 2);
		memcpy(attr->grh.dgid.raw + 12, bytes + 32, 4);
	} else
		attr->grh.dgid = grh->sgid;
	return 0;
}

VB_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					       struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;
	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL :
									 ibv_create_ah(pd, &attr);
}

VB_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	int error = VB_CALL(OP_DESTROY_AH, NULL, 0, ah->handle);
	if (!error)
		free(ah);
	return error;
}

/* An Ethernet address is the kernel's matter: packets leave by UDP. */
VB_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					  uint8_t mac[6], uint16_t *vid)
{
	memset(mac, 0, 6);
	if (vid)
		*vid = 0xffff;
	return 0;
}
