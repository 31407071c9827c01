/*
 * One side of a conversation over Debian's librpma: `rpma server|client ADDR PORT [flush-only]`. The
 * server has 4096 bytes and sends their address in its private data; `flush-only`: without the usage
 * bit of a readable region; librpma 1.2 still allows the READ. The client reads 64 of them at 1024,
 * writes a sentence at 64 and flushes it, sets the word at 8 by an atomic write and flushes that,
 * then sends a number and gets it back plus one.
 */
#include <inttypes.h>
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 4096
#define SAID_AT 1024
#define HEARD_AT 64
#define WORD_AT 8
#define TEXT 64
#define SEND_AT 2048
#define RECV_AT 2056

struct told {
	uint16_t offset;
	uint8_t mr_size;
	uint8_t pcfg_size;
	char descriptors[24];
};

static char memory[BYTES] __attribute__((aligned(4096)));

static void must(int ret, const char *what)
{
	if (!ret)
		return;
	fprintf(stderr, "%s: %s\n", what, rpma_err_2str(ret));
	exit(1);
}

static void expect(struct rpma_conn *conn, enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;
	must(rpma_conn_next_event(conn, &event), "next_event");
	if (event == wanted)
		return;
	fprintf(stderr, "event: %s\n", rpma_utils_conn_event_2str(event));
	exit(1);
}

/* The next completion of that kind; others before it are fine, failures are not. */
static void complete(struct rpma_cq *cq, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;
	for (;;) {
		int ret = rpma_cq_get_wc(cq, 1, &wc, NULL);
		if (ret == RPMA_E_NO_COMPLETION) {
			must(rpma_cq_wait(cq), "cq_wait");
			continue;
		}
		must(ret, "get_wc");
		if (wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "status %d of operation %d\n", wc.status, wc.opcode);
			exit(1);
		}
		if (wc.opcode == opcode)
			return;
	}
}

static uint64_t *word(int at)
{
	return (uint64_t *)(memory + at);
}

static int is_flush_only;

static void serve(struct rpma_peer *peer, const char *addr, const char *port)
{
	struct rpma_ep *ep;
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_mr_local *mr;
	struct rpma_cq *cq;
	struct told told = {0};
	size_t size;
	int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST |
		RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV;
	if (is_flush_only)
		usage &= ~RPMA_MR_USAGE_READ_SRC;
	strcpy(memory + SAID_AT, "said by librpma");
	must(rpma_mr_reg(peer, memory, BYTES, usage, &mr), "mr_reg");
	must(rpma_mr_get_descriptor_size(mr, &size), "descriptor_size");
	told.mr_size = size;
	must(rpma_mr_get_descriptor(mr, told.descriptors), "descriptor");
	must(rpma_ep_listen(peer, addr, port, &ep), "listen");
	printf("listening\n");
	struct rpma_conn_private_data data = {&told, sizeof(told)};
	must(rpma_ep_next_conn_req(ep, NULL, &req), "next_conn_req");
	must(rpma_conn_req_recv(req, mr, RECV_AT, 8, NULL), "req_recv");
	must(rpma_conn_req_connect(&req, &data, &conn), "connect");
	expect(conn, RPMA_CONN_ESTABLISHED);
	must(rpma_conn_get_cq(conn, &cq), "get_cq");
	complete(cq, IBV_WC_RECV);
	printf("heard '%s', word %" PRIx64 ", number %" PRIu64 "\n", memory + HEARD_AT,
		*word(WORD_AT), *word(RECV_AT));
	*word(SEND_AT) = *word(RECV_AT) + 1;
	must(rpma_send(conn, mr, SEND_AT, 8, RPMA_F_COMPLETION_ALWAYS, NULL), "send");
	complete(cq, IBV_WC_SEND);
	expect(conn, RPMA_CONN_CLOSED);
	rpma_conn_disconnect(conn);
	must(rpma_conn_delete(&conn), "conn_delete");
	must(rpma_mr_dereg(&mr), "mr_dereg");
	must(rpma_ep_shutdown(&ep), "shutdown");
}

static void ask(struct rpma_peer *peer, const char *addr, const char *port)
{
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote;
	struct rpma_conn_private_data data;
	struct rpma_cq *cq;
	struct told *told;
	union {
		uint64_t number;
		char bytes[8];
	} value = {0x1122334455667788};
	int usage = RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND |
		RPMA_MR_USAGE_RECV;
	const int on_error = RPMA_F_COMPLETION_ON_ERROR, always = RPMA_F_COMPLETION_ALWAYS;
	const enum rpma_flush_type visible = RPMA_FLUSH_TYPE_VISIBILITY;
	must(rpma_mr_reg(peer, memory, BYTES, usage, &mr), "mr_reg");
	must(rpma_conn_req_new(peer, addr, port, NULL, &req), "conn_req_new");
	must(rpma_conn_req_recv(req, mr, RECV_AT, 8, NULL), "req_recv");
	must(rpma_conn_req_connect(&req, NULL, &conn), "connect");
	expect(conn, RPMA_CONN_ESTABLISHED);
	must(rpma_conn_get_private_data(conn, &data), "private_data");
	if (data.len < sizeof(*told))
		must(RPMA_E_INVAL, "private data");
	told = data.ptr;
	must(rpma_mr_remote_from_descriptor(told->descriptors, told->mr_size, &remote), "remote");
	must(rpma_conn_get_cq(conn, &cq), "get_cq");
	must(rpma_read(conn, mr, SAID_AT, remote, SAID_AT, TEXT, always, NULL), "read");
	complete(cq, IBV_WC_RDMA_READ);
	strcpy(memory + HEARD_AT, "written by librpma");
	must(rpma_write(conn, remote, HEARD_AT, mr, HEARD_AT, TEXT, on_error, NULL), "write");
	must(rpma_flush(conn, remote, HEARD_AT, TEXT, visible, on_error, NULL), "flush");
	must(rpma_atomic_write(conn, remote, WORD_AT, value.bytes, on_error, NULL), "atomic_write");
	must(rpma_flush(conn, remote, WORD_AT, 8, visible, on_error, NULL), "flush");
	*word(SEND_AT) = 41;
	must(rpma_send(conn, mr, SEND_AT, 8, on_error, NULL), "send");
	complete(cq, IBV_WC_RECV);
	printf("read '%s', answer %" PRIu64 "\n", memory + SAID_AT, *word(RECV_AT));
	must(rpma_conn_disconnect(conn), "disconnect");
	expect(conn, RPMA_CONN_CLOSED);
	must(rpma_conn_delete(&conn), "conn_delete");
	must(rpma_mr_remote_delete(&remote), "remote_delete");
	must(rpma_mr_dereg(&mr), "mr_dereg");
}

int main(int argc, char *argv[])
{
	struct ibv_context *context;
	struct rpma_peer *peer;
	is_flush_only = argc == 5 && !strcmp(argv[4], "flush-only");
	if (argc != 4 && !is_flush_only) {
		fprintf(stderr, "usage: rpma server|client ADDR PORT [flush-only]\n");
		return 2;
	}
	int is_server = !strcmp(argv[1], "server");
	setvbuf(stdout, NULL, _IOLBF, 0);
	must(rpma_utils_get_ibv_context(argv[2],
		is_server ? RPMA_UTIL_IBV_CONTEXT_LOCAL : RPMA_UTIL_IBV_CONTEXT_REMOTE,
		&context), "get_ibv_context");
	must(rpma_peer_new(context, &peer), "peer_new");
	(is_server ? serve : ask)(peer, argv[2], argv[3]);
	must(rpma_peer_delete(&peer), "peer_delete");
	return 0;
}
