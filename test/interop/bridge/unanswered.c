/* A non-blocking rconnect to an address without a device: prints what SO_ERROR says. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7471) };
	struct pollfd waiting = { .events = POLLOUT };
	int error = 0;
	socklen_t bytes = sizeof(error);
	if (argc != 2 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	waiting.fd = rsocket(AF_INET, SOCK_STREAM, 0);
	if (waiting.fd < 0 || rfcntl(waiting.fd, F_SETFL, O_NONBLOCK))
		return 3;
	if (!rconnect(waiting.fd, (struct sockaddr *)&to, sizeof(to)) || errno != EINPROGRESS)
		return 4;
	if (rpoll(&waiting, 1, -1) != 1)
		return 5;
	if (rgetsockopt(waiting.fd, SOL_SOCKET, SO_ERROR, &error, &bytes))
		return 6;
	printf("revents %#x, %s\n", (unsigned)waiting.revents, strerror(error));
	return rclose(waiting.fd);
}
