/*
 * host/bridge/datagrams.c with recorded inputs: lines "P OWN PORT ADDRESS" (a path), "K ADDRESS
 * LENGTH PATH SLOT" (a packet), "R RESULT" (of the next sendmmsg: messages, or a negated errno),
 * "W RESULT" (of the next ppoll), "S" (send). Prints each call, and each packet that is too long.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "internal.h"
#include "turns.h"

#define MEMORY (4u << 20)
#define CONTEXT 1024u
#define PATHS 4096u
#define LIST 16384u
#define ENTRIES 512

struct vb vb;

/* Scripted results, oldest first. */
struct script {
	long values[ENTRIES];
	unsigned count, next;
};
static struct script sends, polls;

static long next_of(struct script *script, long otherwise)
{
	return script->next < script->count ? script->values[script->next++] : otherwise;
}

static long send_messages(const struct mmsghdr *headers, long count)
{
	printf("send");
	for (long i = 0; i < count; i++) {
		const struct msghdr *one = &headers[i].msg_hdr;
		uint16_t segment = 0;
		if (one->msg_controllen)
			memcpy(&segment, CMSG_DATA(CMSG_FIRSTHDR(one)), sizeof segment);
		printf(" %lx+%zu/%u", (unsigned long)((char *)one->msg_iov->iov_base - vb.base),
		       one->msg_iov->iov_len, segment);
	}
	printf("\n");
	long result = next_of(&sends, count);
	if (result < 0) {
		errno = -result;
		return -1;
	}
	return result < count ? result : count;
}

/* In place of the C library's (-Dsyscall=...). */
long scripted_call(long number, ...)
{
	va_list list;
	va_start(list, number);
	va_arg(list, long);
	const void *what = va_arg(list, void *);
	long count = va_arg(list, unsigned);
	va_end(list);
	if (number == SYS_sendmmsg)
		return send_messages(what, count);
	printf("wait\n");
	return next_of(&polls, 1);
}

static void say_too_long(uint32_t qpn)
{
	printf("too long %u\n", qpn);
}

static void put_path(unsigned index, unsigned own, unsigned port, unsigned long address)
{
	struct abi_path *path = vb_at(PATHS + index * ABI_PATH_BYTES);
	*path = (struct abi_path){ .remote_gid1 = 0xffff0000u | address << 32,
				   .remote_port = port,
				   .own_kind = own };
}

int main(void)
{
	char kind;
	unsigned long a, b, c, d;
	long value;
	unsigned paths = 0, count = 0;
	vb.base = calloc(1, MEMORY);
	vb.hello[HELLO_CONTEXT] = CONTEXT;
	((struct abi_context *)vb_at(CONTEXT))->local_gid1 = 0xffff0000u;
	struct abi_send_descriptor *list = vb_at(LIST);
	vb_datagrams_begin(3, 0, 1, true);
	while (scanf(" %c", &kind) == 1) {
		if (kind == 'P' && scanf("%lu %lu %lx", &a, &b, &c) == 3)
			put_path(paths++, a, b, c);
		else if (kind == 'K' && scanf("%lx %lu %lu %lu", &a, &b, &c, &d) == 4) {
			list[count] = (struct abi_send_descriptor){
				a, b, PATHS + c * ABI_PATH_BYTES, count
			};
			((uint8_t *)vb_at(a))[5] = d;
			count++;
		} else if (kind == 'R' && scanf("%ld", &value) == 1)
			sends.values[sends.count++] = value;
		else if (kind == 'W' && scanf("%ld", &value) == 1)
			polls.values[polls.count++] = value;
		else if (kind == 'S') {
			vb_datagrams_send(list, count, say_too_long);
			printf("sent\n");
			count = 0;
		}
	}
	free(vb.base);
	return 0;
}
