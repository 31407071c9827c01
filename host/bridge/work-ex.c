/* ibv_wr_* (work requests without a list) and ibv_cq_ex (completions without a struct). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include "faults.h"
#include "internal.h"
#include "turns.h"

/* ---- ibv_wr_*: the lock is held from start to complete or abort */

static struct vb_qp *qp_of(struct ibv_qp_ex *qp)
{
	return (struct vb_qp *)qp;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct vb_qp *qp = qp_of(ex);
	vb_lock(&qp->send_lock);
	qp->batch = 0;
	qp->batch_error = vb_qp_state(qp) < ABI_QP_STATE_RTS ? EINVAL : 0;
	qp->current = &qp->scratch;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct vb_qp *qp = qp_of(ex);
	int error = qp->batch_error;
	if (!error)
		error = vb_fault_call(FAULT_POST_SEND, qp->qp.qp_base.qp_num);
	if (!error)
		vb_send_commit(qp, qp->batch);
	vb_unlock(&qp->send_lock);
	return error;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	vb_unlock(&qp_of(ex)->send_lock);
}

static void fail_batch(struct vb_qp *qp, int error)
{
	if (!qp->batch_error)
		qp->batch_error = error;
}

/* The next entry. After an error it is a scratch entry, which is never posted. */
static struct abi_work_request *begin(struct ibv_qp_ex *ex, uint32_t opcode, uint32_t key,
				      uint64_t remote)
{
	const unsigned flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	struct vb_qp *qp = qp_of(ex);
	struct abi_work_request *entry = qp->batch_error ? NULL : vb_send_slot(qp, qp->batch);
	if (entry)
		qp->batch++;
	else
		fail_batch(qp, ENOMEM);
	qp->current = entry ? entry : &qp->scratch;
	*qp->current = (struct abi_work_request){ .wr_id = ex->wr_id,
						  .opcode = opcode,
						  .send_flags = ex->wr_flags & flags,
						  .key = key,
						  .remote_address = remote };
	return qp->current;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote,
			      uint64_t compare, uint64_t swap)
{
	struct abi_work_request *entry = begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote);
	entry->compare_add = compare;
	entry->swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, uint64_t add)
{
	begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote)->compare_add = add;
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	begin(qp, IBV_WR_LOCAL_INV, rkey, 0);
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote)
{
	begin(qp, IBV_WR_RDMA_READ, rkey, remote);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote)
{
	begin(qp, IBV_WR_RDMA_WRITE, rkey, remote);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, __be32 imm)
{
	begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote)->immediate = ntohl(imm);
}

static void wr_send(struct ibv_qp_ex *qp)
{
	begin(qp, IBV_WR_SEND, 0, 0);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	begin(qp, IBV_WR_SEND_WITH_IMM, 0, 0)->immediate = ntohl(imm);
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	begin(qp, IBV_WR_SEND_WITH_INV, rkey, 0);
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	vb_put_bind(begin(qp, IBV_WR_BIND_MW, 0, 0), rkey, mw->rkey, info);
	if (!qp_of(qp)->batch_error)
		mw->rkey = rkey;
}

static bool is_scratch(struct vb_qp *qp)
{
	return qp->current == &qp->scratch;
}

