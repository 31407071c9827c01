/*
 * Messages between two processes whose threads poll: the engine runs in these threads. Usage:
 * turns WHAT ROUNDS OWN-FILE PEER-FILE PEER-ADDRESS; one side has "answer" for WHAT.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 16
#define PSN 77

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint32_t numbers[2];

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void modify(struct ibv_qp_attr *attr, int mask)
{
	if (ibv_modify_qp(qp, attr, mask))
		fail("modify");
}

/* The number of the peer's queue pair, from its file. */
static uint32_t exchange(const char *own, const char *peer)
{
	char other[300];
	unsigned number = 0;
	snprintf(other, sizeof other, "%s.new", own);
	FILE *file = fopen(other, "w");
	fprintf(file, "%u\n", qp->qp_num);
	fclose(file);
	rename(other, own);
	while (number == 0) {
		usleep(10000);
		file = fopen(peer, "r");
		if (file && fscanf(file, "%u", &number) != 1)
			number = 0;
		if (file)
			fclose(file);
	}
	return number;
}

/* The test has its time until there is OWN-FILE.go. */
static void await_file(const char *own)
{
	char go[300];
	snprintf(go, sizeof go, "%s.go", own);
	while (access(go, F_OK))
		usleep(5000);
}

static void connect_to(uint32_t number, const char *address, uint8_t timeout)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	modify(&attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = number,
				     .rq_psn = PSN,
				     .max_dest_rd_atomic = 1,
				     .min_rnr_timer = 12,
				     .ah_attr = { .is_global = 1, .port_num = 1 } };
	uint8_t *gid = attr.ah_attr.grh.dgid.raw;
	memset(gid + 10, 0xff, 2);
	inet_pton(AF_INET, address, gid + 12);
	modify(&attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = timeout,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .sq_psn = PSN,
				     .max_rd_atomic = 1 };
	modify(&attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)&numbers[1], sizeof numbers[1], mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	if (ibv_post_recv(qp, &wr, &bad))
		fail("post a receive");
}

static void post_send(uint32_t number)
{
	numbers[0] = number;
	struct ibv_sge sge = { (uintptr_t)&numbers[0], sizeof numbers[0], mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	wr.send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(qp, &wr, &bad))
		fail("post");
}

