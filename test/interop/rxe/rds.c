/*
 * AF_RDS sockets of Linux, for tests with a peer outside:
 *
 *   rds echo ADDR PORT               echoes each message
 *   rds stream ADDR PORT PEER PORT N sends N numbered messages of many sizes
 *   rds count ADDR PORT N            takes N of them, which must come in order and whole
 *   rds slow ADDR PORT N FILE        the same, but reads only when FILE is there; SO_RCVBUF is small
 *   rds ping ADDR PEER N             N pings: empty messages to port 0
 *   rds lend ADDR PORT PEER PORT N   a cookie of N bytes, which the peer reads and writes; revoked
 *   rds borrow ADDR PORT PEER PORT N writes and reads N bytes of a cookie that comes; writes again,
 *                                    half of them and all
 *
 * A message begins with its number and its length, 32 bits each, big endian; byte i behind them is
 * 7 i + 13 times the number.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rds.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef AF_RDS
#define AF_RDS 21
#endif
#define BYTES_MAX (1 << 20)
#define HEAD 8

static const unsigned sizes[] = { 10, 100, 1000, 4096, 4097, 8192, 30000, 65536, 200, 300000 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static unsigned char message[BYTES_MAX];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in at(const char *address, const char *port)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	if (inet_pton(AF_INET, address, &name.sin_addr) != 1)
		fail(address);
	return name;
}

static int bound(const char *address, const char *port)
{
	int fd = socket(AF_RDS, SOCK_SEQPACKET, 0);
	int room = 4 * BYTES_MAX;
	struct sockaddr_in name = at(address, port);
	if (fd < 0)
		fail("socket");
	/* Beyond what wmem_max allows: the largest message is half the buffer. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
		fail("SO_SNDBUFFORCE");
	if (bind(fd, (struct sockaddr *)&name, sizeof(name)))
		fail("bind");
	printf("bound\n");
	fflush(stdout);
	return fd;
}

/* ENOBUFS: the reader there is slow. EAGAIN: too much is on its way. */
static void send_to(int fd, size_t length, const struct sockaddr_in *to, int *refused)
{
	while (sendto(fd, message, length, MSG_DONTWAIT, (const struct sockaddr *)to,
		      sizeof(*to)) < 0) {
		if (errno != ENOBUFS && errno != EAGAIN)
			fail("sendto");
		*refused += errno == ENOBUFS;
		usleep(2000);
	}
}

static void fill(unsigned number, unsigned length)
{
	uint32_t head[2] = { htonl(number), htonl(length) };
	memcpy(message, head, HEAD);
	for (unsigned i = HEAD; i < length; i++)
		message[i] = (unsigned char)(7 * i + 13 * number);
}

static int is_whole(ssize_t length, unsigned *number)
{
	uint32_t head[2];
	if (length < HEAD)
		return 0;
	memcpy(head, message, HEAD);
	*number = ntohl(head[0]);
	if (ntohl(head[1]) != length)
		return 0;
	for (ssize_t i = HEAD; i < length; i++)
		if (message[i] != (unsigned char)(7 * i + 13 * *number))
			return 0;
	return 1;
}

static void count(int fd, unsigned wanted)
{
	for (unsigned next = 0; next < wanted; next++) {
		unsigned number = 0;
		ssize_t length = recv(fd, message, sizeof(message), 0);
		if (length < 0)
			fail("recv");
		if (!is_whole(length, &number) || number != next) {
			printf("wrong: %zd bytes, number %u, not %u\n", length, number, next);
			exit(1);
		}
	}
	printf("received %u in order\n", wanted);
}

/* Memory that a peer reaches: byte i is 7 i + 13 times `seed`. */
static void pattern(unsigned char *memory, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		memory[i] = (unsigned char)(7 * i + 13 * seed);
}

static int is_pattern(const unsigned char *memory, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		if (memory[i] != (unsigned char)(7 * i + 13 * seed))
			return 0;
	return 1;
}

static unsigned char *pages(size_t length)
{
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		fail("mmap");
	return memory;
}

/* A message of one byte, with something beside it. */
static void send_beside(int fd, const struct sockaddr_in *to, int type, const void *data,
			size_t length)
{
	char control[CMSG_SPACE(256)] = { 0 };
	char byte = 1;
	struct iovec piece = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr head = { .msg_name = (void *)to, .msg_namelen = sizeof(*to),
			       .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
			       .msg_controllen = CMSG_SPACE(length) };
	struct cmsghdr *beside = CMSG_FIRSTHDR(&head);
	beside->cmsg_level = SOL_RDS;
	beside->cmsg_type = type;
	beside->cmsg_len = CMSG_LEN(length);
	memcpy(CMSG_DATA(beside), data, length);
	while (sendmsg(fd, &head, 0) < 0) {
		if (errno != EAGAIN && errno != ENOBUFS)
			fail("sendmsg");
		usleep(2000);
	}
}

/* The next message (its first byte), or notification (-1); what came beside it goes to `data`. */
static int receive_beside(int fd, int type, void *data, size_t length)
{
	char control[CMSG_SPACE(256)];
	struct iovec piece = { .iov_base = message, .iov_len = sizeof(message) };
	struct msghdr head = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
			       .msg_controllen = sizeof(control) };
	ssize_t received = recvmsg(fd, &head, 0);
	if (received < 0)
		fail("recvmsg");
	for (struct cmsghdr *one = CMSG_FIRSTHDR(&head); one; one = CMSG_NXTHDR(&head, one))
		if (one->cmsg_level == SOL_RDS && one->cmsg_type == type)
			memcpy(data, CMSG_DATA(one), length);
	return received > 0 ? message[0] : -1;
}

