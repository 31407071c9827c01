/*
 * Control verbs of a child of fork on objects of its parent, as with the kernel's device: over a
 * connection of its own, which the sidecar accepts at a name in the abstract namespace. Verbs that
 * take memory or descriptors are refused: those of the child are not the parent's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "internal.h"

static struct {
	char name[48];
	/* Token that the sidecar requires: each process of the machine may connect to the name. */
	uint64_t token[2];
	/* The process that has connected. */
	pid_t joined;
} channel;

int vb_child_begin(uint64_t words[CHILD_WORDS])
{
	const size_t size = CHILD_WORDS * sizeof *words;
	if (getrandom(words, size, 0) != (ssize_t)size)
		return errno;
	snprintf(channel.name, sizeof channel.name, "verbena-%016lx%016lx", words[0], words[1]);
	memcpy(channel.token, words + 2, sizeof channel.token);
	return 0;
}

static bool is_shared(uint32_t operation)
{
	switch (operation) {
	case OP_JOIN:
	case OP_QUERY_PORT:
	case OP_ALLOC_PD:
	case OP_DEALLOC_PD:
	case OP_ALLOC_DM:
	case OP_FREE_DM:
	case OP_QUERY_QP:
		return true;
	default:
		return false;
	}
}

/* A process of another user could have taken the name. `pid`: the process, or 0 for any. */
static bool is_peer(int socket, pid_t pid)
{
	struct ucred peer;
	socklen_t length = sizeof peer;
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		return false;
	/* The program may have given up the rights that it began with. */
	return (peer.uid == geteuid() || peer.uid == 0) && (pid == 0 || peer.pid == pid);
}

int vb_connect(const char *name, pid_t pid)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strnlen(name, sizeof address.sun_path - 1);
	memcpy(address.sun_path + 1, name, length);
	/* Node 20 has zeros up to the end in an abstract name, later ones have the name alone. */
	const socklen_t lengths[] = { sizeof address,
				      offsetof(struct sockaddr_un, sun_path) + 1 + length };
	for (int i = 0; i < 2; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&address, lengths[i]) == 0 &&
		    is_peer(fd, pid))
			return vb_lift(fd);
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

int vb_child_join(uint32_t operation)
{
	/* Forked by a system call of the program's own: the socket is still the parent's. */
	if (vb.owner != 0 || !channel.name[0] || !is_shared(operation))
		return EIO;
	if (channel.joined == getpid())
		return vb.socket < 0 ? EIO : 0;
	/* That of a parent that is such a child, too. */
	if (vb.socket >= 0)
		close(vb.socket);
	channel.joined = getpid();
	vb.socket = vb_connect(channel.name, 0);
	if (vb.socket < 0)
		return EIO;
	return VB_CALL(OP_JOIN, NULL, 0, channel.token[0], channel.token[1]);
}
