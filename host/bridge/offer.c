/*
 * The device in the process of `verbena run` (device-offer.ts): the program connects to it and
 * passes what a sidecar would inherit. That process takes its own child alone, once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "internal.h"

/* It may be stopped, or busy. */
#define ANSWER_MILLIS 3000

/* Has this process a limit that a sidecar raises? Its parent may have it, too. */
static bool is_limited(void)
{
	const int kinds[] = { RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_CPU };
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct rlimit limit;
		if (getrlimit(kinds[i], &limit) || limit.rlim_cur != limit.rlim_max)
			return true;
	}
	return false;
}

static int64_t millis(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static bool has_answered(int socket)
{
	char answer;
	int64_t end = millis() + ANSWER_MILLIS;
	struct pollfd one = { .fd = socket, .events = POLLIN };
	for (int64_t left = ANSWER_MILLIS; left > 0; left = end - millis()) {
		int found = poll(&one, 1, left);
		if (found > 0)
			return recv(socket, &answer, 1, MSG_DONTWAIT) == 1;
		if (found == 0 || errno != EINTR)
			return false;
	}
	return false;
}

bool vb_take_offer(const int *descriptors, int count, bool *is_taken)
{
	const char *name = vb_setting("VERBENA_RUN_OFFER"), *parent = vb_setting("VERBENA_RUN_PARENT");
	*is_taken = false;
	if (!name || !*name || !parent || strtol(parent, NULL, 10) != getppid() || is_limited())
		return false;
	int socket = vb_connect(name, getppid());
	if (socket < 0)
		return false;
	bool is_sent = true;
	for (int i = 0; i < count && is_sent; i++)
		is_sent = vb_pass_descriptor(socket, descriptors[i]) == 0;
	*is_taken = is_sent && has_answered(socket);
	close(socket);
	return true;
}
