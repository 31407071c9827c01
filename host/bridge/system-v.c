/*
 * Segments of System V (shmget) that no other process has, and none can attach: UCX and perftest
 * have huge pages as such. They become private memory when they are registered.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include "memory.h"

/* The kernel's default limit of segments. */
#define TAKEN_MAX 4096

/* Segments that are private memory now: the kernel's shmdt does not know them. */
static struct taken {
	uintptr_t start;
	size_t length;
} taken[TAKEN_MAX];
static size_t taken_count;

static struct taken *find_taken(uintptr_t start)
{
	for (size_t i = 0; i < taken_count; i++)
		if (taken[i].start == start)
			return &taken[i];
	return NULL;
}

/* Attached once, and removed: its memory ends with this attachment. */
static bool is_sole(const struct vb_segment *one)
{
	struct shmid_ds status;
	return one->system_v && !shmctl(one->segment, IPC_STAT, &status) &&
	       status.shm_nattch == 1 && status.shm_perm.mode & SHM_DEST;
}

/* Chooses mappings of the segment `id`. */
static bool is_of_segment(const struct vb_segment *one, uint64_t id, uint64_t unused)
{
	return one->system_v && one->segment == (int)id;
}

static bool take(const struct vb_segment *part)
{
	static struct vb_segment whole[VB_SEGMENTS_MAX];
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	int count = vb_find_segments(0, UINTPTR_MAX, whole, is_of_segment, part->segment, 0);
	/* A mapping is one attachment. */
	if (count != 1 || !(whole->rights & PROT_READ) || (here >= whole->start && here < whole->end))
		return false;
	struct taken *one = find_taken(whole->start);
	if (!one && taken_count < TAKEN_MAX)
		one = &taken[taken_count++];
	if (!one)
		return false;
	*one = (struct taken){ whole->start, whole->end - whole->start };
	if (!vb_make_private(whole, (const void *)whole->start))
		return true;
	*one = taken[--taken_count];
	return false;
}

int vb_take_segments(const struct vb_segment *list, int count)
{
	int error = errno, made = 0;
	for (int i = 0; i < count; i++)
		made += is_sole(&list[i]) && take(&list[i]);
	errno = error;
	return made;
}

int vb_detach(const void *address)
{
	struct vb_quiet quiet;
	if (!vb_memory_enter_unless_forking(&quiet))
		return vb_syscall(SYS_shmdt, (long)address);
	int before = errno, result = vb_syscall(SYS_shmdt, (long)address);
	struct taken *one = find_taken((uintptr_t)address);
	if (one) {
		/* Not if the program has unmapped it, and attached another one there. */
		if (result && !(result = vb_unmap((void *)one->start, one->length)))
			errno = before;
		*one = taken[--taken_count];
	}
	int error = errno;
	vb_memory_leave(quiet);
	errno = error;
	return result;
}