static char *payload_of(struct vb_qp *qp)
{
	return (char *)qp->current + ABI_WORK_REQUEST_BYTES;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t count,
				    const struct ibv_data_buf *list)
{
	struct vb_qp *qp = qp_of(ex);
	uint32_t length = 0;
	if (is_scratch(qp))
		return;
	for (size_t i = 0; i < count; i++) {
		if (list[i].length > qp->rings.inline_max - length) {
			fail_batch(qp, ENOMEM);
			return;
		}
		memcpy(payload_of(qp) + length, list[i].addr, list[i].length);
		length += list[i].length;
	}
	qp->current->inline_length = length;
	qp->current->send_flags |= ABI_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *address, size_t length)
{
	const struct ibv_data_buf one = { address, length };
	wr_set_inline_data_list(qp, 1, &one);
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote,
			    const void *value)
{
	begin(ex, IBV_WR_ATOMIC_WRITE, rkey, remote);
	wr_set_inline_data(ex, (void *)value, 8);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct vb_qp *qp = qp_of(ex);
	if (is_scratch(qp))
		return;
	if (count > qp->rings.send_sge_max) {
		fail_batch(qp, EINVAL);
		return;
	}
	struct abi_sge *to = (struct abi_sge *)payload_of(qp);
	for (size_t i = 0; i < count; i++)
		to[i] = (struct abi_sge){ list[i].addr, list[i].length, list[i].lkey };
	qp->current->sge_count = count;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length)
{
	const struct ibv_sge one = { address, length, lkey };
	wr_set_sge_list(qp, 1, &one);
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct abi_work_request *entry = qp_of(qp)->current;
	entry->address_handle = ((struct vb_ah *)ah)->address;
	entry->remote_qpn = qpn;
	entry->remote_qkey = qkey;
}

/* Of queue pairs without ibv_qp_ex operations that the device does not have. */
static void wr_send_tso(struct ibv_qp_ex *qp, void *header, uint16_t size, uint16_t mss)
{
	begin(qp, IBV_WR_TSO, 0, 0);
	fail_batch(qp_of(qp), EOPNOTSUPP);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t number)
{
	fail_batch(qp_of(qp), EOPNOTSUPP);
}

void vb_qp_ex_init(struct ibv_qp_ex *qp)
{
	qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
	qp->wr_bind_mw = wr_bind_mw;
	qp->wr_local_inv = wr_local_inv;
	qp->wr_rdma_read = wr_rdma_read;
	qp->wr_rdma_write = wr_rdma_write;
	qp->wr_rdma_write_imm = wr_rdma_write_imm;
	qp->wr_send = wr_send;
	qp->wr_send_imm = wr_send_imm;
	qp->wr_send_inv = wr_send_inv;
	qp->wr_send_tso = wr_send_tso;
	qp->wr_set_ud_addr = wr_set_ud_addr;
	qp->wr_set_xrc_srqn = wr_set_xrc_srqn;
	qp->wr_set_inline_data = wr_set_inline_data;
	qp->wr_set_inline_data_list = wr_set_inline_data_list;
	qp->wr_set_sge = wr_set_sge;
	qp->wr_set_sge_list = wr_set_sge_list;
	qp->wr_start = wr_start;
	qp->wr_complete = wr_complete;
	qp->wr_abort = wr_abort;
	qp->wr_atomic_write = wr_atomic_write;
}

VB_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return ((struct vb_qp *)qp)->extended ? (struct ibv_qp_ex *)qp : NULL;
}

/* ---- ibv_cq_ex: the lock is held from start_poll to end_poll */

static struct vb_cq *cq_of(struct ibv_cq_ex *cq)
{
	return (struct vb_cq *)cq;
}

static char *ring_of(struct vb_cq *cq, uint32_t *entries)
{
	const struct abi_completion_queue *queue = vb_at(cq->address);
	*entries = queue->entries;
	return vb_at(queue->ring);
}

/* The completion at cq->tail or the next one of a living queue pair. ENOENT: no completion. */
static int load_completion(struct vb_cq *cq)
{
	uint32_t entries;
	char *ring = ring_of(cq, &entries);
	uint32_t head = vb_load(ring);
	vb_tell_overflow(vb_at(cq->address));
	if (head - cq->tail > entries)
		cq->tail = head - entries;
	for (; cq->tail != head; cq->tail++) {
		size_t place = (size_t)(cq->tail & (entries - 1)) * ABI_WORK_COMPLETION_BYTES;
		const struct abi_work_completion *entry =
			(void *)(ring + ABI_RING_HEADER_BYTES + place);
		if (entry->qpn == 0)
			continue;
		cq->current = *entry;
		vb_store(ring + ABI_RING_TAIL, cq->tail + 1);
		vb_slots_polled(&cq->current);
		cq->cq.wr_id = entry->wr_id;
		cq->cq.status = vb_fault_status(entry->status, entry->qpn);
		return 0;
	}
	return ENOENT;
}

