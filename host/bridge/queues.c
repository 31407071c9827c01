/*
 * The data path: requests are written to the engine's rings and completions read from them, in
 * memory that the sidecar's engine has as well. One doorbell ring has all threads of the program as
 * producers, under a lock.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "faults.h"
#include "internal.h"
#include "turns.h"

/* Empty polls before a program with few processors sleeps for a moment: the sidecar needs one. */
#define VAIN_POLLS 8
/* Polls in vain between two looks whether the sidecar lives. */
#define LOOK_POLLS 1024
#define SLEEP_NANOSECONDS 100000

static struct vb_lock doorbell_lock = VB_LOCK_INITIALIZER;

/* ---- doorbells */

/*
 * ControlBlock.kick: the flag is set before the thread's last look, and read after the post. A direct
 * call: a thread that has the turn may not be cancelled here.
 */
void vb_kick(void)
{
	char *control = vb_at(vb.hello[HELLO_CONTROL]);
	__atomic_add_fetch((uint32_t *)(control + ABI_CONTROL_KICKS), 1, __ATOMIC_SEQ_CST);
	uint32_t *sleeping = (uint32_t *)(control + ABI_CONTROL_SLEEPING);
	if (vb_load(sleeping) && vb_exchange(sleeping, 0) == 1) {
		const uint64_t one = 1;
		int error = errno;
		syscall(SYS_write, vb.wake, &one, sizeof one);
		errno = error;
	}
}

/* The engine's assembly/transport/queue/doorbell.ts. */
static void ring_doorbell(uint32_t qp)
{
	const struct abi_context *context = vb_at(vb.hello[HELLO_CONTEXT]);
	uint32_t index = (qp - context->queue_pairs) / ABI_QUEUE_PAIR_STRIDE;
	/* A power of two: the last place is queue pair 1's. */
	uint32_t entries = 1u << (32 - __builtin_clz(context->queue_pairs_max));
	char *ring = vb_at(context->doorbells);
	uint32_t *first = (uint32_t *)(ring + ABI_RING_HEADER_BYTES);
	if (vb_exchange(first + entries + index, 1) == 0) {
		vb_lock(&doorbell_lock);
		uint32_t head = vb_load(ring);
		first[head & (entries - 1)] = index;
		vb_store(ring, head + 1);
		vb_unlock(&doorbell_lock);
	}
	if (!vb_turn_post())
		vb_kick();
}

uint32_t vb_qp_state(struct vb_qp *qp)
{
	return vb_load(vb_at(qp->address + offsetof(struct abi_queue_pair, state)));
}

/* ---- sends */

void vb_send_commit(struct vb_qp *qp, uint32_t count)
{
	if (count == 0)
		return;
	char *ring = vb_at(qp->rings.send_ring);
	vb_store(ring, vb_load(ring) + count);
	ring_doorbell(qp->address);
}

/* The engine's BindRequest is the same entry with other words. */
void vb_put_bind(struct abi_work_request *entry, uint32_t key, uint32_t target,
		 const struct ibv_mw_bind_info *info)
{
	struct abi_bind_request *bind = (struct abi_bind_request *)entry;
	bind->send_flags &= ~ABI_SEND_INLINE;
	bind->address = info->addr;
	bind->length = info->length;
	bind->memory = 0;
	bind->key = key;
	bind->target = target;
	bind->sge_count = 0;
	bind->inline_length = 0;
	bind->base = info->mr ? info->mr->lkey : 0;
	bind->access = info->mw_access_flags & ABI_ACCESS_FLAGS & ~IBV_ACCESS_LOCAL_WRITE;
}

static void put_sges(struct abi_sge *to, const struct ibv_sge *list, int count)
{
	for (int i = 0; i < count; i++)
		to[i] = (struct abi_sge){ list[i].addr, list[i].length, list[i].lkey };
}

/* The payload: entries of a list, or the bytes themselves. */
static int put_payload(struct vb_qp *qp, struct abi_work_request *entry,
		       const struct ibv_send_wr *wr)
{
	char *behind = (char *)entry + ABI_WORK_REQUEST_BYTES;
	entry->sge_count = 0;
	entry->inline_length = 0;
	if (wr->num_sge < 0)
		return EINVAL;
	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		if ((uint32_t)wr->num_sge > qp->rings.send_sge_max)
			return EINVAL;
		entry->sge_count = wr->num_sge;
		put_sges((struct abi_sge *)behind, wr->sg_list, wr->num_sge);
		return 0;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];
		if (sge->length > qp->rings.inline_max - entry->inline_length)
			return ENOMEM;
		memcpy(behind + entry->inline_length, (void *)(uintptr_t)sge->addr, sge->length);
		entry->inline_length += sge->length;
	}
	return 0;
}

