/*
 * host/bridge/datagrams.c with recorded arrivals: a line "FILLED" for each recvmmsg (datagrams, or a
 * negated errno), and "LENGTH SEGMENT TOS PORT ADDRESS" for each datagram. Prints how many slots
 * each call offers, and the descriptors that it leads to: slot, length, segment size, source, and
 * the number of packets with a congestion mark.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "internal.h"
#include "turns.h"

#define SLOTS 16
#define AREA 65536u
#define MEMORY (AREA + SLOTS * VB_SLOT_BYTES)
#define CONTEXT 1024u
#define LIST 8192u
#define UDP_LEVEL 17
#define GRO 104

struct vb vb;

static void put_control(struct msghdr *header, struct cmsghdr **at, int level, int type, int value,
			size_t length)
{
	*at = *at ? CMSG_NXTHDR(header, *at) : CMSG_FIRSTHDR(header);
	(*at)->cmsg_level = level;
	(*at)->cmsg_type = type;
	(*at)->cmsg_len = CMSG_LEN(length);
	memcpy(CMSG_DATA(*at), &value, length);
}

static void arrive(struct mmsghdr *slot)
{
	unsigned length, segment, tos, port, address;
	if (scanf("%u %u %u %u %x", &length, &segment, &tos, &port, &address) != 5)
		exit(1);
	struct msghdr *header = &slot->msg_hdr;
	struct cmsghdr *at = NULL;
	slot->msg_len = length;
	memset(header->msg_iov->iov_base, 0, length);
	*(struct sockaddr_in *)header->msg_name = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = address
	};
	memset(header->msg_control, 0, header->msg_controllen);
	put_control(header, &at, SOL_IP, IP_TOS, tos, 1);
	if (segment)
		put_control(header, &at, UDP_LEVEL, GRO, segment, sizeof(int));
	header->msg_controllen = segment ? CMSG_SPACE(1) + CMSG_SPACE(sizeof(int)) : CMSG_SPACE(1);
}

/* In place of the C library's (-Dsyscall=...). */
long scripted_call(long number, ...)
{
	va_list list;
	va_start(list, number);
	va_arg(list, long);
	struct mmsghdr *headers = va_arg(list, void *);
	unsigned asked = va_arg(list, unsigned);
	va_end(list);
	long filled;
	if (number != SYS_recvmmsg || scanf("%ld", &filled) != 1)
		exit(0);
	printf("asked %u:", asked);
	if (filled > (long)asked)
		filled = asked;
	for (long i = 0; i < filled; i++)
		arrive(&headers[i]);
	if (filled >= 0)
		return filled;
	errno = -filled;
	return -1;
}

static void print(const struct abi_receive_descriptor *one)
{
	unsigned marked = 0, step = one->segment_size ? one->segment_size : one->length;
	for (unsigned at = 4; at < one->length; at += step)
		marked += *((uint8_t *)vb_at(one->address) + at) == 0x80;
	printf(" %u+%u/%u from %08lx:%u marked %u", (one->address - AREA) / VB_SLOT_BYTES,
	       one->length, one->segment_size, (unsigned long)(one->source_gid1 >> 32),
	       one->source_port, marked);
}

int main(void)
{
	vb.base = calloc(1, MEMORY);
	vb.hello[HELLO_CONTEXT] = CONTEXT;
	struct abi_context *context = vb_at(CONTEXT);
	context->local_gid1 = 0xffff0000u;
	context->receive_descriptors = LIST;
	vb_datagrams_begin(3, AREA, SLOTS, true);
	for (;;) {
		int count = vb_datagrams_receive();
		for (int i = 0; i < count; i++)
			print((struct abi_receive_descriptor *)vb_at(LIST) + i);
		printf("\n");
		fflush(stdout);
	}
}