/* Polls until both completions of a round are there. */
static void await(int count)
{
	struct ibv_wc wc;
	while (count > 0) {
		int got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0)
			fail("poll");
		if (got > 0 && wc.status) {
			printf("completion: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		count -= got;
	}
}

/* `rounds` messages there and back. Returns how many were wrong. */
static int exchange_messages(int rounds, int answers)
{
	int wrong = 0;
	for (int round = 1; round <= rounds; round++) {
		post_receive();
		if (!answers)
			post_send(round);
		await(answers ? 1 : 2);
		wrong += numbers[1] != (uint32_t)round;
		if (answers) {
			post_send(round);
			await(1);
		}
	}
	return wrong;
}

/* ---- what a program does beside its messages */

static volatile sig_atomic_t calls, refused;

static void call_verb(int signal)
{
	struct ibv_port_attr port;
	int error = errno;
	refused += ibv_query_port(context, 1, &port) != 0;
	calls++;
	errno = error;
}

static void start_signals(void)
{
	const struct itimerval often = { { 0, 2000 }, { 0, 2000 } };
	signal(SIGALRM, call_verb);
	setitimer(ITIMER_REAL, &often, NULL);
}

static void stop_signals(void)
{
	const struct itimerval never = { 0 };
	setitimer(ITIMER_REAL, &never, NULL);
	printf("signals: %s, %d refused\n", calls > 0 ? "some" : "none", (int)refused);
}

/* Two threads poll it without an end: one of them holds its lock at most forks. */
static struct ibv_cq *volatile idle;
static volatile int polling = 1;

static void *poll_in_vain(void *nothing)
{
	struct ibv_wc wc;
	if (!idle)
		idle = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	while (polling)
		ibv_poll_cq(idle, 1, &wc);
	return NULL;
}

static void *fork_children(void *count)
{
	pthread_t thread;
	idle = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&thread, NULL, poll_in_vain, NULL);
	for (int i = 0; i < *(int *)count; i++) {
		pid_t child = fork();
		if (child == 0) {
			struct ibv_wc wc;
			/* A lock that the child cannot take. */
			alarm(20);
			_exit(ibv_poll_cq(cq, 1, &wc) + ibv_poll_cq(idle, 1, &wc) == 0 ? 7 : 8);
		}
		int status = 0;
		waitpid(child, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
			printf("a child ended with %x\n", status);
	}
	return NULL;
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* The peer is stopped: a timer of the engine runs out while this thread makes no call. */
static void sleep_over_timeout(void)
{
	struct ibv_wc wc = { 0 };
	double end = seconds() + 10;
	post_send(1);
	await(0);
	while (ibv_poll_cq(cq, 1, &wc) == 0 && seconds() < end)
		usleep(400000);
	printf("after the timeout: %s\n", ibv_wc_status_str(wc.status));
}

/*
 * The engine's memory is spoiled: the word at `spoiled` of its context gets an address behind the
 * memory. The context is the struct with our GID at `gid` and `limit` at `limit_at`.
 */
static void spoil(const char *address, char *const words[])
{
	unsigned long start, end, offset, gid = strtoul(words[0], NULL, 10);
	unsigned long spoiled = strtoul(words[1], NULL, 10), limit_at = strtoul(words[2], NULL, 10);
	unsigned limit = strtoul(words[3], NULL, 10);
	uint8_t own[16] = { [10] = 0xff, [11] = 0xff };
	char line[512];
	struct ibv_wc wc;
	inet_pton(AF_INET, address, own + 12);
	FILE *maps = fopen("/proc/self/maps", "r");
	/* Pages of the program lie in this file as well. */
	do {
		if (!fgets(line, sizeof line, maps))
			fail("maps");
	} while (!strstr(line, "memfd:verbena") ||
		 sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) != 3 || offset != 0);
	fclose(maps);
	char *at = (char *)start;
	while (at < (char *)end - 4096 &&
	       (memcmp(at + gid, own, 16) || memcmp(at + limit_at, &limit, sizeof limit)))
		at += 8;
	memset(at + spoiled, 0xf8, 4);
	printf("spoiled: polls %d %d\n", ibv_poll_cq(cq, 1, &wc), ibv_poll_cq(cq, 1, &wc));
}

static void open_device(struct ibv_comp_channel **channel)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	context = list[0] ? ibv_open_device(list[0]) : NULL;
	if (!context || !(pd = ibv_alloc_pd(context)))
		fail("open");
	*channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, DEPTH, NULL, *channel, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { DEPTH, DEPTH, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	qp = ibv_create_qp(pd, &attr);
	mr = ibv_reg_mr(pd, numbers, sizeof numbers, IBV_ACCESS_LOCAL_WRITE);
	if (!qp || !mr)
		fail("queue pair or region");
}

/* An event of an armed queue, while another thread polls another queue. */
static void await_event(struct ibv_comp_channel *channel)
{
	struct ibv_cq *called;
	void *own;
	ibv_req_notify_cq(cq, 0);
	post_receive();
	post_send(1);
	if (ibv_get_cq_event(channel, &called, &own))
		fail("event");
	ibv_ack_cq_events(called, 1);
	await(2);
	printf("event: %u\n", numbers[1]);
}

int main(int count, char *words[])
{
	struct ibv_comp_channel *channel;
	pthread_t thread;
	int rounds = count > 2 ? atoi(words[2]) : 0, children = 20;
	const char *what = words[1];
	int answers = strcmp(what, "answer") == 0;
	/*
	 * 67 ms: a peer that does not answer is found in less than a second. 1 s elsewhere: on a busy
	 * machine a peer may not run for so long.
	 */
	uint8_t timeout = strcmp(what, "timeout") == 0 ? 14 : 18;
	open_device(&channel);
	connect_to(exchange(words[3], words[4]), words[5], timeout);
	int wrong = exchange_messages(10, answers);
	printf("connected, %d wrong\n", wrong);
	fflush(stdout);
	await_file(words[3]);
	if (strcmp(what, "signals") == 0)
		start_signals();
	if (strcmp(what, "forks") == 0)
		pthread_create(&thread, NULL, fork_children, &children);
	if (strcmp(what, "threads") == 0 || strcmp(what, "event") == 0)
		pthread_create(&thread, NULL, poll_in_vain, NULL);
	if (strcmp(what, "timeout") == 0)
		sleep_over_timeout();
	else if (strcmp(what, "event") == 0)
		await_event(channel);
	else if (strcmp(what, "spoil") == 0)
		spoil(words[6], words + 7);
	else
		wrong = exchange_messages(rounds, answers);
	if (strcmp(what, "signals") == 0)
		stop_signals();
	polling = 0;
	if (strcmp(what, "forks") == 0)
		pthread_join(thread, NULL);
	printf("%d rounds, %d wrong\n", rounds, wrong);
	fflush(stdout);
	return 0;
}
