/*
 * Registered pages are pages of the device's memory: their contents are copied there, and the
 * device's pages are mapped in their place. So device and program see the same bytes.
 *
 * The device's memory for pages is divided into apertures (apertures.c). Each page has one place,
 * and ranges that overlap in any way need no page to move twice. Pages stay where they are when
 * regions end; apertures without a region are emptied when no aperture is free.
 *
 * While a page is copied, stores of other threads to it wait in a handler of SIGSEGV: the page is
 * read-only in between.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "internal.h"
#include "memory.h"
#include "turns.h"

#ifndef __x86_64__
#error "verbena run: the library is for linux-x64"
#endif

/* Recursive: an allocator that this library calls may give memory back (madvise). */
pthread_mutex_t vb_memory_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* How often this thread has entered, and its signals before. */
static __thread struct {
	unsigned depth;
	uint64_t signals;
} entered __attribute__((tls_model("initial-exec")));

struct vb_quiet vb_memory_enter(void)
{
	struct vb_quiet before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before.cancel);
	before.signals = vb_block_signals();
	pthread_mutex_lock(&vb_memory_lock);
	if (entered.depth++ == 0)
		entered.signals = before.signals;
	return before;
}

uint64_t vb_memory_signals(uint64_t otherwise)
{
	return entered.depth > 0 ? entered.signals : otherwise;
}

void vb_memory_leave(struct vb_quiet before)
{
	entered.depth--;
	pthread_mutex_unlock(&vb_memory_lock);
	vb_restore_signals(before.signals);
	pthread_setcancelstate(before.cancel, NULL);
}

/*
 * An allocator calls madvise under its lock, and a fork waits for that lock while it has the
 * memory's. False: a thread forks.
 */
bool vb_memory_enter_unless_forking(struct vb_quiet *before)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancel);
	before->signals = vb_block_signals();
	while (pthread_mutex_trylock(&vb_memory_lock)) {
		if (__atomic_load_n(&vb_forking, __ATOMIC_ACQUIRE)) {
			vb_restore_signals(before->signals);
			pthread_setcancelstate(before->cancel, NULL);
			return false;
		}
		sched_yield();
	}
	if (entered.depth++ == 0)
		entered.signals = before->signals;
	return true;
}

struct vb_apertures vb_apertures;
/* Regions on each page of the area: up to 4 MiB, which are memory once they are written. */
static uint32_t *page_regions;
static bool used;
static dev_t device;
static ino_t inode;

int vb_memory_begin(void)
{
	struct stat status = { 0 };
	fstat(vb.shared_file >= 0 ? vb.shared_file : vb.memory, &status);
	device = status.st_dev;
	inode = status.st_ino;
	free(vb_apertures.list);
	vb_apertures.bytes = vb.hello[HELLO_APERTURE_BYTES];
	vb_apertures.count = vb.hello[HELLO_AREA_BYTES] / vb_apertures.bytes;
	vb_apertures.list = calloc(vb_apertures.count, sizeof *vb_apertures.list);
	free(page_regions);
	page_regions = calloc(vb.hello[HELLO_AREA_BYTES] / VB_PAGE + 1, sizeof *page_regions);
	used = false;
	return vb_apertures.list && page_regions ? 0 : ENOMEM;
}

bool vb_memory_used(void)
{
	return used;
}

/* The file that has pages of the area, and where in it. */
static int file_of(uint64_t linear, off_t *offset)
{
	*offset = linear - (vb.shared_file >= 0 ? vb.shared : 0);
	return vb.shared_file >= 0 ? vb.shared_file : vb.memory;
}

/* ---- /proc/self/maps */

/* Lines of the file, one by one, without memory from the heap, which may be what is moving. */
struct lines {
	int fd;
	size_t at;
	size_t length;
	char buffer[8192];
};

