/*
 * Sends the packets of librpma 1.3 on an adapter with FLUSH and ATOMIC WRITE: Debian's librpma 1.2
 * has neither. Connections, descriptors and usage bits are librpma's; a region for flushes has
 * FLUSH access and no READ access.
 *
 *     rpma-native server ADDRESS PORT            4096 bytes of memory, which may be made visible
 *     rpma-native server-persistent ADDRESS PORT the same of /dev/dax0.0, which may be made persistent
 *     rpma-native client ADDRESS PORT            flushes as the server's descriptor allows
 *
 * The client writes a sentence at 64 and flushes it, sets the word at 8 by an atomic write and
 * flushes that, then sends a number and gets it back plus one.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_user_rxe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES 4096
#define DAX_BYTES (2 << 20)
#define HEARD_AT 64
#define WORD_AT 8
#define TEXT 64
/* Messages have memory of their own: the flushed memory may be persistent memory. */
#define SEND_AT 0
#define RECV_AT 8
#define SENTENCE_AT 64
#define MESSAGES 4096
/* RPMA_MR_USAGE_… */
#define USAGE_WRITE_DST 8
#define USAGE_FLUSH_VISIBILITY 16
#define USAGE_FLUSH_PERSISTENT 32
/* IBV_ACCESS_FLUSH_…, IB_FLUSH_… and enum ib_uverbs_wr_opcode: later than this libibverbs. */
#define ACCESS_FLUSH_GLOBAL (1 << 8)
#define ACCESS_FLUSH_PERSISTENT (1 << 9)
#define FLUSH_GLOBAL 1
#define FLUSH_PERSISTENT 2
#define FLUSH_RANGE 0
#define WR_FLUSH 14
#define WR_ATOMIC_WRITE 15
/* No other work request has it. */
#define PLACE_ID 0x5eed0fa11ace1d00ull

struct descriptor {
  uint64_t address;
  uint64_t length;
  uint32_t rkey;
  uint8_t usage;
} __attribute__((packed));

struct told {
  uint16_t offset;
  uint8_t mr_size;
  uint8_t pcfg_size;
  struct descriptor mr;
  uint8_t direct_write_to_pmem;
  uint8_t rest[2];
} __attribute__((packed));

static struct rdma_event_channel *channel;
static struct ibv_cq *cq;
static char messages[MESSAGES] __attribute__((aligned(4096)));
static char dram[BYTES] __attribute__((aligned(4096)));
static struct ibv_mr *message_mr;

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static void must(int code, const char *what) {
  if (!code) return;
  if (code > 0) errno = code;
  fail(what);
}

/* Waits for an event of that kind; checks the length of its private data; returns its id. */
static struct rdma_cm_id *expect(enum rdma_cm_event_type wanted, void *data, size_t bytes) {
  struct rdma_cm_event *event;
  must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  if (event->event != wanted) {
    fprintf(stderr, "%s, not %s, status %d\n", rdma_event_str(event->event),
            rdma_event_str(wanted), event->status);
    exit(1);
  }
  if (data) {
    if (event->param.conn.private_data_len < bytes) must(EPROTO, "private data");
    memcpy(data, event->param.conn.private_data, bytes);
  }
  struct rdma_cm_id *id = event->id;
  must(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  return id;
}

static void prepare(struct rdma_cm_id *id) {
  if (!(cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0))) fail("ibv_create_cq");
  struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
  if (!pd) fail("ibv_alloc_pd");
  struct ibv_qp_init_attr_ex attr = {
      .send_cq = cq,
      .recv_cq = cq,
      .cap = {.max_send_wr = 10, .max_recv_wr = 10, .max_send_sge = 1, .max_recv_sge = 1,
              .max_inline_data = 8},
      .qp_type = IBV_QPT_RC,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = pd,
      .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND,
  };
  must(rdma_create_qp_ex(id, &attr), "rdma_create_qp_ex");
  message_mr = ibv_reg_mr(pd, messages, MESSAGES, IBV_ACCESS_LOCAL_WRITE);
  if (!message_mr) fail("ibv_reg_mr");
  struct ibv_sge sge = {(uintptr_t)messages + RECV_AT, 8, message_mr->lkey};
  struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
  must(ibv_post_recv(id->qp, &wr, &bad), "ibv_post_recv");
}

