/*
 * libibverbs by TCP: a test on another machine is the program, this runs its verbs.
 *
 *     remote-verbs [PORT]
 *
 * Each connection is a process with a device of its own. A line is a command, its words are numbers
 * as C writes them; the answer is a line, `ok` and what there is to say, or `error ERRNO WHAT`.
 *
 *     open GID_INDEX BYTES                     ok GID ADDRESS: the first device, memory of BYTES
 *     mr ACCESS OFFSET LENGTH                  ok LKEY RKEY
 *     dax ACCESS LENGTH                        ok ADDRESS LKEY RKEY: of persistent memory, /dev/dax0.0, zeroed
 *     mw MR_RKEY OFFSET LENGTH ACCESS          ok RKEY: a type 2 window, bound by the queue pair
 *     qp TYPE SENDS RECEIVES SGES              ok QPN: in INIT, all remote access allowed, Q_Key 0x11111111
 *     rtr MTU QPN RQ_PSN GID RD_ATOMIC RNR     ok: RC and UC (MTU: bytes), and UD, which only takes GID
 *     rts SQ_PSN TIMEOUT RETRIES RNR_RETRIES RD_ATOMIC
 *     recv ID [ADDRESS LENGTH LKEY]...
 *     send ID OPCODE FLAGS IMM REMOTE RKEY COMPARE_ADD SWAP QPN QKEY [ADDRESS LENGTH LKEY]...
 *                                              IMM is also the key that SEND_WITH_INV kills
 *     place ID OPCODE FLAGS REMOTE RKEY LENGTH TYPE LEVEL [ADDRESS LENGTH LKEY]
 *                                              FLUSH of LENGTH bytes; ATOMIC WRITE of eight at ADDRESS
 *     poll COUNT MILLIS                        ok [ID STATUS OPCODE BYTES FLAGS IMM SOURCE_QP]...
 *     arm SOLICITED                            0: for any completion, 1: for solicited ones and errors
 *     event MILLIS                             ok 1 when the armed queue had one, else ok 0
 *     state                                    ok STATE
 *     fill OFFSET LENGTH SEED                  noise, as test/support/processes.ts makes it
 *     same OFFSET LENGTH SEED                  ok -1, or the offset of the first byte that is other
 *     put OFFSET HEX / get OFFSET LENGTH       ok HEX
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rdma_user_rxe.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define QKEY 0x11111111
#define CQ_ENTRIES 4096
#define SGES_MAX 32
#define WORDS_MAX 256
#define LINE_MAX_BYTES (1 << 20)
#define ALL_ACCESS                                                                                 \
  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                     \
   IBV_ACCESS_REMOTE_ATOMIC)
/* IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT: later than this libibverbs. */
#define FLUSH_ACCESS (1 << 8 | 1 << 9)
/* enum ib_uverbs_wr_opcode of Linux 6.2 and later. */
#define WR_FLUSH 14
#define WR_ATOMIC_WRITE 15
/* No other work request has it. */
#define PLACE_ID 0x5eed0fa11ace1d00ull
#define DAX_BYTES (2 << 20)
#define REGIONS_MAX 64

static FILE *out;
static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_ah *ah;
static struct ibv_mr *regions[REGIONS_MAX];
static int region_count;
static int gid_index;
static unsigned char *memory;
static size_t memory_bytes;

/* The words of the line: the command, and what it is about. */
static char *words[WORDS_MAX];
static int word_count;

static unsigned long long number(int index) {
  return index < word_count ? strtoull(words[index], NULL, 0) : 0;
}

static void failed(const char *what) {
  fprintf(out, "error %d %s: %s\n", errno, what, strerror(errno));
}

static void failed_with(int number, const char *what) {
  errno = number;
  failed(what);
}

static int in_memory(unsigned long long offset, unsigned long long length) {
  if (offset <= memory_bytes && length <= memory_bytes - offset)
    return 1;
  failed_with(EINVAL, "offset");
  return 0;
}