static void lend(int fd, const struct sockaddr_in *to, size_t length)
{
	unsigned char *memory = pages(length);
	uint64_t cookie = 0;
	struct rds_get_mr_args args = { .vec = { (uintptr_t)memory, length },
					.cookie_addr = (uintptr_t)&cookie,
					.flags = RDS_RDMA_READWRITE };
	struct rds_free_mr_args revoked = { .flags = RDS_RDMA_INVALIDATE };
	pattern(memory, length, 1);
	send_beside(fd, to, RDS_CMSG_RDMA_MAP, &args, sizeof(args));
	/* The peer has read it, and then written something else. */
	receive_beside(fd, RDS_CMSG_RDMA_DEST, &cookie, 0);
	receive_beside(fd, RDS_CMSG_RDMA_DEST, &cookie, 0);
	printf("written %s\n", is_pattern(memory, length, 2) ? "whole" : "wrong");
	revoked.cookie = cookie;
	if (setsockopt(fd, SOL_RDS, RDS_FREE_MR, &revoked, sizeof(revoked)))
		fail("RDS_FREE_MR");
	printf("revoked\n");
	fflush(stdout);
	sleep(600);
}

/* Result of one operation on the peer's memory. */
static int operate(int fd, const struct sockaddr_in *to, struct rds_rdma_args *args)
{
	struct rds_rdma_notify told = { .user_token = 0, .status = -1 };
	args->flags |= RDS_RDMA_NOTIFY_ME;
	args->user_token++;
	send_beside(fd, to, RDS_CMSG_RDMA_ARGS, args, sizeof(*args));
	while (told.user_token != args->user_token)
		receive_beside(fd, RDS_CMSG_RDMA_STATUS, &told, sizeof(told));
	return told.status;
}

static void borrow(int fd, const struct sockaddr_in *to, size_t length)
{
	unsigned char *memory = pages(length);
	struct rds_iovec local = { (uintptr_t)memory, length };
	struct rds_rdma_args args = { .remote_vec = { 0, length }, .nr_local = 1,
				      .local_vec_addr = (uintptr_t)&local,
				      .flags = RDS_RDMA_READWRITE };
	receive_beside(fd, RDS_CMSG_RDMA_DEST, &args.cookie, sizeof(args.cookie));
	pattern(memory, length, 3);
	printf("write: status %d\n", operate(fd, to, &args));
	fflush(stdout);
	/* The peer has put something else there. */
	receive_beside(fd, 0, NULL, 0);
	args.flags = RDS_RDMA_FENCE;
	printf("read: status %d", operate(fd, to, &args));
	printf(", %s\n", is_pattern(memory, length, 4) ? "whole" : "wrong");
	fflush(stdout);
	/* The peer has revoked its cookie. */
	receive_beside(fd, 0, NULL, 0);
	for (size_t bytes = length / 2; bytes <= length; bytes *= 2) {
		args.remote_vec.bytes = local.bytes = bytes;
		args.flags = RDS_RDMA_READWRITE;
		printf("again: %zu bytes, status %d\n", bytes, operate(fd, to, &args));
		fflush(stdout);
	}
	sleep(600);
}

int main(int count_of, char **words)
{
	const char *mode = count_of > 1 ? words[1] : "";
	int refused = 0;
	if (!strcmp(mode, "echo") && count_of == 4) {
		int fd = bound(words[2], words[3]);
		for (;;) {
			struct sockaddr_in from;
			socklen_t size = sizeof(from);
			ssize_t length = recvfrom(fd, message, sizeof(message), 0,
						  (struct sockaddr *)&from, &size);
			if (length < 0)
				fail("recvfrom");
			send_to(fd, length, &from, &refused);
		}
	}
	if (!strcmp(mode, "stream") && count_of == 7) {
		int fd = bound(words[2], words[3]);
		struct sockaddr_in to = at(words[4], words[5]);
		unsigned wanted = atoi(words[6]);
		for (unsigned number = 0; number < wanted; number++) {
			unsigned length = sizes[number % SIZES];
			fill(number, length);
			send_to(fd, length, &to, &refused);
		}
		printf("sent %u, refused %d\n", wanted, refused);
		fflush(stdout);
		/* Messages in flight end with the socket. */
		sleep(600);
	}
	if (!strcmp(mode, "count") && count_of == 5) {
		count(bound(words[2], words[3]), atoi(words[4]));
		return 0;
	}
	if (!strcmp(mode, "slow") && count_of == 6) {
		int fd = bound(words[2], words[3]);
		int room = 8192;
		if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)))
			fail("SO_RCVBUF");
		while (access(words[5], F_OK))
			usleep(20000);
		count(fd, atoi(words[4]));
		return 0;
	}
	if ((!strcmp(mode, "lend") || !strcmp(mode, "borrow")) && count_of == 7) {
		int fd = bound(words[2], words[3]);
		struct sockaddr_in to = at(words[4], words[5]);
		(*mode == 'l' ? lend : borrow)(fd, &to, atoi(words[6]));
	}
	if (!strcmp(mode, "ping") && count_of == 5) {
		int fd = bound(words[2], "0");
		struct sockaddr_in to = at(words[3], "0");
		for (int left = atoi(words[4]); left > 0; left--) {
			struct sockaddr_in from;
			socklen_t size = sizeof(from);
			send_to(fd, 0, &to, &refused);
			if (recvfrom(fd, message, sizeof(message), 0, (struct sockaddr *)&from,
				     &size) != 0)
				fail("recvfrom");
			if (from.sin_addr.s_addr != to.sin_addr.s_addr || from.sin_port != 0) {
				printf("an answer from port %d\n", ntohs(from.sin_port));
				return 1;
			}
		}
		printf("answered\n");
		return 0;
	}
	fprintf(stderr, "rds echo|stream|count|slow|ping|lend|borrow …\n");
	return 2;
}