static struct rdma_conn_param param(void *data, size_t bytes) {
  return (struct rdma_conn_param){
      .private_data = data,
      .private_data_len = bytes,
      .responder_resources = RDMA_MAX_RESP_RES,
      .initiator_depth = RDMA_MAX_INIT_DEPTH,
      .flow_control = 1,
      .retry_count = 7,
      .rnr_retry_count = 7,
  };
}

/* Waits for a completion of that kind; ignores others before it; a failure ends the program. */
static void complete(enum ibv_wc_opcode opcode) {
  struct ibv_wc wc;
  for (;;) {
    int count = ibv_poll_cq(cq, 1, &wc);
    if (count < 0) fail("ibv_poll_cq");
    if (count == 0) continue;
    if (wc.status != IBV_WC_SUCCESS) {
      fprintf(stderr, "request %" PRIu64 ": %s\n", wc.wr_id, ibv_wc_status_str(wc.status));
      exit(1);
    }
    if (wc.opcode == opcode) return;
  }
}

static void post(struct rdma_cm_id *id, int opcode, size_t at, uint32_t length, uint64_t remote,
                 uint32_t rkey) {
  struct ibv_sge sge = {(uintptr_t)messages + at, length, message_mr->lkey};
  struct ibv_send_wr *bad, wr = {.wr_id = opcode, .opcode = opcode, .sg_list = &sge, .num_sge = 1};
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  must(ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
}

static struct rxe_send_wqe *find_entry(unsigned long long id) {
  struct rxe_send_wqe *found = NULL;
  char text[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && !found && fgets(text, sizeof text, maps)) {
    unsigned long first, end;
    if (!strstr(text, "/uverbs") || sscanf(text, "%lx-%lx", &first, &end) != 2) continue;
    for (unsigned long at = first; at + sizeof *found <= end && !found; at += 8)
      if (*(unsigned long long *)at == id) found = (struct rxe_send_wqe *)at;
  }
  if (maps) fclose(maps);
  return found;
}

/*
 * The library prepares a WRITE of 0 bytes. Before the doorbell this function changes the entry to
 * FLUSH or ATOMIC WRITE, as in the kernel's rdma_user_rxe.h (remote-verbs.c does the same).
 */
static void place(struct rdma_cm_id *id, int opcode, const struct descriptor *mr, uint64_t offset,
                  uint32_t length, uint8_t type, const void *word) {
  struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(id->qp);
  if (!qp) must(EOPNOTSUPP, "ibv_qp_to_qp_ex");
  ibv_wr_start(qp);
  qp->wr_id = PLACE_ID;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, mr->rkey, mr->address + offset);
  ibv_wr_set_sge_list(qp, 0, NULL);
  struct rxe_send_wqe *entry = find_entry(PLACE_ID);
  if (!entry) must(ENOENT, "the send queue's entry");
  entry->wr.wr_id = opcode;
  entry->wr.opcode = opcode;
  entry->iova = mr->address + offset;
  entry->dma.length = entry->dma.resid = length;
  if (opcode == WR_FLUSH) {
    /* __u64 remote_addr; __u32 length, rkey; __u8 type, level. */
    const uint32_t words[] = {length, mr->rkey};
    const uint8_t bytes[] = {type, FLUSH_RANGE};
    char *flush = (char *)&entry->wr.wr;
    memcpy(flush + 8, words, sizeof words);
    memcpy(flush + 16, bytes, sizeof bytes);
  } else {
    memcpy(entry->dma.inline_data, word, 8);
  }
  must(ibv_wr_complete(qp), "ibv_wr_complete");
}

static char *persistent_memory(void) {
  int file = open("/dev/dax0.0", O_RDWR);
  if (file < 0) fail("/dev/dax0.0");
  char *memory = mmap(NULL, DAX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) fail("mmap of /dev/dax0.0");
  memset(memory, 0, BYTES);
  return memory;
}