static unsigned hex_byte(const char *text) {
  const char digits[] = {text[0], text[1], 0};
  return strtoul(digits, NULL, 16);
}

static int parse_gid(const char *text, union ibv_gid *gid) {
  if (strlen(text) != 32)
    return -1;
  for (int i = 0; i < 16; i++)
    gid->raw[i] = hex_byte(text + 2 * i);
  return 0;
}

static enum ibv_mtu mtu_of(unsigned long long bytes) {
  switch (bytes) {
  case 256:
    return IBV_MTU_256;
  case 512:
    return IBV_MTU_512;
  case 1024:
    return IBV_MTU_1024;
  case 2048:
    return IBV_MTU_2048;
  default:
    return IBV_MTU_4096;
  }
}

/* xorshift32 from a seed, byte by byte. */
static unsigned noise_start(unsigned seed) { return (seed * 0x9e3779b9u) | 1; }

static unsigned noise_next(unsigned state) {
  state ^= state << 13;
  state ^= state >> 17;
  return state ^ (state << 5);
}

static void do_open(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  union ibv_gid gid;
  gid_index = number(1);
  memory_bytes = number(2);
  if (!list || !list[0])
    return failed_with(ENODEV, "ibv_get_device_list");
  if (!(device = ibv_open_device(list[0])))
    return failed("ibv_open_device");
  if (!(pd = ibv_alloc_pd(device)) || !(channel = ibv_create_comp_channel(device)))
    return failed("ibv_create_comp_channel");
  if (!(cq = ibv_create_cq(device, CQ_ENTRIES, NULL, channel, 0)))
    return failed("ibv_create_cq");
  if (ibv_query_gid(device, 1, gid_index, &gid))
    return failed("ibv_query_gid");
  memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return failed("mmap");
  fprintf(out, "ok ");
  for (int i = 0; i < 16; i++)
    fprintf(out, "%02x", gid.raw[i]);
  fprintf(out, " %llu\n", (unsigned long long)(uintptr_t)memory);
}

static void do_mr(void) {
  if (region_count == REGIONS_MAX)
    return failed_with(ENOMEM, "mr");
  if (!in_memory(number(2), number(3)))
    return;
  struct ibv_mr *mr = ibv_reg_mr(pd, memory + number(2), number(3), number(1));
  if (!mr)
    return failed("ibv_reg_mr");
  regions[region_count++] = mr;
  fprintf(out, "ok %u %u\n", mr->lkey, mr->rkey);
}

static void do_dax(void) {
  int file = open("/dev/dax0.0", O_RDWR);
  if (file < 0)
    return failed("/dev/dax0.0");
  unsigned char *kept = mmap(NULL, DAX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (kept == MAP_FAILED || number(2) > DAX_BYTES)
    return failed("mmap of /dev/dax0.0");
  memset(kept, 0, number(2));
  struct ibv_mr *mr = ibv_reg_mr(pd, kept, number(2), number(1));
  if (!mr)
    return failed("ibv_reg_mr of /dev/dax0.0");
  fprintf(out, "ok %llu %u %u\n", (unsigned long long)(uintptr_t)kept, mr->lkey, mr->rkey);
}

static int poll_one(struct ibv_wc *wc, long millis) {
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (;;) {
    int found = ibv_poll_cq(cq, 1, wc);
    if (found != 0)
      return found;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 >= millis)
      return 0;
    usleep(200);
  }
}

static void do_mw(void) {
  struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_wc wc;
  int found, code;
  if (!mw)
    return failed("ibv_alloc_mw");
  for (int i = 0; i < region_count; i++)
    if (regions[i]->rkey == number(1))
      wr.bind_mw.bind_info.mr = regions[i];
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info.addr = (uintptr_t)memory + number(2);
  wr.bind_mw.bind_info.length = number(3);
  wr.bind_mw.bind_info.mw_access_flags = number(4);
  if ((code = ibv_post_send(qp, &wr, &bad)))
    return failed_with(code, "ibv_post_send BIND_MW");
  found = poll_one(&wc, 5000);
  if (found != 1 || wc.status != IBV_WC_SUCCESS)
    return failed_with(EIO, "BIND_MW does not complete with success");
  fprintf(out, "ok %u\n", wr.bind_mw.rkey);
}