static int put_send(struct vb_qp *qp, struct abi_work_request *entry, struct ibv_send_wr *wr)
{
	const unsigned flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |
			       IBV_SEND_INLINE;
	*entry = (struct abi_work_request){ .wr_id = wr->wr_id,
					    .opcode = wr->opcode,
					    .send_flags = wr->send_flags & flags };
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		entry->immediate = ntohl(wr->imm_data);
		/* fall through */
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		entry->remote_address = wr->wr.rdma.remote_addr;
		entry->key = wr->wr.rdma.rkey;
		break;
	case IBV_WR_SEND_WITH_IMM:
		entry->immediate = ntohl(wr->imm_data);
		break;
	case IBV_WR_SEND:
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		entry->key = wr->invalidate_rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		entry->remote_address = wr->wr.atomic.remote_addr;
		entry->key = wr->wr.atomic.rkey;
		entry->compare_add = wr->wr.atomic.compare_add;
		entry->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_BIND_MW:
		if (!wr->bind_mw.mw || wr->bind_mw.mw->type != IBV_MW_TYPE_2)
			return EINVAL;
		vb_put_bind(entry, wr->bind_mw.rkey, wr->bind_mw.mw->rkey, &wr->bind_mw.bind_info);
		wr->bind_mw.mw->rkey = wr->bind_mw.rkey;
		return 0;
	default:
		return EOPNOTSUPP;
	}
	if (qp->qp.qp_base.qp_type == IBV_QPT_UD) {
		if (!wr->wr.ud.ah)
			return EINVAL;
		entry->address_handle = ((struct vb_ah *)wr->wr.ud.ah)->address;
		entry->remote_qpn = wr->wr.ud.remote_qpn;
		entry->remote_qkey = wr->wr.ud.remote_qkey;
	}
	return put_payload(qp, entry, wr);
}

int vb_post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct vb_qp *qp = (struct vb_qp *)ibv_qp;
	uint32_t count = 0;
	int error = vb_fault_call(FAULT_POST_SEND, ibv_qp->qp_num);
	vb_lock(&qp->send_lock);
	if (!error && vb_qp_state(qp) < ABI_QP_STATE_RTS)
		error = EINVAL;
	for (; wr && !error; wr = wr->next) {
		struct abi_work_request *entry = vb_send_slot(qp, count);
		error = entry ? put_send(qp, entry, wr) : ENOMEM;
		if (error)
			break;
		count++;
	}
	vb_send_commit(qp, count);
	vb_unlock(&qp->send_lock);
	if (error)
		*bad = wr;
	return error;
}

int vb_bind_mw(struct ibv_qp *ibv_qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct vb_qp *qp = (struct vb_qp *)ibv_qp;
	if (mw->type != IBV_MW_TYPE_1)
		return EINVAL;
	vb_lock(&qp->send_lock);
	struct abi_work_request *entry = NULL;
	int error = vb_qp_state(qp) < ABI_QP_STATE_RTS ? EINVAL : 0;
	if (!error && !(entry = vb_send_slot(qp, 0)))
		error = ENOMEM;
	if (!error) {
		const unsigned flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
		uint32_t key = ibv_inc_rkey(mw->rkey);
		*entry = (struct abi_work_request){ .wr_id = bind->wr_id,
						    .opcode = IBV_WR_BIND_MW,
						    .send_flags = bind->send_flags & flags };
		vb_put_bind(entry, key, mw->rkey, &bind->bind_info);
		mw->rkey = key;
		vb_send_commit(qp, 1);
	}
	vb_unlock(&qp->send_lock);
	return error;
}

/* ---- receives */

struct receive_ring {
	uint32_t ring;
	uint32_t entries;
	uint32_t stride;
	uint32_t sge_max;
};