static bool next_line(struct lines *lines, char *line, size_t size)
{
	size_t length = 0;
	for (;;) {
		if (lines->at == lines->length) {
			ssize_t got = read(lines->fd, lines->buffer, sizeof lines->buffer);
			if (got <= 0)
				return false;
			lines->length = got;
			lines->at = 0;
		}
		char one = lines->buffer[lines->at++];
		if (one == '\n')
			break;
		if (length + 1 < size)
			line[length++] = one;
	}
	line[length] = 0;
	return true;
}

/* One line: start-end rights offset device inode path. */
static bool parse_line(const char *line, struct vb_segment *found, bool *huge)
{
	unsigned long start, end, offset, number;
	unsigned major, minor;
	char rights[5];
	int path = 0;
	if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %n", &start, &end, rights, &offset, &major,
		   &minor, &number, &path) < 7)
		return false;
	*found = (struct vb_segment){ .start = start, .end = end };
	found->rights = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) |
			(rights[2] == 'x' ? PROT_EXEC : 0);
	found->shared = rights[3] == 's';
	*huge = strncmp(line + path, "/anon_hugepage", 14) == 0;
	dev_t maps_device = ((dev_t)(major & 0xfff) << 8) | (minor & 0xff) |
			    ((dev_t)(minor & ~0xffu) << 12);
	if (number == inode && maps_device == device && found->shared)
		found->linear = offset + (vb.shared_file >= 0 ? vb.shared : 0);
	return true;
}

/* Not the device's memory as this library uses it. */
bool vb_is_of_device(const struct vb_segment *one, uint64_t from, uint64_t to)
{
	uintptr_t base = (uintptr_t)vb.base;
	return one->linear && (one->start < base || one->start >= base + vb.bytes);
}

int vb_find_segments(uintptr_t start, uintptr_t end, struct vb_segment *list, vb_choose wanted,
		     uint64_t from, uint64_t to)
{
	static struct lines lines;
	char line[512];
	int count = 0;
	lines.at = lines.length = 0;
	lines.fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (lines.fd < 0)
		return -1;
	while (count < VB_SEGMENTS_MAX && next_line(&lines, line, sizeof line)) {
		struct vb_segment one;
		bool huge;
		if (!parse_line(line, &one, &huge) || one.end <= start || one.start >= end)
			continue;
		if (wanted && !wanted(&one, from, to))
			continue;
		if (one.start < start && !huge) {
			if (one.linear)
				one.linear += start - one.start;
			one.start = start;
		}
		if (one.end > end && !huge)
			one.end = end;
		list[count++] = one;
	}
	close(lines.fd);
	return count;
}

/* ---- moving pages */

static struct {
	uintptr_t start;
	uintptr_t end;
	int active;
	/* Moves that have ended. */
	unsigned ended;
} moving;

/* The last fault of this thread, and the moves that had ended then. */
static __thread struct {
	uintptr_t at;
	unsigned ended;
} fault __attribute__((tls_model("initial-exec")));

/*
 * A store to a page that is being copied waits. Its signal may come after the end of the move, so
 * each store is repeated once; a fault that comes again without a move in between is the program's.
 */
bool vb_memory_fault(uintptr_t at)
{
	if (at >= moving.start && at < moving.end)
		while (__atomic_load_n(&moving.active, __ATOMIC_ACQUIRE))
			sched_yield();
	unsigned ended = __atomic_load_n(&moving.ended, __ATOMIC_ACQUIRE);
	bool again = fault.at == at && fault.ended == ended;
	fault.at = at;
	fault.ended = ended;
	return ended > 0 && !again;
}

static bool has_stack_pointer(uintptr_t start, uintptr_t end)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	/* The frames of the calls below this one, too. */
	return here >= start && here - 65536 < end;
}

/*
 * Writes `length` bytes at `at` to the file, and maps the file in their place. Nothing is written to
 * memory between the two calls: the pages may be this very stack. Returns `at`, or a negated errno.
 */