static void do_qp(void) {
  enum ibv_qp_type type = number(1);
  struct ibv_qp_init_attr init = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = type,
      .cap = {number(2), number(3), number(4), number(4), 64},
  };
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qkey = QKEY,
      .qp_access_flags = ALL_ACCESS | FLUSH_ACCESS,
  };
  struct ibv_qp_init_attr_ex extended = {
      .send_cq = cq,
      .recv_cq = cq,
      .cap = init.cap,
      .qp_type = type,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = pd,
      .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
  };
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  qp = type == IBV_QPT_RC ? ibv_create_qp_ex(device, &extended) : ibv_create_qp(pd, &init);
  if (!qp)
    return failed("ibv_create_qp");
  mask |= type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  if (ibv_modify_qp(qp, &attr, mask))
    return failed("ibv_modify_qp INIT");
  fprintf(out, "ok %u\n", qp->qp_num);
}

static void do_rtr(void) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = mtu_of(number(1)),
      .dest_qp_num = number(2),
      .rq_psn = number(3),
      .max_dest_rd_atomic = number(5),
      .min_rnr_timer = number(6),
      .ah_attr = {.is_global = 1,
                  .port_num = 1,
                  .grh = {.sgid_index = gid_index, .hop_limit = 64}},
  };
  int mask = IBV_QP_STATE;
  if (word_count < 5 || parse_gid(words[4], &attr.ah_attr.grh.dgid))
    return failed_with(EINVAL, "gid");
  if (qp->qp_type != IBV_QPT_UD)
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  else if (!(ah = ibv_create_ah(pd, &attr.ah_attr)))
    return failed("ibv_create_ah");
  if (qp->qp_type == IBV_QPT_RC)
    mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (ibv_modify_qp(qp, &attr, mask))
    return failed("ibv_modify_qp RTR");
  fprintf(out, "ok\n");
}

static void do_rts(void) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_RTS,
      .sq_psn = number(1),
      .timeout = number(2),
      .retry_cnt = number(3),
      .rnr_retry = number(4),
      .max_rd_atomic = number(5),
  };
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (qp->qp_type == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  if (ibv_modify_qp(qp, &attr, mask))
    return failed("ibv_modify_qp RTS");
  fprintf(out, "ok\n");
}

/* Triples of words from `first` on. */
static int parse_sges(int first, struct ibv_sge *list) {
  int count = 0;
  for (int at = first; at + 2 < word_count && count < SGES_MAX; at += 3)
    list[count++] = (struct ibv_sge){number(at), number(at + 1), number(at + 2)};
  return count;
}

static void do_recv(void) {
  struct ibv_sge list[SGES_MAX];
  struct ibv_recv_wr *bad, wr = {.wr_id = number(1), .sg_list = list};
  wr.num_sge = parse_sges(2, list);
  int code = ibv_post_recv(qp, &wr, &bad);
  if (code)
    return failed_with(code, "ibv_post_recv");
  fprintf(out, "ok\n");
}

static void do_send(void) {
  struct ibv_sge list[SGES_MAX];
  struct ibv_send_wr *bad, wr = {.wr_id = number(1), .sg_list = list};
  wr.opcode = number(2);
  wr.send_flags = number(3);
  if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV)
    wr.invalidate_rkey = number(4);
  else
    wr.imm_data = htonl(number(4));
  if (qp->qp_type == IBV_QPT_UD) {
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = number(9);
    wr.wr.ud.remote_qkey = number(10);
  } else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = number(5);
    wr.wr.atomic.rkey = number(6);
    wr.wr.atomic.compare_add = number(7);
    wr.wr.atomic.swap = number(8);
  } else {
    wr.wr.rdma.remote_addr = number(5);
    wr.wr.rdma.rkey = number(6);
  }
  wr.num_sge = parse_sges(11, list);
  int code = ibv_post_send(qp, &wr, &bad);
  if (code)
    return failed_with(code, "ibv_post_send");
  fprintf(out, "ok\n");
}

