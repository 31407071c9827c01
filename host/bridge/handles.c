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
static struct vb_lock lock = VB_LOCK_INITIALIZER;

int vb_handle_put(uint64_t number, void *object)
{
	struct handle *made = malloc(sizeof *made);
	if (!made)
		return ENOMEM;
	vb_lock(&lock);
	struct handle **bucket = &buckets[number % BUCKETS];
	*made = (struct handle){ number, object, *bucket };
	*bucket = made;
	vb_unlock(&lock);
	return 0;
}

/* `hold` counts the event before another thread can drop the object, which waits for the count. */
void *vb_handle_hold(uint64_t number, void (*hold)(void *object, uint64_t type), uint64_t type)
{
	void *object = NULL;
	vb_lock(&lock);
	for (struct handle *one = buckets[number % BUCKETS]; one && !object; one = one->next)
		if (one->number == number)
			object = one->object;
	if (object)
		hold(object, type);
	vb_unlock(&lock);
	return object;
}

void vb_handle_drop(uint64_t number)
{
	vb_lock(&lock);
	for (struct handle **at = &buckets[number % BUCKETS]; *at; at = &(*at)->next) {
		if ((*at)->number != number)
			continue;
		struct handle *gone = *at;
		*at = gone->next;
		free(gone);
		break;
	}
	vb_unlock(&lock);
}

/* In a child of fork: the objects are the parent's. */
void vb_handles_forget(void)
{
	memset(buckets, 0, sizeof buckets);
}
