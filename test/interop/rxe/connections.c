/*
 * Connections of librdmacm, one after the other, and a line for each event of theirs.
 *
 *     connections listen ADDRESS PORT COUNT BYTES [quiet]    accepts COUNT, then ends
 *     connections refuse ADDRESS PORT COUNT BYTES [quiet]    rejects COUNT, saying "not today"
 *     connections connect ADDRESS PORT COUNT BYTES [quiet]   makes COUNT
 *
 * On each of them a message goes there and comes back: byte I of connection N is N + 7 * I. The
 * active side disconnects. `quiet`: nothing but the last line, `N done`, and what fails.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rdma_event_channel *channel;
static struct rdma_addrinfo *target;
static unsigned char *memory;
static size_t bytes;
static int quiet;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

/* The next event, of whatever kind: it says which, and whose. */
static enum rdma_cm_event_type next_event(struct rdma_cm_id **id) {
  struct rdma_cm_event *event;
  enum rdma_cm_event_type type;
  if (rdma_get_cm_event(channel, &event)) fail("rdma_get_cm_event");
  type = event->event;
  if (id) *id = event->id;
  if (!quiet) printf("%s %d\n", rdma_event_str(type) + strlen("RDMA_CM_EVENT_"), event->status);
  rdma_ack_cm_event(event);
  return type;
}

/* Whether the next event is that one. */
static int expect(enum rdma_cm_event_type wanted) {
  return next_event(NULL) == wanted;
}

static struct ibv_mr *prepare(struct rdma_cm_id *id) {
  struct ibv_qp_init_attr attr = {
      .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1,
  };
  struct ibv_mr *mr;
  if (rdma_create_qp(id, NULL, &attr)) fail("rdma_create_qp");
  mr = rdma_reg_msgs(id, memory, 2 * bytes);
  if (!mr) fail("rdma_reg_msgs");
  if (rdma_post_recv(id, NULL, memory, bytes, mr)) fail("rdma_post_recv");
  return mr;
}

static struct rdma_conn_param *param(void) {
  static struct rdma_conn_param made = {
      .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
  return &made;
}

static void put_away(struct rdma_cm_id *id, struct ibv_mr *mr) {
  if (mr) rdma_dereg_mr(mr);
  if (id->qp) rdma_destroy_qp(id);
  if (rdma_destroy_id(id)) fail("rdma_destroy_id");
}

static void check(const char *what, const struct ibv_wc *wc, int got) {
  if (got == 1 && wc->status == IBV_WC_SUCCESS) return;
  fprintf(stderr, "%s: %s\n", what, got == 1 ? ibv_wc_status_str(wc->status) : "nothing");
  exit(1);
}

static void send_message(struct rdma_cm_id *id, unsigned char *from, struct ibv_mr *mr) {
  struct ibv_wc wc;
  if (rdma_post_send(id, NULL, from, bytes, mr, 0)) fail("rdma_post_send");
  check("send", &wc, rdma_get_send_comp(id, &wc));
}

static void receive_message(struct rdma_cm_id *id, int index) {
  struct ibv_wc wc;
  check("receive", &wc, rdma_get_recv_comp(id, &wc));
  for (size_t at = 0; at < bytes; at++) {
    if (wc.byte_len == bytes && memory[at] == (unsigned char)(index + 7 * at)) continue;
    fprintf(stderr, "connection %d: byte %zu of %u is another\n", index, at, wc.byte_len);
    exit(1);
  }
}

static int make_one(int index) {
  struct rdma_cm_id *id;
  struct ibv_mr *mr;
  int done = 0;
  if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) fail("rdma_create_id");
  if (rdma_resolve_addr(id, NULL, target->ai_dst_addr, 2000)) fail("rdma_resolve_addr");
  if (!expect(RDMA_CM_EVENT_ADDR_RESOLVED)) exit(1);
  if (rdma_resolve_route(id, 2000)) fail("rdma_resolve_route");
  if (!expect(RDMA_CM_EVENT_ROUTE_RESOLVED)) exit(1);
  mr = prepare(id);
  if (rdma_connect(id, param())) fail("rdma_connect");
  if (expect(RDMA_CM_EVENT_ESTABLISHED)) {
    for (size_t at = 0; at < bytes; at++) memory[bytes + at] = index + 7 * at;
    send_message(id, memory + bytes, mr);
    receive_message(id, index);
    if (rdma_disconnect(id)) fail("rdma_disconnect");
    done = expect(RDMA_CM_EVENT_DISCONNECTED);
  }
  put_away(id, mr);
  return done;
}

static int take_one(int index) {
  struct rdma_cm_id *id;
  struct ibv_mr *mr;
  int done;
  while (next_event(&id) != RDMA_CM_EVENT_CONNECT_REQUEST);
  mr = prepare(id);
  if (rdma_accept(id, param())) fail("rdma_accept");
  done = expect(RDMA_CM_EVENT_ESTABLISHED);
  if (done) {
    receive_message(id, index);
    send_message(id, memory, mr);
    done = expect(RDMA_CM_EVENT_DISCONNECTED);
    rdma_disconnect(id);
  }
  put_away(id, mr);
  return done;
}

static int refuse_one(void) {
  struct rdma_cm_id *id;
  while (next_event(&id) != RDMA_CM_EVENT_CONNECT_REQUEST);
  if (rdma_reject(id, "not today", 10)) fail("rdma_reject");
  put_away(id, NULL);
  return 1;
}

int main(int count, char **words) {
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP};
  struct rdma_cm_id *listener = NULL;
  int connects, refuses, wanted, done = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (count < 6) {
    fprintf(stderr, "connections listen|refuse|connect ADDRESS PORT COUNT BYTES [quiet]\n");
    return 2;
  }
  connects = strcmp(words[1], "connect") == 0;
  refuses = strcmp(words[1], "refuse") == 0;
  wanted = atoi(words[4]);
  bytes = atoi(words[5]);
  quiet = count > 6;
  memory = malloc(2 * bytes);
  channel = rdma_create_event_channel();
  if (!memory || !channel) fail("connections");
  if (!connects) hints.ai_flags = RAI_PASSIVE;
  if (rdma_getaddrinfo(words[2], words[3], &hints, &target)) fail("rdma_getaddrinfo");
  if (!connects) {
    if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP)) fail("rdma_create_id");
    if (rdma_bind_addr(listener, target->ai_src_addr)) fail("rdma_bind_addr");
    if (rdma_listen(listener, 64)) fail("rdma_listen");
    printf("listening\n");
  }
  for (int index = 0; index < wanted; index++) {
    done += connects ? make_one(index) : refuses ? refuse_one() : take_one(index);
  }
  if (listener) rdma_destroy_id(listener);
  rdma_freeaddrinfo(target);
  rdma_destroy_event_channel(channel);
  printf("%d done\n", done);
  return done == wanted ? 0 : 1;
}
