/*
 * Calls of the program on pages that lie in the device's memory: it sees private memory, and they
 * are shared mappings.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "memory.h"
#include "turns.h"

/* Whether pages of the program's range may be the device's. */
static bool has_places(uintptr_t start, uintptr_t end)
{
	for (size_t i = 0; i < vb_places.count; i++) {
		const struct vb_place *one = &vb_places.list[i];
		if (one->address < end && one->address + one->bytes > start)
			return true;
	}
	return false;
}

/*
 * Contents that the program drops are zero afterwards, as those of private memory are: allocators
 * return such memory from calloc. Pages without a region become the program's own again.
 */
static void drop_contents(const struct vb_segment *one)
{
	size_t length = one->end - one->start;
	if (!vb_memory_is_held(one->linear, length) &&
	    vb_map((void *)one->start, length, one->rights,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED)
		return;
	memset(vb_at(one->linear), 0, length);
}

/* No page moves meanwhile. What MADV_FREE names may stay. */
static int drop_while_forking(uintptr_t start, uintptr_t end, int advice)
{
	for (size_t i = 0; advice == MADV_DONTNEED && i < vb_places.count; i++) {
		const struct vb_place *one = &vb_places.list[i];
		uintptr_t from = one->address > start ? one->address : start;
		uintptr_t to = one->address + one->bytes < end ? one->address + one->bytes : end;
		/* The device's places, whether or not a page of the program lies there. */
		if (from < to)
			memset(vb_at(vb_area() + one->at + (from - one->address)), 0, to - from);
	}
	return vb_advise((void *)start, end - start, advice);
}

/* MADV_DONTNEED and MADV_FREE have no effect on, or are refused for, the device's pages. */
static int advise(void *address, size_t length, int advice)
{
	static struct vb_segment found[VB_SEGMENTS_MAX];
	uintptr_t start = (uintptr_t)address;
	uintptr_t end = (start + length + VB_PAGE - 1) & ~(VB_PAGE - 1);
	bool drops = advice == MADV_DONTNEED || advice == MADV_FREE;
	struct vb_quiet quiet;
	if (!drops || start % VB_PAGE || end < start || vb.owner != getpid())
		return vb_advise(address, length, advice);
	if (!vb_memory_enter_unless_forking(&quiet))
		return drop_while_forking(start, end, advice);
	int count = 0, result = 0, error = errno;
	if (has_places(start, end))
		count = vb_find_segments(start, end, found, vb_is_of_device, 0, 0);
	if (count <= 0)
		result = vb_advise(address, length, advice);
	for (int i = 0; i < count; i++) {
		if (start < found[i].start)
			result |= vb_advise((void *)start, found[i].start - start, advice);
		/* MADV_FREE may keep what is there. */
		if (advice == MADV_DONTNEED)
			drop_contents(&found[i]);
		start = found[i].end;
	}
	if (count > 0 && start < end)
		result |= vb_advise((void *)start, end - start, advice);
	if (result)
		error = errno;
	vb_memory_leave(quiet);
	errno = error;
	return result ? -1 : 0;
}

VB_EXPORT int madvise(void *address, size_t length, int advice)
{
	return advise(address, length, advice);
}

/* ---- mremap */

static size_t whole_pages(size_t bytes)
{
	return (bytes + VB_PAGE - 1) & ~(VB_PAGE - 1);
}

/* The kernel would grow the mapping over the device's next pages. */
static bool grow_in_place(uintptr_t end, size_t more, int rights)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	void *made = vb_map((void *)end, more, rights, flags, -1, 0);
	/* Linux before 4.17 takes the address for a wish. */
	if (made != MAP_FAILED && made != (void *)end)
		vb_unmap(made, more);
	return made == (void *)end;
}

/* Pages without a region: the program's own at their new place. */
static void *copy_elsewhere(uintptr_t start, size_t old, size_t new, int flags, void *target,
			    int rights)
{
	int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	uintptr_t to = (uintptr_t)target;
	bool fixed = flags & MREMAP_FIXED, stays = flags & MREMAP_DONTUNMAP;
	if ((fixed && (to % VB_PAGE || (to < start + old && start < to + new))) ||
	    (stays && old != new))
		return errno = EINVAL, MAP_FAILED;
	void *made = vb_map(target, new, PROT_READ | PROT_WRITE, how | (fixed ? MAP_FIXED : 0), -1, 0);
	if (made == MAP_FAILED)
		return made;
	memcpy(made, (void *)start, old < new ? old : new);
	if (rights != (PROT_READ | PROT_WRITE))
		vb_protect(made, new, rights);
	if (stays)
		vb_map((void *)start, old, rights, how | MAP_FIXED, -1, 0);
	else
		vb_unmap((void *)start, old);
	return made;
}

