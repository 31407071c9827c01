/* Objects by the sidecar's number, for events: an event may name an object that is gone. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

#define BUCKETS 1024

struct handle {
	uint64_t number;
	void *object;
	struct handle *next;
};

static struct handle *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int vb_handle_put(uint64_t number, void *object)
{
	struct handle *made = malloc(sizeof *made);
	if (!made)
		return ENOMEM;
	pthread_mutex_lock(&lock);
	struct handle **bucket = &buckets[number % BUCKETS];
	*made = (struct handle){ number, object, *bucket };
	*bucket = made;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* `hold` counts the event before another thread can drop the object, which waits for the count. */
void *vb_handle_hold(uint64_t number, void (*hold)(void *object, uint64_t type), uint64_t type)
{
	void *object = NULL;
	pthread_mutex_lock(&lock);
	for (struct handle *one = buckets[number % BUCKETS]; one && !object; one = one->next)
		if (one->number == number)
			object = one->object;
	if (object)
		hold(object, type);
	pthread_mutex_unlock(&lock);
	return object;
}

void vb_handle_drop(uint64_t number)
{
	pthread_mutex_lock(&lock);
	for (struct handle **at = &buckets[number % BUCKETS]; *at; at = &(*at)->next) {
		if ((*at)->number != number)
			continue;
		struct handle *gone = *at;
		*at = gone->next;
		free(gone);
		break;
	}
	pthread_mutex_unlock(&lock);
}

/* In a child of fork: the objects are the parent's. Another thread may have held the lock. */
void vb_handles_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(buckets, 0, sizeof buckets);
}