/* Where the send queue of rxe, which lies in memory that we share with the kernel, has this id. */
static struct rxe_send_wqe *find_entry(unsigned long long id) {
  struct rxe_send_wqe *found = NULL;
  char text[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && !found && fgets(text, sizeof text, maps)) {
    unsigned long first, end;
    if (!strstr(text, "/uverbs") || sscanf(text, "%lx-%lx", &first, &end) != 2)
      continue;
    for (unsigned long at = first; at + sizeof *found <= end && !found; at += 8)
      if (*(unsigned long long *)at == id)
        found = (struct rxe_send_wqe *)at;
  }
  if (maps)
    fclose(maps);
  return found;
}

/*
 * This libibverbs has neither FLUSH nor ATOMIC WRITE; the kernel has. So the library begins a WRITE
 * of no bytes, and before the kernel reads its entry, the entry is rewritten as the kernel's own
 * rdma_user_rxe.h defines it.
 */
static void do_place(void) {
  struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
  int is_flush = number(2) == WR_FLUSH, code;
  if (!extended || qp->qp_type != IBV_QPT_RC)
    return failed_with(EINVAL, "place");
  ibv_wr_start(extended);
  extended->wr_id = PLACE_ID;
  extended->wr_flags = number(3);
  ibv_wr_rdma_write(extended, number(5), number(4));
  ibv_wr_set_sge_list(extended, 0, NULL);
  struct rxe_send_wqe *entry = find_entry(PLACE_ID);
  if (!entry) {
    ibv_wr_abort(extended);
    return failed_with(ENOENT, "the send queue's entry");
  }
  entry->wr.wr_id = number(1);
  entry->wr.opcode = is_flush ? WR_FLUSH : WR_ATOMIC_WRITE;
  entry->iova = number(4);
  if (is_flush) {
    /* __u64 remote_addr; __u32 length, rkey; __u8 type, level. */
    const uint32_t words[] = {number(6), number(5)};
    const uint8_t bytes[] = {number(7), number(8)};
    char *flush = (char *)&entry->wr.wr;
    memcpy(flush + 8, words, sizeof words);
    memcpy(flush + 16, bytes, sizeof bytes);
    entry->dma.length = entry->dma.resid = number(6);
  } else {
    memcpy(entry->dma.inline_data, (void *)(uintptr_t)number(9), 8);
    entry->dma.length = entry->dma.resid = 8;
  }
  if ((code = ibv_wr_complete(extended)))
    return failed_with(code, "ibv_wr_complete");
  fprintf(out, "ok\n");
}

static void do_poll(void) {
  struct ibv_wc wc;
  unsigned long long count = number(1);
  fprintf(out, "ok");
  for (unsigned long long i = 0; i < count; i++) {
    if (poll_one(&wc, number(2)) != 1)
      break;
    /* rxe hands on the kernel's flag, which libibverbs takes for IBV_WC_IP_CSUM_OK. */
    if (wc.wc_flags & IBV_WC_IP_CSUM_OK)
      wc.wc_flags ^= IBV_WC_IP_CSUM_OK | IBV_WC_WITH_INV;
    /* A key that was invalidated is in the machine's order, immediate data in the network's. */
    unsigned imm = wc.wc_flags & IBV_WC_WITH_INV ? wc.invalidated_rkey : ntohl(wc.imm_data);
    fprintf(out, " %llu %u %u %u %u %u %u", (unsigned long long)wc.wr_id, wc.status, wc.opcode,
            wc.byte_len, wc.wc_flags, imm, wc.src_qp);
  }
  fprintf(out, "\n");
}