static long swap_pages(uintptr_t at, size_t length, int fd, off_t offset, int rights)
{
	register long rax __asm__("rax") = SYS_pwrite64;
	register long rdi __asm__("rdi") = fd;
	register long rsi __asm__("rsi") = at;
	register long rdx __asm__("rdx") = length;
	register long r10 __asm__("r10") = offset;
	register long r8 __asm__("r8") = fd;
	register long r9 __asm__("r9") = offset;
	register long r12 __asm__("r12") = rights;
	__asm__ volatile("syscall\n\t"
			 "cmp %%rdx, %%rax\n\t"
			 "jne 1f\n\t"
			 "mov %%rsi, %%rdi\n\t"
			 "mov %%rdx, %%rsi\n\t"
			 "mov %%r12, %%rdx\n\t"
			 "mov %[flags], %%r10d\n\t"
			 "mov %[mmap], %%eax\n\t"
			 "syscall\n"
			 "1:"
			 : "+r"(rax), "+r"(rdi), "+r"(rsi), "+r"(rdx), "+r"(r10)
			 : "r"(r8), "r"(r9), "r"(r12), [flags] "i"(MAP_SHARED | MAP_FIXED),
			   [mmap] "i"(SYS_mmap)
			 : "rcx", "r11", "memory", "cc");
	return rax;
}

/* The same by a copy to the file's mapping at `target`: a limit of file sizes is about writes. */
static long copy_pages(uintptr_t at, size_t length, void *target, int fd, off_t offset, int rights)
{
	long rax;
	void *rdi = target;
	register uintptr_t rsi __asm__("rsi") = at;
	register size_t rcx __asm__("rcx") = length;
	register long rdx __asm__("rdx") = rights;
	register long r8 __asm__("r8") = fd;
	register long r9 __asm__("r9") = offset;
	register uintptr_t r12 __asm__("r12") = at;
	register size_t r13 __asm__("r13") = length;
	__asm__ volatile("rep movsb\n\t"
			 "mov %%r12, %%rdi\n\t"
			 "mov %%r13, %%rsi\n\t"
			 "mov %[flags], %%r10d\n\t"
			 "mov %[mmap], %%eax\n\t"
			 "syscall\n"
			 : "=&a"(rax), "+D"(rdi), "+r"(rsi), "+r"(rcx)
			 : "r"(rdx), "r"(r8), "r"(r9), "r"(r12), "r"(r13),
			   [flags] "i"(MAP_SHARED | MAP_FIXED), [mmap] "i"(SYS_mmap)
			 : "r10", "r11", "memory", "cc");
	return rax;
}

/* Makes other threads' stores to [start, end) wait. False: this thread's stack is there. */
static bool hold_stores(const struct vb_segment *one)
{
	if (__libc_single_threaded || has_stack_pointer(one->start, one->end))
		return false;
	if (!(one->rights & PROT_WRITE))
		return false;
	moving.start = one->start;
	moving.end = one->end;
	__atomic_store_n(&moving.active, 1, __ATOMIC_RELEASE);
	/* The handler stays: a signal of this move may be delivered later. */
	vb_signals_catch(true);
	mprotect((void *)one->start, one->end - one->start, one->rights & ~PROT_WRITE);
	return true;
}

static void release_stores(const struct vb_segment *one, bool moved)
{
	if (!moved)
		mprotect((void *)one->start, one->end - one->start, one->rights);
	__atomic_add_fetch(&moving.ended, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&moving.active, 0, __ATOMIC_RELEASE);
	vb_signals_catch(false);
}

#define MOVE_BYTES ((size_t)1 << 30)

