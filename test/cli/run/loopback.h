/* A queue pair that is connected to itself, and one RDMA WRITE over it. */
#include <infiniband/verbs.h>

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* From RESET to RTS. 0 or an errno. */
static inline int connect_to_itself(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						     IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = qp->qp_num,
				     .max_dest_rd_atomic = 1,
				     .min_rnr_timer = 12,
				     .ah_attr = { .is_global = 1, .port_num = 1 } };
	ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid);
	if (!error)
		error = ibv_modify_qp(qp, &attr,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					      IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	return error ? error : ibv_modify_qp(qp, &attr, mask);
}

static inline struct ibv_qp *loopback(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 8, 8, 2, 2, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	return !qp || connect_to_itself(qp) ? NULL : qp;
}

/* From the beginning of a region to `to`, and its completion by polling. */
static inline enum ibv_wc_status write_to(struct ibv_qp *qp, struct ibv_mr *from, size_t length,
				   void *to, struct ibv_mr *target)
{
	struct ibv_sge sge = { (uintptr_t)from->addr, length, from->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { (uintptr_t)to, target->rkey } };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	if (ibv_post_send(qp, &wr, &bad))
		return IBV_WC_GENERAL_ERR;
	while (!ibv_poll_cq(qp->send_cq, 1, &wc))
		continue;
	return wc.status;
}
