/*
 * A switch in a program: a star of TUN devices, each in a network namespace of its own that this
 * process makes and holds. A kernel without netem needs no module for it. Per output port: a rate, a
 * drop-tail queue in packets, an ECN threshold. For all: delay, loss, late packets, MTU, outages.
 *
 *     switch HOSTS
 *
 * Host N is 10.9.0.N on device net0; its namespace is /proc/PID/fd/(FIRST+N-1) where the first line
 * of output is "FIRST". Commands come on standard input, a line each (see `commands`). Ends with
 * its input. IPv4 only.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define HOSTS_MAX 16
#define PACKET_BYTES 9216
#define PACKETS 40000
/** Beside an IP packet on Ethernet: header, check sequence, preamble, gap. */
#define FRAME_BYTES 38
/** Packets that are read of one host before the others have their turn. */
#define BATCH 32
/**
 * Between two looks at the ports while packets are under way, as an adapter collects what arrives
 * before it interrupts (ethtool -C, rx-usecs): otherwise this process and those that it wakes spend
 * most of two processors on sleeping and waking up.
 */
#define MODERATION_NANOS 30000
#define NAMESPACE_FD 100
#define ICMP_QUOTE_BYTES 548
#define NANOS 1000000000ll
#define UDP 17
#define ECN_MASK 3

/** A packet under way: it leaves the port at `leaves` and is there at `arrives`. */
struct under_way {
  int64_t leaves, arrives;
  int bytes, packet, from;
};

/** In the order of `arrives`. `waiting` is the first that has not left the port. */
struct line {
  struct under_way places[PACKETS];
  unsigned head, tail, waiting;
};

struct counters {
  uint64_t packets, dropped, lost, marked, capable, too_long, cut, queue_max;
};

struct port {
  int fd;
  double bits_per_nano;
  int64_t free_at;
  struct line on_time, late;
  struct counters counters;
  /** IP bytes that arrived, by the host that sent them. */
  uint64_t carried[HOSTS_MAX];
};

static struct port *ports[HOSTS_MAX];
static int hosts;
static uint8_t *packets;
static int unused[PACKETS], unused_count;

static int queue_packets = 1000, ecn_packets, mtu = 9000, has_icmp = 1, is_down;
static int64_t delay_nanos, late_nanos;
static double loss_share, late_share;

