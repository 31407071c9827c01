/*
 * Memory windows of both types: each request completes once, and the window is what the last bind
 * says. Prints one line per part.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include "check.h"
#include "loopback.h"

#define BYTES 8192
#define HALF (BYTES / 2)

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static char memory[BYTES] __attribute__((aligned(4096)));
static char page[HALF] __attribute__((aligned(4096)));
static struct ibv_mr *mr;
static struct ibv_mr *source;

static struct ibv_mw_bind_info part(size_t at, size_t length)
{
	return (struct ibv_mw_bind_info){ .mr = mr,
					  .addr = (uintptr_t)memory + at,
					  .length = length,
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
}

/* The next completion. */
static struct ibv_wc completion(void)
{
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		continue;
	return wc;
}

static const char *write_by(uint32_t key, size_t at)
{
	struct ibv_mr window = { .rkey = key };
	enum ibv_wc_status status = write_to(qp, source, 8, memory + at, &window);
	if (status == IBV_WC_SUCCESS)
		return "written";
	/* The queue pair is the responder, too: the error has ended it. */
	CHECK(!ibv_destroy_qp(qp));
	qp = loopback(pd, cq);
	CHECK(qp);
	return "refused";
}

static void type_1(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	CHECK(mw);
	struct ibv_mw_bind bind = { .wr_id = 77,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = part(0, HALF) };
	CHECK(!ibv_bind_mw(qp, mw, &bind));
	struct ibv_wc wc = completion();
	printf("type 1: %s, request %lu, opcode %d; ", ibv_wc_status_str(wc.status), wc.wr_id,
	       wc.opcode == IBV_WC_BIND_MW);
	printf("%s, ", write_by(mw->rkey, 8));
	printf("beyond %s; ", write_by(mw->rkey, HALF));
	uint32_t first = mw->rkey;
	bind = (struct ibv_mw_bind){ .wr_id = 78, .bind_info = part(HALF, HALF) };
	CHECK(!ibv_bind_mw(qp, mw, &bind));
	/* Its completion is the WRITE's: the bind is not signaled. */
	printf("bound again: %s, ", write_by(mw->rkey, HALF));
	printf("old key %s, ", write_by(first, 8));
	printf("old part %s; ", write_by(mw->rkey, 8));
	bind = (struct ibv_mw_bind){ .wr_id = 79, .send_flags = IBV_SEND_SIGNALED };
	CHECK(!ibv_bind_mw(qp, mw, &bind));
	wc = completion();
	printf("of no bytes: request %lu, %s\n", wc.wr_id, write_by(mw->rkey, HALF));
	CHECK(!ibv_dealloc_mw(mw));
}

static void type_2(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mw);
	struct ibv_send_wr *bad, wr = { .wr_id = 5,
					.opcode = IBV_WR_BIND_MW,
					.send_flags = IBV_SEND_SIGNALED,
					.bind_mw = { mw, ibv_inc_rkey(mw->rkey), part(0, HALF) } };
	CHECK(!ibv_post_send(qp, &wr, &bad));
	struct ibv_wc wc = completion();
	uint32_t key = mw->rkey;
	printf("type 2: %s, request %lu, opcode %d; %s; ", ibv_wc_status_str(wc.status), wc.wr_id,
	       wc.opcode == IBV_WC_BIND_MW, write_by(key, 8));
	wr = (struct ibv_send_wr){ .wr_id = 6,
				   .opcode = IBV_WR_LOCAL_INV,
				   .send_flags = IBV_SEND_SIGNALED,
				   .invalidate_rkey = key };
	CHECK(!ibv_post_send(qp, &wr, &bad));
	wc = completion();
	printf("invalidated: request %lu, %s; by ibv_bind_mw: %s\n", wc.wr_id, write_by(key, 8),
	       ibv_bind_mw(qp, mw, &(struct ibv_mw_bind){ .bind_info = part(0, 8) }) == EINVAL ?
		       "EINVAL" :
		       "?");
	CHECK(!ibv_dealloc_mw(mw));
}

static void extended(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { 8, 8, 2, 2, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
				  IBV_QP_EX_WITH_RDMA_WRITE
	};
	CHECK(!ibv_destroy_qp(qp));
	qp = ibv_create_qp_ex(pd->context, &init);
	CHECK(qp && !connect_to_itself(qp));
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = part(HALF, HALF);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	ibv_wr_start(ex);
	ex->wr_id = 11;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, key, &info);
	ex->wr_id = 12;
	ibv_wr_rdma_write(ex, key, (uintptr_t)memory + HALF);
	ibv_wr_set_sge(ex, source->lkey, (uintptr_t)page, 8);
	ex->wr_id = 13;
	ibv_wr_local_inv(ex, key);
	CHECK(!ibv_wr_complete(ex));
	printf("ibv_wr_bind_mw:");
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = completion();
		printf(" %lu %s", wc.wr_id, ibv_wc_status_str(wc.status));
	}
	printf(", %s\n", write_by(key, HALF));
	CHECK(!ibv_dealloc_mw(mw));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list[0] ? ibv_open_device(list[0]) : NULL;
	CHECK(context);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	qp = loopback(pd, cq);
	CHECK(qp);
	mr = ibv_reg_mr(pd, memory, BYTES, ACCESS | IBV_ACCESS_MW_BIND);
	source = ibv_reg_mr(pd, page, HALF, ACCESS);
	CHECK(mr && source);
	type_1();
	type_2();
	extended();
	struct ibv_wc wc;
	printf("left: %d\n", ibv_poll_cq(cq, 1, &wc));
	return 0;
}