static int post_receives(const struct receive_ring *to, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	char *ring = vb_at(to->ring);
	uint32_t head = vb_load(ring), tail = vb_load(ring + ABI_RING_TAIL);
	int error = 0;
	for (; wr; wr = wr->next, head++) {
		if (head - tail >= to->entries)
			tail = vb_load(ring + ABI_RING_TAIL);
		if (head - tail >= to->entries)
			error = ENOMEM;
		else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > to->sge_max)
			error = EINVAL;
		if (error)
			break;
		size_t place = (size_t)(head & (to->entries - 1)) * to->stride;
		char *entry = ring + ABI_RING_HEADER_BYTES + place;
		*(struct abi_receive_request *)entry = (struct abi_receive_request){
			.wr_id = wr->wr_id, .sge_count = wr->num_sge
		};
		put_sges((struct abi_sge *)(entry + ABI_RECEIVE_REQUEST_BYTES), wr->sg_list,
			 wr->num_sge);
	}
	vb_store(ring, head);
	if (error)
		*bad = wr;
	return error;
}

int vb_post_recv(struct ibv_qp *ibv_qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_qp *qp = (struct vb_qp *)ibv_qp;
	const struct abi_queue_pair *rings = &qp->rings;
	const struct receive_ring to = { rings->receive_ring, rings->receive_entries,
					 rings->receive_stride, rings->receive_sge_max };
	int fault = vb_fault_call(FAULT_POST_RECV, ibv_qp->qp_num);
	if (!fault && (vb_qp_state(qp) == ABI_QP_STATE_RESET || ibv_qp->srq))
		fault = EINVAL;
	if (fault) {
		*bad = wr;
		return fault;
	}
	vb_lock(&qp->receive_lock);
	int error = post_receives(&to, wr, bad);
	vb_unlock(&qp->receive_lock);
	/* No message comes for it any more: the engine flushes it. */
	if (vb_qp_state(qp) == ABI_QP_STATE_ERR)
		ring_doorbell(qp->address);
	return error;
}

int vb_post_srq_recv(struct ibv_srq *ibv_srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct vb_srq *srq = (struct vb_srq *)ibv_srq;
	int fault = vb_fault_call(FAULT_POST_SRQ_RECV, 0);
	if (fault) {
		*bad = wr;
		return fault;
	}
	vb_lock(&srq->lock);
	const struct abi_shared_receive_queue *struct_ = vb_at(srq->address);
	const struct receive_ring to = { struct_->ring, struct_->entries, struct_->stride,
					 struct_->sge_max };
	int error = post_receives(&to, wr, bad);
	vb_unlock(&srq->lock);
	return error;
}

/* ---- completions */

/*
 * Polls in vain of this thread since a turn of the engine: each completion is made in one. A thread
 * that polls queues by turns has looked at all of them before it sleeps.
 */
static __thread struct {
	uint32_t turns;
	unsigned polls;
	unsigned all;
} vain __attribute__((tls_model("initial-exec")));

/* With few processors: sleeps until a turn that has done something, but not for long. */
static void sleep_until_turn(uint32_t seen)
{
	char *control = vb_at(vb.hello[HELLO_CONTROL]);
	const struct timespec most = { 0, SLEEP_NANOSECONDS };
	/* Before the word is read again: ControlBlock.countTurn adds first, then looks at pollers. */
	vb_store(control + ABI_CONTROL_POLLERS, 1);
	syscall(SYS_futex, control + ABI_CONTROL_TURNS, FUTEX_WAIT, seen, &most, NULL, 0);
}

/* Nothing comes any more: no process makes turns. */
static bool is_dead(void)
{
	static bool said;
	if (vb_makes_turns() || vb_sidecar_lives())
		return false;
	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		vb_complain("the process that has the device has ended, and queues stay empty; "
			    "start the program again");
	return true;
}

/*
 * A poll that began when the engine had made `turns` turns has found nothing. False: and no poll
 * will.
 */
static bool pause_after(uint32_t turns)
{
	if (++vain.all % LOOK_POLLS == 0 && is_dead())
		return false;
	if (!vb.few_processors) {
		__builtin_ia32_pause();
		return true;
	}
	if (vb_makes_turns()) {
		sched_yield();
		return true;
	}
	if (vain.turns != turns)
		vain.polls = 0;
	vain.turns = turns;
	if (++vain.polls <= VAIN_POLLS)
		sched_yield();
	else
		sleep_until_turn(turns);
	return true;
}

