/*
 * Places in send queues. A request has its place until its completion is polled, or that of a later
 * one, as on an adapter: a program that posts until ENOMEM, then polls, cannot overrun a completion
 * queue that has room for its send queues. The engine itself is done with a place earlier.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include "internal.h"

#define LOCKS 16

/* Open addressing by queue pair number; number 0: never used, no queue pair: used before. */
static struct {
	struct owner {
		uint32_t number;
		struct vb_qp *qp;
	} *list;
	uint32_t mask;
	/* Of changes. */
	struct vb_lock lock;
} owners = { .lock = VB_LOCK_INITIALIZER };
/* A queue pair stays while its lock is held: threads poll completions of others meanwhile. */
static struct vb_lock locks[LOCKS] = { [0 ... LOCKS - 1] = VB_LOCK_INITIALIZER };

static struct vb_lock *lock_of(uint32_t number)
{
	return &locks[number % LOCKS];
}

static size_t list_bytes(void)
{
	return (owners.mask + 1ul) * sizeof *owners.list;
}

int vb_slots_begin(void)
{
	if (owners.list)
		vb_unmap(owners.list, list_bytes());
	uint32_t most = vb.hello[HELLO_MAX_QP];
	/* Half of the entries stay free. */
	owners.mask = (4u << (31 - __builtin_clz(most | 1))) - 1;
	owners.list = vb_map(NULL, list_bytes(), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (owners.list != MAP_FAILED)
		return 0;
	owners.list = NULL;
	return ENOMEM;
}

static uint32_t first_of(uint32_t number)
{
	return (number * 2654435761u) >> 8 & owners.mask;
}

/* The entry of that number; NULL: none. */
static struct owner *find(uint32_t number)
{
	uint32_t at = first_of(number);
	for (uint32_t i = 0; owners.list && i <= owners.mask; i++, at = (at + 1) & owners.mask) {
		uint32_t found = vb_load(&owners.list[at].number);
		if (found == number)
			return &owners.list[at];
		if (found == 0)
			return NULL;
	}
	return NULL;
}

void vb_slots_add(struct vb_qp *qp)
{
	uint32_t number = qp->qp.qp_base.qp_num, at = first_of(number);
	vb_lock(&owners.lock);
	/* That of a queue pair which had this number, and which another thread still destroys. */
	struct owner *same = find(number);
	if (same)
		at = same - owners.list;
	while (!same && owners.list[at].qp)
		at = (at + 1) & owners.mask;
	vb_lock(lock_of(number));
	owners.list[at].qp = qp;
	vb_store(&owners.list[at].number, number);
	vb_unlock(lock_of(number));
	vb_unlock(&owners.lock);
}

void vb_slots_remove(struct vb_qp *qp)
{
	uint32_t number = qp->qp.qp_base.qp_num;
	vb_lock(&owners.lock);
	struct owner *one = find(number);
	if (one && one->qp == qp) {
		vb_lock(lock_of(number));
		one->qp = NULL;
		vb_unlock(lock_of(number));
		/* At the end of a row of entries nothing is behind it. */
		uint32_t at = one - owners.list;
		while (!owners.list[at].qp && owners.list[at].number &&
		       !owners.list[(at + 1) & owners.mask].number) {
			vb_store(&owners.list[at].number, 0);
			at = (at - 1) & owners.mask;
		}
	}
	vb_unlock(&owners.lock);
}

static struct abi_work_request *slot_at(struct vb_qp *qp, uint32_t index)
{
	size_t place = (size_t)(index & (qp->rings.send_entries - 1)) * qp->rings.send_stride;
	return (struct abi_work_request *)((char *)vb_at(qp->rings.send_ring) +
					   ABI_RING_HEADER_BYTES + place);
}

/* A program that never asks for a completion has no more places, on an adapter as well. */
static void tell_unsignaled(struct vb_qp *qp, uint32_t polled, uint32_t head)
{
	static bool said;
	if (said)
		return;
	for (uint32_t at = polled; at != head; at++)
		if (qp->signals_all || slot_at(qp, at)->send_flags & IBV_SEND_SIGNALED)
			return;
	said = true;
	vb_complain("ibv_post_send: the send queue of %u requests is full, and none of them is "
		    "signaled, so that no completion makes room; set IBV_SEND_SIGNALED now and then "
		    "(ENOMEM)",
		    qp->rings.send_entries);
}

/* The entry `ahead` places behind the ring's head; NULL: the queue is full. */
struct abi_work_request *vb_send_slot(struct vb_qp *qp, uint32_t ahead)
{
	char *ring = vb_at(qp->rings.send_ring);
	uint32_t entries = qp->rings.send_entries, head = vb_load(ring) + ahead;
	if (entries == 0)
		return NULL;
	if (head - vb_load(&qp->polled) < entries)
		return slot_at(qp, head);
	vb_lock(lock_of(qp->qp.qp_base.qp_num));
	uint32_t polled = vb_load(&qp->polled), tail = vb_load(ring + ABI_RING_TAIL);
	/* A completion from before a reset was polled behind it. */
	if ((int32_t)(tail - polled) < 0)
		vb_store(&qp->polled, polled = tail);
	vb_unlock(lock_of(qp->qp.qp_base.qp_num));
	if (head - polled < entries)
		return slot_at(qp, head);
	tell_unsignaled(qp, polled, head);
	return NULL;
}

/* The queue pair was reset. */
void vb_slots_reset(struct vb_qp *qp)
{
	vb_lock(lock_of(qp->qp.qp_base.qp_num));
	vb_store(&qp->polled, vb_load((char *)vb_at(qp->rings.send_ring) + ABI_RING_TAIL));
	vb_unlock(lock_of(qp->qp.qp_base.qp_num));
}

/*
 * The request of the oldest completion leaves its place, and those before it do, which have none
 * unless they are flushed: each of those has a completion.
 */
static void leave_slots(struct vb_qp *qp, bool flushed)
{
	uint32_t polled = vb_load(&qp->polled);
	uint32_t tail = vb_load((char *)vb_at(qp->rings.send_ring) + ABI_RING_TAIL);
	bool last = false;
	/* Whatever lies there, if the queue pair is being destroyed. */
	for (uint32_t i = 0; !last && i < qp->rings.send_entries && (int32_t)(tail - polled) > 0; i++)
		last = slot_at(qp, polled++)->send_flags & IBV_SEND_SIGNALED || qp->signals_all || flushed;
	vb_store(&qp->polled, polled);
}

/* The program has this completion. */
void vb_slots_polled(const struct abi_work_completion *entry)
{
	if (entry->opcode & IBV_WC_RECV)
		return;
	vb_lock(lock_of(entry->qpn));
	struct owner *one = find(entry->qpn);
	if (one && one->qp)
		leave_slots(one->qp, entry->status == IBV_WC_WR_FLUSH_ERR);
	vb_unlock(lock_of(entry->qpn));
}
