/*
 * Completion channels of the program, as the device's thread has them (device-thread.c): it writes
 * the number of a queue into the channel's pipe itself, so that no event waits for the main thread.
 * That one adds and removes queues, and takes back what the program has not read (event-pipe.ts).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "internal.h"
#include "event-channels.h"

#define BUCKETS 1024

struct queue {
	/* Its address in the device's memory. */
	uint32_t address;
	/* The writing end of its channel, which does not block. */
	int fd;
	uint64_t number;
	/* Place in the ring of the first event that may be its own: others had its address before. */
	uint64_t from;
	/* Events that the pipe had no room for. */
	unsigned waiting;
	struct queue *next;
};

static struct queue *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Events that wait, of all queues. */
static unsigned waiting;

static struct queue **bucket_of(uint32_t address)
{
	return &buckets[address / ABI_COMPLETION_QUEUE_BYTES % BUCKETS];
}

static bool has_room(int fd)
{
	struct pollfd ready = { fd, POLLOUT, 0 };
	const struct timespec none = { 0, 0 };
	return syscall(SYS_ppoll, &ready, 1, &none, NULL, 0) != 0;
}

/*
 * False: the pipe is full. One that is closed takes all. The program has the pipe as well, and may
 * have made it one that blocks.
 */
static bool put(const struct queue *queue)
{
	const struct iovec record = { (void *)&queue->number, sizeof queue->number };
	long done = syscall(SYS_pwritev2, queue->fd, &record, 1, -1l, -1l, RWF_NOWAIT);
	/* Not for a named pipe, nor in older kernels. */
	bool is_unknown = done < 0 && (errno == EOPNOTSUPP || errno == ENOSYS);
	if (is_unknown && !has_room(queue->fd))
		return false;
	if (is_unknown)
		done = syscall(SYS_write, queue->fd, &queue->number, sizeof queue->number);
	return done >= 0 || errno != EAGAIN;
}

/* Behind those that wait already. */
static void put_or_wait(struct queue *queue)
{
	if (queue->waiting == 0 && put(queue))
		return;
	queue->waiting++;
	waiting++;
}

bool vb_channel_put(uint32_t address, uint64_t place)
{
	pthread_mutex_lock(&lock);
	struct queue *queue = *bucket_of(address);
	while (queue && queue->address != address)
		queue = queue->next;
	if (queue && place >= queue->from)
		put_or_wait(queue);
	pthread_mutex_unlock(&lock);
	return queue != NULL;
}

void vb_channels_put_all(void)
{
	pthread_mutex_lock(&lock);
	for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
		for (struct queue *queue = buckets[bucket]; queue; queue = queue->next)
			/* An event that waits is as good. */
			if (queue->waiting == 0)
				put_or_wait(queue);
	pthread_mutex_unlock(&lock);
}

bool vb_channels_wait(void)
{
	/* Another thread may lower it. */
	return __atomic_load_n(&waiting, __ATOMIC_RELAXED) > 0;
}

void vb_channels_retry(void)
{
	if (!vb_channels_wait())
		return;
	pthread_mutex_lock(&lock);
	for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
		for (struct queue *queue = buckets[bucket]; queue; queue = queue->next)
			for (; queue->waiting > 0 && put(queue); queue->waiting--)
				waiting--;
	pthread_mutex_unlock(&lock);
}

/* Removes the queue at `address`, or all of the channel `fd`; `all`: each. */
static void drop(uint32_t address, int fd, bool all)
{
	pthread_mutex_lock(&lock);
	for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
		struct queue **at = &buckets[bucket];
		while (*at) {
			struct queue *gone = *at;
			if (!all && gone->address != address && gone->fd != fd) {
				at = &gone->next;
				continue;
			}
			waiting -= gone->waiting;
			*at = gone->next;
			free(gone);
		}
	}
	pthread_mutex_unlock(&lock);
}

/* Events of the queue at `address` go to `fd`, as `number`. 0 or an errno. */
VB_EXPORT int verbena_channel_add(uint32_t address, int fd, uint64_t number)
{
	struct queue *made = malloc(sizeof *made);
	if (!made)
		return ENOMEM;
	pthread_mutex_lock(&lock);
	struct queue **bucket = bucket_of(address);
	*made = (struct queue){ .address = address,
				.fd = fd,
				.number = number,
				.from = vb_thread_events(),
				.next = *bucket };
	*bucket = made;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* The queue is destroyed: it has no event from the return on. */
VB_EXPORT int verbena_channel_drop_queue(uint32_t address)
{
	drop(address, -1, false);
	return 0;
}

/* The same of all queues of a channel: the descriptor may be closed. */
VB_EXPORT int verbena_channel_drop(int fd)
{
	/* No queue is at address 0. */
	drop(0, fd, false);
	return 0;
}

void vb_channels_end(void)
{
	drop(0, -1, true);
}