static void serve(struct rdma_addrinfo *target, int is_persistent) {
  struct rdma_cm_id *listener, *id;
  char *memory = is_persistent ? persistent_memory() : dram;
  must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
  must(rdma_bind_addr(listener, target->ai_src_addr), "rdma_bind_addr");
  must(rdma_listen(listener, 1), "rdma_listen");
  printf("listening\n");
  id = expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0);
  prepare(id);
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  access |= is_persistent ? ACCESS_FLUSH_PERSISTENT : ACCESS_FLUSH_GLOBAL;
  struct ibv_mr *mr = ibv_reg_mr(id->qp->pd, memory, BYTES, access);
  if (!mr) fail("ibv_reg_mr of what is written");
  struct told told = {
      .mr_size = sizeof told.mr,
      .pcfg_size = 1,
      .mr = {(uintptr_t)memory, BYTES, mr->rkey,
             USAGE_WRITE_DST | (is_persistent ? USAGE_FLUSH_PERSISTENT : USAGE_FLUSH_VISIBILITY)},
      .direct_write_to_pmem = is_persistent,
  };
  struct rdma_conn_param made = param(&told, sizeof told);
  must(rdma_accept(id, &made), "rdma_accept");
  expect(RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
  complete(IBV_WC_RECV);
  uint64_t number = *(uint64_t *)(messages + RECV_AT);
  printf("heard '%s', word %" PRIx64 ", number %" PRIu64 "\n", memory + HEARD_AT,
         *(uint64_t *)(memory + WORD_AT), number);
  *(uint64_t *)(messages + SEND_AT) = number + 1;
  post(id, IBV_WR_SEND, SEND_AT, 8, 0, 0);
  complete(IBV_WC_SEND);
  expect(RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
  rdma_disconnect(id);
}

static void ask(struct rdma_addrinfo *target) {
  struct rdma_cm_id *id;
  struct told told;
  const uint64_t word = 0x1122334455667788;
  must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
  must(rdma_resolve_addr(id, NULL, target->ai_dst_addr, 1000), "rdma_resolve_addr");
  expect(RDMA_CM_EVENT_ADDR_RESOLVED, NULL, 0);
  must(rdma_resolve_route(id, 1000), "rdma_resolve_route");
  expect(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, 0);
  prepare(id);
  struct rdma_conn_param made = param(NULL, 0);
  must(rdma_connect(id, &made), "rdma_connect");
  expect(RDMA_CM_EVENT_ESTABLISHED, &told, sizeof told);
  const struct descriptor *mr = &told.mr;
  int is_persistent = (mr->usage & USAGE_FLUSH_PERSISTENT) && told.direct_write_to_pmem;
  uint8_t type = is_persistent ? FLUSH_PERSISTENT : FLUSH_GLOBAL;
  strcpy(messages + SENTENCE_AT, "written by librpma 1.3");
  post(id, IBV_WR_RDMA_WRITE, SENTENCE_AT, TEXT, mr->address + HEARD_AT, mr->rkey);
  place(id, WR_FLUSH, mr, HEARD_AT, TEXT, type, NULL);
  place(id, WR_ATOMIC_WRITE, mr, WORD_AT, 8, 0, &word);
  place(id, WR_FLUSH, mr, WORD_AT, 8, type, NULL);
  *(uint64_t *)(messages + SEND_AT) = 41;
  post(id, IBV_WR_SEND, SEND_AT, 8, 0, 0);
  complete(IBV_WC_RECV);
  printf("flushed to be %s, answer %" PRIu64 "\n", is_persistent ? "persistent" : "visible",
         *(uint64_t *)(messages + RECV_AT));
  must(rdma_disconnect(id), "rdma_disconnect");
  expect(RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
}

int main(int argc, char *argv[]) {
  if (argc != 4) {
    fprintf(stderr, "usage: rpma-native server|server-persistent|client ADDRESS PORT\n");
    return 2;
  }
  int is_client = !strcmp(argv[1], "client");
  struct rdma_addrinfo *target, hints = {.ai_port_space = RDMA_PS_TCP};
  hints.ai_flags = is_client ? 0 : RAI_PASSIVE;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!(channel = rdma_create_event_channel())) fail("rdma_create_event_channel");
  must(rdma_getaddrinfo(argv[2], argv[3], &hints, &target), "rdma_getaddrinfo");
  if (is_client) ask(target);
  else serve(target, !strcmp(argv[1], "server-persistent"));
  return 0;
}
