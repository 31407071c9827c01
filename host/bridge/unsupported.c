/*
 * What the device does not have. Each call is refused with EOPNOTSUPP: the real library would read
 * private fields of objects that are not its own.
 */
#define _GNU_SOURCE
#include <rdma/rsocket.h>
#include <errno.h>
#include "internal.h"

static int refuse(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

/* ---- rsockets: sockets over private parts of librdmacm's ids */

VB_EXPORT int rsocket(int domain, int type, int protocol)
{
	return refuse();
}

VB_EXPORT int rbind(int socket, const struct sockaddr *addr, socklen_t length)
{
	return refuse();
}

VB_EXPORT int rlisten(int socket, int backlog)
{
	return refuse();
}

VB_EXPORT int raccept(int socket, struct sockaddr *addr, socklen_t *length)
{
	return refuse();
}

VB_EXPORT int rconnect(int socket, const struct sockaddr *addr, socklen_t length)
{
	return refuse();
}

VB_EXPORT int rshutdown(int socket, int how)
{
	return refuse();
}

VB_EXPORT int rclose(int socket)
{
	return refuse();
}

VB_EXPORT ssize_t rrecv(int socket, void *buf, size_t length, int flags)
{
	return refuse();
}

VB_EXPORT ssize_t rrecvfrom(int socket, void *buf, size_t length, int flags,
			    struct sockaddr *addr, socklen_t *addr_length)
{
	return refuse();
}

VB_EXPORT ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	return refuse();
}

VB_EXPORT ssize_t rsend(int socket, const void *buf, size_t length, int flags)
{
	return refuse();
}

VB_EXPORT ssize_t rsendto(int socket, const void *buf, size_t length, int flags,
			  const struct sockaddr *addr, socklen_t addr_length)
{
	return refuse();
}

VB_EXPORT ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	return refuse();
}

VB_EXPORT ssize_t rread(int socket, void *buf, size_t count)
{
	return refuse();
}

VB_EXPORT ssize_t rreadv(int socket, const struct iovec *list, int count)
{
	return refuse();
}

VB_EXPORT ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return refuse();
}

VB_EXPORT ssize_t rwritev(int socket, const struct iovec *list, int count)
{
	return refuse();
}

VB_EXPORT int rpoll(struct pollfd *list, nfds_t count, int timeout)
{
	return refuse();
}

VB_EXPORT int rselect(int count, fd_set *reads, fd_set *writes, fd_set *exceptions,
		      struct timeval *timeout)
{
	return refuse();
}

VB_EXPORT int rgetpeername(int socket, struct sockaddr *addr, socklen_t *length)
{
	return refuse();
}

VB_EXPORT int rgetsockname(int socket, struct sockaddr *addr, socklen_t *length)
{
	return refuse();
}

VB_EXPORT int rsetsockopt(int socket, int level, int name, const void *value, socklen_t length)
{
	return refuse();
}

VB_EXPORT int rgetsockopt(int socket, int level, int name, void *value, socklen_t *length)
{
	return refuse();
}

VB_EXPORT int rfcntl(int socket, int command, ...)
{
	return refuse();
}

VB_EXPORT off_t riomap(int socket, void *buf, size_t length, int rights, int flags, off_t offset)
{
	return refuse();
}

VB_EXPORT int riounmap(int socket, void *buf, size_t length)
{
	return refuse();
}

VB_EXPORT size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	return refuse();
}