static void do_arm(void) {
  int code = ibv_req_notify_cq(cq, number(1));
  if (code)
    return failed_with(code, "ibv_req_notify_cq");
  fprintf(out, "ok\n");
}

static void do_event(void) {
  struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
  struct ibv_cq *from;
  void *context;
  int found = poll(&wait, 1, number(1));
  if (found == 1 && ibv_get_cq_event(channel, &from, &context) == 0)
    ibv_ack_cq_events(from, 1);
  fprintf(out, "ok %d\n", found == 1);
}

static void do_state(void) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
    return failed("ibv_query_qp");
  fprintf(out, "ok %u\n", attr.qp_state);
}

static void do_fill(void) {
  if (!in_memory(number(1), number(2)))
    return;
  unsigned state = noise_start(number(3));
  for (size_t i = 0; i < number(2); i++)
    memory[number(1) + i] = state = noise_next(state);
  fprintf(out, "ok\n");
}

static void do_same(void) {
  if (!in_memory(number(1), number(2)))
    return;
  unsigned state = noise_start(number(3));
  long long differs = -1;
  for (size_t i = 0; i < number(2) && differs < 0; i++)
    if (memory[number(1) + i] != (unsigned char)(state = noise_next(state)))
      differs = i;
  fprintf(out, "ok %lld\n", differs);
}

static void do_put(void) {
  const char *hex = word_count > 2 ? words[2] : "";
  size_t length = strlen(hex) / 2;
  if (!in_memory(number(1), length))
    return;
  for (size_t i = 0; i < length; i++)
    memory[number(1) + i] = hex_byte(hex + 2 * i);
  fprintf(out, "ok\n");
}

static void do_get(void) {
  if (!in_memory(number(1), number(2)))
    return;
  fprintf(out, "ok ");
  for (size_t i = 0; i < number(2); i++)
    fprintf(out, "%02x", memory[number(1) + i]);
  fprintf(out, "\n");
}

static const struct {
  const char *name;
  void (*run)(void);
} commands[] = {
    {"open", do_open}, {"mr", do_mr},     {"mw", do_mw},     {"qp", do_qp}, {"dax", do_dax},
    {"rtr", do_rtr},   {"rts", do_rts},   {"recv", do_recv}, {"send", do_send},
    {"poll", do_poll}, {"arm", do_arm}, {"event", do_event}, {"state", do_state}, {"fill", do_fill}, {"same", do_same},
    {"put", do_put},   {"get", do_get}, {"place", do_place},
};

static void serve(int connection) {
  static char line[LINE_MAX_BYTES];
  FILE *in = fdopen(connection, "r");
  out = fdopen(dup(connection), "w");
  while (in && out && fgets(line, sizeof line, in)) {
    word_count = 0;
    for (char *word = strtok(line, " \n"); word && word_count < WORDS_MAX; word = strtok(NULL, " \n"))
      words[word_count++] = word;
    size_t index = 0, count = sizeof commands / sizeof *commands;
    while (index < count && (word_count == 0 || strcmp(words[0], commands[index].name)))
      index++;
    if (index == count)
      failed_with(ENOSYS, "no such command");
    else if (index > 0 && !memory)
      failed_with(EBADF, "open comes first");
    else
      commands[index].run();
    fflush(out);
  }
}

int main(int argc, char **argv) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  address.sin_port = htons(argc > 1 ? atoi(argv[1]) : 7778);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (void *)&address, sizeof address) || listen(listener, 16)) {
    perror("remote-verbs");
    return 1;
  }
  signal(SIGCHLD, SIG_IGN);
  puts("ready");
  fflush(stdout);
  for (;;) {
    int connection = accept(listener, NULL, NULL);
    if (connection < 0)
      continue;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fork() == 0) {
      close(listener);
      serve(connection);
      _exit(0);
    }
    close(connection);
  }
}