bool vb_poll_pause(uint32_t turns)
{
	int error = errno;
	bool lives = pause_after(turns);
	errno = error;
	return lives;
}

uint32_t vb_turns(void)
{
	return vb_load(vb_at(vb.hello[HELLO_CONTROL] + ABI_CONTROL_TURNS));
}

static void put_completion(struct ibv_wc *wc, const struct abi_work_completion *entry)
{
	*wc = (struct ibv_wc){
		.wr_id = entry->wr_id,
		.status = vb_fault_status(entry->status, entry->qpn),
		.opcode = entry->opcode,
		.vendor_err = entry->vendor_error,
		.byte_len = entry->byte_length,
		.qp_num = entry->qpn,
		.src_qp = entry->source_qp,
		.wc_flags = entry->flags,
		/* RoCE v2 over IPv4 in mlx5's way, which UCX asks for. */
		.sl = entry->flags & IBV_WC_GRH ? 0xa : 0,
	};
	if (entry->flags & IBV_WC_WITH_INV)
		wc->invalidated_rkey = entry->immediate;
	else
		wc->imm_data = htonl(entry->immediate);
}

void vb_tell_overflow(const struct abi_completion_queue *queue)
{
	static bool said;
	if (vb_load(&queue->dead) && !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		vb_complain("ibv_poll_cq: a completion queue of %u entries has overflowed, so completions "
			    "are lost and its queue pairs are in error; create it with as many entries "
			    "as requests can be under way",
			    queue->entries);
}

static int take_completions(struct vb_cq *cq, int count, struct ibv_wc *wc)
{
	int taken = 0;
	vb_lock(&cq->lock);
	const struct abi_completion_queue *queue = vb_at(cq->address);
	uint32_t entries = queue->entries;
	char *ring = vb_at(queue->ring);
	uint32_t head = vb_load(ring), tail = vb_load(ring + ABI_RING_TAIL);
	vb_tell_overflow(queue);
	/* Words of memory that another process has as well: never more than there are places. */
	if (head - tail > entries)
		tail = head - entries;
	for (; taken < count && tail != head; tail++) {
		size_t place = (size_t)(tail & (entries - 1)) * ABI_WORK_COMPLETION_BYTES;
		const struct abi_work_completion *entry =
			(void *)(ring + ABI_RING_HEADER_BYTES + place);
		/* Number 0: its queue pair was reset or destroyed. */
		if (entry->qpn == 0)
			continue;
		const struct abi_work_completion copy = *entry;
		put_completion(&wc[taken++], &copy);
		/* Its place here first: a thread that has the request's place may post at once. */
		vb_store(ring + ABI_RING_TAIL, tail + 1);
		vb_slots_polled(&copy);
	}
	if (entries > 0)
		vb_store(ring + ABI_RING_TAIL, tail);
	vb_unlock(&cq->lock);
	return taken;
}

int vb_poll_cq(struct ibv_cq *ibv_cq, int count, struct ibv_wc *wc)
{
	struct vb_cq *cq = (struct vb_cq *)ibv_cq;
	int fault = vb_fault_call(FAULT_POLL_CQ, 0);
	if (fault)
		return -fault;
	uint32_t turns = vb_turns();
	int taken = take_completions(cq, count, wc);
	if (taken != 0 || count <= 0)
		return taken;
	if (vb_turn_poll())
		taken = take_completions(cq, count, wc);
	if (taken == 0) {
		vb_turn_settle();
		if (!vb_poll_pause(turns))
			return -EIO;
	}
	return taken;
}

int vb_req_notify_cq(struct ibv_cq *ibv_cq, int solicited_only)
{
	struct vb_cq *cq = (struct vb_cq *)ibv_cq;
	uint32_t *armed = vb_at(cq->address + offsetof(struct abi_completion_queue, armed));
	uint32_t none = ABI_CQ_NOTIFY_NONE;
	int fault = vb_fault_call(FAULT_REQ_NOTIFY_CQ, 0);
	if (fault)
		return fault;
	/* Armed for all stays armed for all (IBA 11.4.2.2). */
	if (solicited_only)
		__atomic_compare_exchange_n(armed, &none, ABI_CQ_NOTIFY_SOLICITED, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	else
		vb_store(armed, ABI_CQ_NOTIFY_ANY);
	vb_turn_follow();
	return 0;
}