static void *refuse_remap(uintptr_t at)
{
	static bool said;
	if (!said)
		vb_complain("mremap: registered memory at 0x%lx keeps its address; deregister it "
			    "first, or copy it (ENOMEM)",
			    (unsigned long)at);
	said = true;
	errno = ENOMEM;
	return MAP_FAILED;
}

/* Registered memory keeps its address: a region names its pages. It may grow in place, and shrink. */
static void *remap(uintptr_t start, size_t old, size_t new, int flags, void *target)
{
	static struct vb_segment found[VB_SEGMENTS_MAX];
	bool moves = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP), held = false;
	uintptr_t end = start + (old ? old : VB_PAGE);
	int ours = vb_find_segments(start, end, found, vb_is_of_device, 0, 0);
	if (ours <= 0 || (new <= old && !moves) || (moves && !(flags & MREMAP_MAYMOVE)))
		return vb_remap(start, old, new, flags, target);
	/* Private memory has no second place. */
	if (old == 0)
		return errno = EINVAL, MAP_FAILED;
	for (int i = 0; i < ours; i++)
		held |= vb_memory_is_held(found[i].linear, found[i].end - found[i].start);
	int count = vb_find_segments(start, end, found, NULL, 0, 0);
	uintptr_t at = start;
	for (int i = 0; i < count && found[i].start == at; i++)
		at = found[i].rights == found[0].rights ? found[i].end : 0;
	if (at != end)
		return errno = EFAULT, MAP_FAILED;
	if (!moves && grow_in_place(end, new - old, found[0].rights))
		return (void *)start;
	if (held && (moves || flags & MREMAP_MAYMOVE))
		return refuse_remap(start);
	if (!(flags & MREMAP_MAYMOVE) || !(found[0].rights & PROT_READ))
		return errno = ENOMEM, MAP_FAILED;
	return copy_elsewhere(start, old, new, flags, target, found[0].rights);
}

static void *remap_or_grow(uintptr_t start, size_t old_size, size_t new_size, int flags,
			   void *target)
{
	size_t old = whole_pages(old_size), new = whole_pages(new_size);
	struct vb_quiet quiet;
	if (vb.owner != getpid() || !new || start % VB_PAGE || start + old < start)
		return vb_remap(start, old_size, new_size, flags, target);
	uintptr_t end = start + (old ? old : VB_PAGE);
	if (!vb_memory_enter_unless_forking(&quiet)) {
		/* The thread that forks has the lock: no place changes. */
		if (!has_places(start, end))
			return vb_remap(start, old_size, new_size, flags, target);
		errno = ENOMEM;
		return MAP_FAILED;
	}
	void *result = has_places(start, end) ?
			       remap(start, old, new, flags, target) :
			       vb_remap(start, old_size, new_size, flags, target);
	int error = errno;
	vb_memory_leave(quiet);
	errno = error;
	return result;
}

VB_EXPORT void *mremap(void *address, size_t old_size, size_t new_size, int flags, ...)
{
	void *target = NULL;
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
		va_list list;
		va_start(list, flags);
		target = va_arg(list, void *);
		va_end(list);
	}
	return remap_or_grow((uintptr_t)address, old_size, new_size, flags, target);
}

VB_EXPORT int shmdt(const void *address)
{
	return vb_detach(address);
}

/* UCX puts its own functions over these three, which call the kernel by `syscall`. */
__attribute__((used)) long vb_memory_call(long number, long first, long second, long third,
					  long fourth, long fifth)
{
	if (number == SYS_madvise)
		return advise((void *)first, second, third);
	if (number == SYS_shmdt)
		return vb_detach((const void *)first);
	return (long)remap_or_grow(first, second, third, fourth, (void *)fifth);
}

/* ---- realloc */

/*
 * The C library grows a large block by the kernel's mremap, which would grow a mapping over the
 * device's next pages. It fails where a block has two mappings, and a block that has shrunk, or
 * lies within a larger region, may have one.
 */
VB_EXPORT void *realloc(void *block, size_t size)
{
	uintptr_t start = (uintptr_t)block;
	if (!block || !vb_memory_used() || vb.owner != getpid())
		return REAL(realloc)(block, size);
	size_t had = malloc_usable_size(block);
	struct vb_quiet quiet;
	if (size <= had || had < VB_PAGE)
		return REAL(realloc)(block, size);
	/* A thread that forks has the lock: no place changes. */
	bool locked = vb_memory_enter_unless_forking(&quiet);
	bool placed = has_places(start, start + had);
	if (locked)
		vb_memory_leave(quiet);
	if (!placed)
		return REAL(realloc)(block, size);
	void *made = malloc(size);
	if (!made)
		return NULL;
	memcpy(made, block, had);
	free(block);
	return made;
}