/* Moves the pages of a mapping to `linear`. 0 or an errno. */
static int move_pages(const struct vb_segment *one, uint64_t linear)
{
	off_t offset;
	int fd = file_of(linear, &offset);
	size_t length = one->end - one->start;
	sigset_t all, before;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	struct rlimit limit;
	bool writes = getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY;
	bool held = hold_stores(one);
	long at = 0;
	bool moved = true;
	/* Linux writes 2 GiB less a page at a time. */
	for (size_t done = 0; moved && done < length; done += MOVE_BYTES) {
		size_t part = length - done < MOVE_BYTES ? length - done : MOVE_BYTES;
		uintptr_t from = one->start + done;
		at = writes ? swap_pages(from, part, fd, offset + done, one->rights) :
			      copy_pages(from, part, vb_at(linear + done), fd, offset + done, one->rights);
		moved = at == (long)from;
	}
	if (held)
		release_stores(one, moved);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!moved)
		return at < 0 ? -at : EFAULT;
	/* Two mappings: mremap, as realloc calls it, cannot grow over the device's next pages. */
	if (length > VB_PAGE)
		madvise((void *)(one->end - VB_PAGE), VB_PAGE, MADV_DONTDUMP);
	return 0;
}

/* Gives the program pages of its own with the same contents. 0 or an errno. */
static int move_back(const struct vb_segment *one)
{
	size_t length = one->end - one->start;
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	void *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (copy == MAP_FAILED)
		return errno;
	uint64_t signals = vb_block_signals();
	bool held = hold_stores(one);
	memcpy(copy, vb_at(one->linear), length);
	mprotect(copy, length, one->rights);
	void *at = mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)one->start);
	int error = at == MAP_FAILED ? errno : 0;
	if (held)
		release_stores(one, error == 0);
	vb_restore_signals(signals);
	return error;
}

/* ---- apertures */

static bool lies_in(const struct vb_segment *one, uint64_t from, uint64_t to)
{
	return vb_is_of_device(one, 0, 0) && one->linear < to &&
	       one->linear + (one->end - one->start) > from;
}

/* All pages of the program in [from, to) of the device's memory become its own. */
static int separate(uint64_t from, uint64_t to)
{
	static struct vb_segment found[VB_SEGMENTS_MAX];
	for (;;) {
		int count = vb_find_segments(0, UINTPTR_MAX, found, lies_in, from, to);
		if (count <= 0)
			return count < 0 ? errno : 0;
		for (int i = 0; i < count; i++) {
			int error = move_back(&found[i]);
			if (error)
				return error;
		}
	}
}

/* Empties the apertures without a region. Returns their number. */
static size_t sweep(void)
{
	size_t emptied = 0;
	for (size_t i = 0; i < vb_apertures.count; i++) {
		uintptr_t range = vb_apertures.list[i].range;
		if (!range || vb_apertures.list[i].regions ||
		    has_stack_pointer(range, range + vb_apertures.bytes))
			continue;
		uint64_t linear = vb_area() + i * vb_apertures.bytes;
		off_t offset;
		int fd = file_of(linear, &offset);
		if (separate(linear, linear + vb_apertures.bytes))
			continue;
		if (vb.shared_file < 0)
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
				  vb_apertures.bytes);
		vb_apertures.list[i].range = 0;
		emptied++;
	}
	return emptied;
}

static void complain_full(uintptr_t address, size_t length)
{
	/* Programs try again and again. */
	static bool told;
	size_t taken = 0;
	if (told)
		return;
	told = true;
	for (size_t i = 0; i < vb_apertures.count; i++)
		taken += vb_apertures.list[i].regions != 0;
	vb_complain("ibv_reg_mr: no place for %zu bytes at 0x%lx: %zu of %zu MiB for registered "
		    "memory are in use; start with a larger --memory (at most 4G), or register "
		    "less (ENOMEM)",
		    length, (unsigned long)address, taken * vb_apertures.bytes >> 20,
		    vb_apertures.count * vb_apertures.bytes >> 20);
}

/* Takes apertures for [start, end). Returns the place of `start`, or 0. */
static uint64_t take_apertures(uintptr_t start, uintptr_t end)
{
	uintptr_t range = start & ~(vb_apertures.bytes - 1);
	size_t count = (end - range + vb_apertures.bytes - 1) / vb_apertures.bytes;
	size_t first = vb_choose_apertures(&vb_apertures, range, count);
	if (first == vb_apertures.count && sweep() > 0)
		first = vb_choose_apertures(&vb_apertures, range, count);
	if (first == vb_apertures.count)
		return 0;
	for (size_t i = 0; i < count; i++)
		vb_apertures.list[first + i].range = range + i * vb_apertures.bytes;
	return vb_area() + first * vb_apertures.bytes + (start - range);
}