/** xorshift64*: the same losses in every run. */
static double random_share(void) {
  static uint64_t state = 88172645463325252ull;
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (double)((state * 2685821657736338717ull) >> 11) / 9007199254740992.0;
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * NANOS + time.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

/** A namespace with a TUN device; both stay open in this process. */
static struct port *open_port(int index) {
  if (unshare(CLONE_NEWNET)) fail("unshare");
  int space = open("/proc/self/ns/net", O_RDONLY);
  if (space < 0 || dup2(space, NAMESPACE_FD + index) < 0) fail("namespace");
  close(space);
  struct port *port = calloc(1, sizeof *port);
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  strcpy(request.ifr_name, "net0");
  port->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (port->fd < 0 || ioctl(port->fd, TUNSETIFF, &request)) fail("/dev/net/tun");
  port->bits_per_nano = 1;
  return port;
}

static uint8_t *packet_at(int packet) { return packets + (size_t)packet * PACKET_BYTES; }

static void drop(int packet) { unused[unused_count++] = packet; }

static uint16_t checksum(const uint8_t *bytes, int count) {
  uint32_t sum = 0;
  for (int at = 0; at < count; at += 2) sum += bytes[at] << 8 | (at + 1 < count ? bytes[at + 1] : 0);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum;
}

static void put_be16(uint8_t *at, uint16_t value) {
  at[0] = value >> 8;
  at[1] = value;
}

/** ICMP "fragmentation needed" to the sender, as if its peer had sent it (RFC 1191). */
static void refuse_length(struct port *sender, const uint8_t *bytes, int count) {
  uint8_t reply[28 + ICMP_QUOTE_BYTES] = {0x45, [8] = 64, [9] = 1, [20] = 3, [21] = 4};
  int quoted = count < ICMP_QUOTE_BYTES ? count : ICMP_QUOTE_BYTES;
  int total = 28 + quoted;
  put_be16(reply + 2, total);
  memcpy(reply + 12, bytes + 16, 4);
  memcpy(reply + 16, bytes + 12, 4);
  put_be16(reply + 10, checksum(reply, 20));
  put_be16(reply + 26, mtu);
  memcpy(reply + 28, bytes, quoted);
  put_be16(reply + 22, checksum(reply + 20, total - 20));
  if (write(sender->fd, reply, total) < 0) return;
}

static void mark(uint8_t *bytes) {
  bytes[1] |= ECN_MASK;
  put_be16(bytes + 10, 0);
  put_be16(bytes + 10, checksum(bytes, (bytes[0] & 15) * 4));
}

static void join(struct line *line, struct under_way entry) {
  line->places[line->head++ % PACKETS] = entry;
}

/** Takes a packet of host `from`: refuses, loses, drops, or queues it. */
static void take(int from, int packet, int count) {
  uint8_t *bytes = packet_at(packet);
  int to = bytes[19] - 1;
  if (bytes[0] >> 4 != 4 || bytes[16] != 10 || to < 0 || to >= hosts) return drop(packet);
  struct port *port = ports[to];
  struct counters *counters = &port->counters;
  counters->packets++;
  int ecn = bytes[1] & ECN_MASK;
  if (ecn) counters->capable++;
  if (is_down) return counters->cut++, drop(packet);
  if (count > mtu) {
    counters->too_long++;
    if (has_icmp) refuse_length(ports[from], bytes, count);
    return drop(packet);
  }
  if (loss_share > 0 && random_share() < loss_share) return counters->lost++, drop(packet);
  int64_t time = now();
  struct line *line = &port->on_time;
  while (line->waiting != line->head && line->places[line->waiting % PACKETS].leaves <= time)
    line->waiting++;
  unsigned waiting = line->head - line->waiting;
  if (waiting > counters->queue_max) counters->queue_max = waiting;
  if (waiting >= (unsigned)queue_packets) return counters->dropped++, drop(packet);
  if (ecn_packets && waiting >= (unsigned)ecn_packets && ecn && ecn != ECN_MASK) {
    mark(bytes);
    counters->marked++;
  }
  int64_t starts = port->free_at > time ? port->free_at : time;
  int64_t leaves = starts + (int64_t)((count + FRAME_BYTES) * 8 / port->bits_per_nano);
  port->free_at = leaves;
  struct under_way entry = {leaves, leaves + delay_nanos, count, packet, from};
  if (late_share > 0 && random_share() < late_share) {
    entry.arrives += late_nanos;
    join(&port->late, entry);
  } else {
    join(line, entry);
  }
}

/** Delivers what has arrived by `time`. Returns when the next packet arrives. */
static int64_t deliver(struct port *port, struct line *line, int64_t time) {
  for (; line->tail != line->head; line->tail++) {
    struct under_way *entry = &line->places[line->tail % PACKETS];
    if (entry->arrives > time) return entry->arrives;
    if (write(port->fd, packet_at(entry->packet), entry->bytes) == entry->bytes)
      port->carried[entry->from] += entry->bytes;
    drop(entry->packet);
    if (line->waiting == line->tail) line->waiting++;
  }
  return INT64_MAX;
}

static unsigned waiting_at(struct port *port) {
  struct line *line = &port->on_time;
  int64_t time = now();
  while (line->waiting != line->head && line->places[line->waiting % PACKETS].leaves <= time)
    line->waiting++;
  return line->head - line->waiting;
}

/** A line of JSON: counters, queue and arrived bytes of each port. */
static void print_counters(void) {
  printf("[");
  for (int index = 0; index < hosts; index++) {
    struct port *port = ports[index];
    struct counters *c = &port->counters;
    printf("%s{\"packets\":%" PRIu64 ",\"dropped\":%" PRIu64 ",\"lost\":%" PRIu64
           ",\"marked\":%" PRIu64 ",\"capable\":%" PRIu64 ",\"tooLong\":%" PRIu64
           ",\"cut\":%" PRIu64 ",\"queueMax\":%" PRIu64 ",\"queue\":%u,\"carried\":[",
           index ? "," : "", c->packets, c->dropped, c->lost, c->marked, c->capable, c->too_long,
           c->cut, c->queue_max, waiting_at(port));
    for (int from = 0; from < hosts; from++)
      printf("%s%" PRIu64, from ? "," : "", port->carried[from]);
    printf("]}");
  }
  printf("]\n");
}

static void reset_counters(void) {
  for (int index = 0; index < hosts; index++) {
    memset(&ports[index]->counters, 0, sizeof ports[index]->counters);
    memset(ports[index]->carried, 0, sizeof ports[index]->carried);
  }
}

/** Milliseconds, Mbit/s, shares of 1, packets. */
static void commands(const char *text) {
  char name[32];
  double value = 0, more = 0;
  if (sscanf(text, "%31s %lf %lf", name, &value, &more) < 1) return;
  if (!strcmp(name, "rate"))
    for (int index = 0; index < hosts; index++) ports[index]->bits_per_nano = value / 1000;
  else if (!strcmp(name, "queue")) queue_packets = value;
  else if (!strcmp(name, "ecn")) ecn_packets = value;
  else if (!strcmp(name, "delay")) delay_nanos = value * 1e6;
  else if (!strcmp(name, "loss")) loss_share = value;
  else if (!strcmp(name, "late")) late_share = value, late_nanos = more * 1e6;
  else if (!strcmp(name, "mtu")) mtu = value, has_icmp = more;
  else if (!strcmp(name, "down")) is_down = value;
  else if (!strcmp(name, "reset")) reset_counters();
  else if (!strcmp(name, "counters")) print_counters();
  else printf("\"no command %s\"\n", name);
  fflush(stdout);
}

static void read_commands(void) {
  static char text[4096];
  static int length;
  int count = read(0, text + length, sizeof text - 1 - length);
  if (count == 0) exit(0);
  if (count < 0) return;
  text[length += count] = 0;
  for (char *end; (end = strchr(text, '\n'));) {
    *end = 0;
    commands(text);
    length -= end + 1 - text;
    memmove(text, end + 1, length + 1);
  }
}

/** Reads what the hosts send. Returns whether there may be more. */
static int read_packets(void) {
  int more = 0;
  for (int from = 0; from < hosts; from++) {
    for (int turn = 0; turn < BATCH && unused_count > 0; turn++) {
      int packet = unused[--unused_count];
      int count = read(ports[from]->fd, packet_at(packet), PACKET_BYTES);
      if (count < 20) {
        drop(packet);
        break;
      }
      take(from, packet, count);
      more |= turn == BATCH - 1;
    }
  }
  return more;
}

int main(int count, char **words) {
  hosts = count == 2 ? atoi(words[1]) : 0;
  if (hosts < 2 || hosts > HOSTS_MAX) {
    fprintf(stderr, "usage: switch HOSTS (2 to %d)\n", HOSTS_MAX);
    return 2;
  }
  // A sleep ends up to 50 us late otherwise.
  prctl(PR_SET_TIMERSLACK, 1);
  packets = malloc((size_t)PACKETS * PACKET_BYTES);
  if (!packets) fail("malloc");
  for (int packet = 0; packet < PACKETS; packet++) drop(packet);
  struct pollfd polled[HOSTS_MAX + 1] = {{.fd = 0, .events = POLLIN}};
  for (int index = 0; index < hosts; index++) {
    ports[index] = open_port(index);
    polled[index + 1] = (struct pollfd){.fd = ports[index]->fd, .events = POLLIN};
  }
  struct sched_param priority = {.sched_priority = 5};
  sched_setscheduler(0, SCHED_RR, &priority);
  fcntl(0, F_SETFL, O_NONBLOCK);
  printf("%d\n", NAMESPACE_FD);
  fflush(stdout);
  for (;;) {
    int more = read_packets();
    int64_t time = now(), next = INT64_MAX;
    for (int index = 0; index < hosts; index++) {
      int64_t on_time = deliver(ports[index], &ports[index]->on_time, time);
      int64_t late = deliver(ports[index], &ports[index]->late, time);
      if (on_time < next) next = on_time;
      if (late < next) next = late;
    }
    if (more) continue;
    if (next != INT64_MAX) nanosleep(&(struct timespec){.tv_nsec = MODERATION_NANOS}, NULL);
    int64_t sleep = next == INT64_MAX ? NANOS : next - now();
    if (sleep < 0) sleep = 0;
    struct timespec limit = {sleep / NANOS, sleep % NANOS};
    if (ppoll(polled, hosts + 1, &limit, NULL) > 0 && polled[0].revents) read_commands();
  }
}