/* The queue stays locked if it has a completion. */
static int begin_poll(struct vb_cq *cq)
{
	uint32_t entries;
	vb_lock(&cq->lock);
	cq->tail = vb_load(ring_of(cq, &entries) + ABI_RING_TAIL);
	int error = load_completion(cq);
	if (error) {
		/* Those of a destroyed queue pair leave their places. */
		vb_store(ring_of(cq, &entries) + ABI_RING_TAIL, cq->tail);
		vb_unlock(&cq->lock);
	}
	return error;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct vb_cq *cq = cq_of(ex);
	if (attr->comp_mask)
		return EINVAL;
	int fault = vb_fault_call(FAULT_POLL_CQ, 0);
	if (fault)
		return fault;
	uint32_t turns = vb_turns();
	int error = begin_poll(cq);
	if (error && vb_turn_poll())
		error = begin_poll(cq);
	if (error) {
		vb_turn_settle();
		if (!vb_poll_pause(turns))
			return EIO;
	}
	return error;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct vb_cq *cq = cq_of(ex);
	cq->tail++;
	int error = load_completion(cq);
	/* end_poll moves the ring's tail behind the last one that was read. */
	if (error)
		cq->tail--;
	return error;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	struct vb_cq *cq = cq_of(ex);
	uint32_t entries;
	vb_store(ring_of(cq, &entries) + ABI_RING_TAIL, cq->tail + 1);
	vb_unlock(&cq->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return cq_of(cq)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return cq_of(cq)->current.vendor_error;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return cq_of(cq)->current.byte_length;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	const struct abi_work_completion *now = &cq_of(cq)->current;
	return now->flags & IBV_WC_WITH_INV ? now->immediate : htonl(now->immediate);
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return cq_of(cq)->current.qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return cq_of(cq)->current.source_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return cq_of(cq)->current.flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return 0;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return 0;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return 0;
}

/* The clock of ibv_query_rt_values_ex: nanoseconds. */
static uint64_t read_completion_ts(struct ibv_cq_ex *cq)
{
	return cq_of(cq)->current.timestamp * 1000;
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	struct timespec monotonic, wall;
	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	clock_gettime(CLOCK_REALTIME, &wall);
	int64_t ahead = (wall.tv_sec - monotonic.tv_sec) * 1000000000ll + wall.tv_nsec -
			monotonic.tv_nsec;
	return read_completion_ts(cq) + ahead;
}

static uint16_t read_cvlan(struct ibv_cq_ex *cq)
{
	return 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *cq)
{
	return 0;
}

static void read_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *info)
{
	memset(info, 0, sizeof *info);
}

struct ibv_cq_ex *vb_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t known = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			       IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	const uint32_t mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	if (attr->wc_flags & ~known || attr->comp_mask & ~mask)
		return vb_null(EOPNOTSUPP);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	    attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
		return vb_null(EOPNOTSUPP);
	struct ibv_cq *made = ibv_create_cq(context, attr->cqe, attr->cq_context, attr->channel,
					    attr->comp_vector);
	if (!made)
		return NULL;
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)made;
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_slid;
	cq->read_sl = read_sl;
	cq->read_dlid_path_bits = read_dlid_path_bits;
	cq->read_completion_ts = read_completion_ts;
	cq->read_completion_wallclock_ns = read_completion_wallclock_ns;
	cq->read_cvlan = read_cvlan;
	cq->read_flow_tag = read_flow_tag;
	cq->read_tm_info = read_tm_info;
	return cq;
}