/* Checks that the program may register these mappings, which must have no gap. 0 or an errno. */
static int check_segments(const struct vb_segment *list, int count, uintptr_t start, uintptr_t end,
			  bool writes)
{
	uintptr_t at = start;
	for (int i = 0; i < count; i++) {
		if (list[i].start > at || !(list[i].rights & PROT_READ))
			return EFAULT;
		if (writes && !(list[i].rights & PROT_WRITE))
			return EFAULT;
		/* Other processes, or a file, would no longer see the program's stores. */
		if (list[i].shared && !list[i].linear)
			return EOPNOTSUPP;
		at = list[i].end;
	}
	return at >= end ? 0 : EFAULT;
}

static uint64_t place(uintptr_t start, uintptr_t end, bool writes)
{
	static struct vb_segment found[VB_SEGMENTS_MAX];
	int count = vb_find_segments(start, end, found, NULL, 0, 0);
	int error = count < 0 ? errno : check_segments(found, count, start, end, writes);
	if (error) {
		if (error == EOPNOTSUPP)
			vb_complain("ibv_reg_mr: 0x%lx is memory that is shared with a file or "
				    "another process; register private memory (EOPNOTSUPP)",
				    (unsigned long)start);
		errno = error;
		return 0;
	}
	/* Huge pages move whole. */
	uintptr_t first = found[0].start < start ? found[0].start : start;
	uintptr_t last = found[count - 1].end > end ? found[count - 1].end : end;
	uint64_t linear = take_apertures(first, last);
	if (linear == 0) {
		complain_full(start, end - start);
		errno = ENOMEM;
		return 0;
	}
	for (int i = 0; i < count && !error; i++) {
		uint64_t target = linear + (found[i].start - first);
		if (found[i].linear != target)
			error = move_pages(&found[i], target);
	}
	used = true;
	errno = error;
	return error ? 0 : linear + (start - first);
}

uint64_t vb_memory_place(uintptr_t address, size_t length, bool writes)
{
	uintptr_t start = address & ~(VB_PAGE - 1);
	/* A child of fork: the memory file is its parent's. */
	if (vb.owner != getpid()) {
		errno = EIO;
		return 0;
	}
	if (length == 0 || length > vb.bytes || address + length + VB_PAGE < address) {
		errno = length > vb.bytes ? ENOMEM : EINVAL;
		if (errno == ENOMEM)
			complain_full(address, length);
		return 0;
	}
	uintptr_t end = (address + length + VB_PAGE - 1) & ~(VB_PAGE - 1);
	uint64_t linear = place(start, end, writes);
	return linear ? linear + (address - start) : 0;
}

/* A region begins (1) or ends (-1) there. */
void vb_memory_hold(uint64_t linear, size_t length, int change)
{
	if (length == 0 || linear < vb_area())
		return;
	size_t last = vb_aperture_of(linear + length - 1);
	for (size_t i = vb_aperture_of(linear); i <= last && i < vb_apertures.count; i++)
		vb_apertures.list[i].regions += change;
	uint64_t end = linear + length - 1 - vb_area();
	for (uint64_t page = (linear - vb_area()) / VB_PAGE; page <= end / VB_PAGE; page++)
		page_regions[page] += change;
}

bool vb_memory_is_held(uint64_t linear, size_t length)
{
	uint64_t end = linear + length - vb_area();
	for (uint64_t page = (linear - vb_area()) / VB_PAGE; page * VB_PAGE < end; page++)
		if (page_regions[page] > 0)
			return true;
	return false;
}

int vb_memory_separate(void)
{
	return separate(vb_area(), vb_area() + vb_apertures.count * vb_apertures.bytes);
}
