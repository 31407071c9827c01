/*
 * Locks of the library's objects and tables. A thread of the parent may hold one at the fork, and
 * no thread of the child gives it back: the first use in a child makes the lock free.
 */
#include "internal.h"

unsigned vb_forks;
static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;

void vb_lock_init(struct vb_lock *lock)
{
	pthread_mutex_init(&lock->mutex, NULL);
	lock->forks = vb_forks;
}

void vb_lock_renew(struct vb_lock *lock)
{
	pthread_mutex_lock(&renewing);
	if (lock->forks != vb_forks) {
		pthread_mutex_init(&lock->mutex, NULL);
		__atomic_store_n(&lock->forks, vb_forks, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&renewing);
}

void vb_locks_leave(void)
{
	pthread_mutex_init(&renewing, NULL);
	vb_forks++;
}
