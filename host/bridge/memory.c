/*
 * Registered pages are pages of the device's memory: their contents are copied there, and the
 * device's pages are mapped in their place. So device and program see the same bytes.
 *
 * Each page has one place (places.c). Pages stay where they are when regions end, and are the
 * program's own again when other regions find no place. A range that has no place as a whole, since
 * pages of other regions are in it or in its way, has several: its region is a layout of pieces.
 *
 * While a page is copied, stores of other threads to it wait in a handler of SIGSEGV: the page is
 * read-only in between.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "internal.h"
#include "memory.h"
#include "turns.h"

#ifndef __x86_64__
#error "verbena run: the library is for linux-x64"
#endif

/* musl has none. */
#pragma weak __libc_single_threaded

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

struct vb_places vb_places;
/* Regions on each page of the area: up to 4 MiB, which are memory once they are written. */
static uint32_t *page_regions;
static size_t held_pages;
static bool used;

/* One entry for each page, and one while an entry is divided. */
static size_t list_bytes(void)
{
	return (vb_places.bytes / VB_PAGE + 1) * sizeof *vb_places.list;
}

int vb_memory_begin(void)
{
	vb_mappings_begin(vb.shared_file >= 0 ? vb.shared_file : vb.memory);
	if (vb_places.list)
		vb_unmap(vb_places.list, list_bytes());
	vb_places = (struct vb_places){ .bytes = vb.hello[HELLO_AREA_BYTES] };
	/* Not from the heap: an allocator that gives memory back asks for places (madvise). */
	vb_places.list = vb_map(NULL, list_bytes(), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	free(page_regions);
	page_regions = calloc(vb_places.bytes / VB_PAGE + 1, sizeof *page_regions);
	held_pages = 0;
	used = false;
	if (vb_places.list != MAP_FAILED && page_regions)
		return 0;
	if (vb_places.list == MAP_FAILED)
		vb_places.list = NULL;
	return ENOMEM;
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
	if ((&__libc_single_threaded && __libc_single_threaded) || has_stack_pointer(one->start, one->end))
		return false;
	if (!(one->rights & PROT_WRITE))
		return false;
	moving.start = one->start;
	moving.end = one->end;
	__atomic_store_n(&moving.active, 1, __ATOMIC_RELEASE);
	/* The handler stays: a signal of this move may be delivered later. */
	vb_signals_catch(true);
	vb_protect((void *)one->start, one->end - one->start, one->rights & ~PROT_WRITE);
	return true;
}

static void release_stores(const struct vb_segment *one, bool moved)
{
	if (!moved)
		vb_protect((void *)one->start, one->end - one->start, one->rights);
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
		vb_advise((void *)(one->end - VB_PAGE), VB_PAGE, MADV_DONTDUMP);
	return 0;
}

int vb_make_private(const struct vb_segment *one, const void *contents)
{
	size_t length = one->end - one->start;
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	void *copy = vb_map(NULL, length, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (copy == MAP_FAILED)
		return errno;
	uint64_t signals = vb_block_signals();
	bool held = hold_stores(one);
	memcpy(copy, contents, length);
	vb_protect(copy, length, one->rights);
	void *at = vb_remap((uintptr_t)copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
			    (void *)one->start);
	int error = at == MAP_FAILED ? errno : 0;
	if (error)
		vb_unmap(copy, length);
	if (held)
		release_stores(one, error == 0);
	vb_restore_signals(signals);
	return error;
}

/* Gives the program pages of its own with the same contents. 0 or an errno. */
static int move_back(const struct vb_segment *one)
{
	return vb_make_private(one, vb_at(one->linear));
}

/* ---- places */

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

/* The first pages without a region in [from, to) of the area, up to `*end`; `to`: all have regions. */
static uint64_t unheld(uint64_t from, uint64_t to, uint64_t *end)
{
	while (from < to && page_regions[from / VB_PAGE] > 0)
		from += VB_PAGE;
	for (*end = from; *end < to && page_regions[*end / VB_PAGE] == 0;)
		*end += VB_PAGE;
	return from;
}

/* Pages of the program in the area, some of them without a region; not this thread's stack. */
static bool may_leave(const struct vb_segment *one, uint64_t from, uint64_t to)
{
	if (!lies_in(one, from, to) || has_stack_pointer(one->start, one->end))
		return false;
	uint64_t at = one->linear - from, behind = at + (one->end - one->start), end;
	return unheld(at, behind, &end) < behind;
}

/* Makes the pages without a region the program's own. False: Linux has no memory for them. */
static bool move_unheld(const struct vb_segment *one)
{
	uint64_t at = one->linear - vb_area(), behind = at + (one->end - one->start), end;
	for (uint64_t from = at; (from = unheld(from, behind, &end)) < behind; from = end) {
		struct vb_segment part = *one;
		part.start += from - at;
		part.end = part.start + (end - from);
		part.linear += from - at;
		if (move_back(&part))
			return false;
	}
	return true;
}

/* Nothing of the program lies there any more. */
static void give_back(uint64_t at, uint64_t bytes)
{
	off_t offset;
	int fd = file_of(vb_area() + at, &offset);
	vb_leave_place(&vb_places, at, bytes);
	if (vb.shared_file < 0)
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

/* Frees the places of pages without a region. */
static void sweep(void)
{
	static struct vb_segment found[VB_SEGMENTS_MAX];
	int count;
	while ((count = vb_find_segments(0, UINTPTR_MAX, found, may_leave, vb_area(),
					 vb_area() + vb_places.bytes)) > 0)
		for (int i = 0; i < count; i++)
			if (!move_unheld(&found[i]))
				return;
	if (count < 0)
		return;
	size_t i;
	for (uint64_t at = 0, end; (i = vb_first_place(&vb_places, at)) < vb_places.count; at = end) {
		struct vb_place one = vb_places.list[i];
		uint64_t behind = one.at + one.bytes;
		uint64_t from = unheld(at > one.at ? at : one.at, behind, &end);
		if (from < behind && !has_stack_pointer(one.address, one.address + one.bytes))
			give_back(from, end - from);
	}
}

static void complain(uintptr_t address, size_t length)
{
	/* Programs try again and again. */
	static bool told;
	if (told)
		return;
	told = true;
	vb_complain("ibv_reg_mr: no place for %zu bytes at 0x%lx in at most %d pieces: %zu of %" PRIu64
		    " MiB for registered memory are in use; start with a larger --memory (at most "
		    "%s), or register less (ENOMEM)",
		    length, (unsigned long)address, VB_PIECES_MAX, held_pages * VB_PAGE >> 20,
		    vb_places.bytes >> 20, vb.shared_file >= 0 ? "3839M with --name" : "4G");
}

static void complain_of_shared(uintptr_t address)
{
	static bool told;
	if (told)
		return;
	told = true;
	vb_complain("ibv_reg_mr: 0x%lx is memory that is shared with a file or another process; "
		    "register private memory (EOPNOTSUPP)",
		    (unsigned long)address);
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
	if (at < end && count == VB_SEGMENTS_MAX)
		return ENOMEM;
	return at >= end ? 0 : EFAULT;
}

/* Where the page `first` would lie if `one` stays where it is. */
static uint64_t place_by(const struct vb_segment *one, uintptr_t first)
{
	return one->linear - vb_area() - (one->start - first);
}

/* The place that pages with regions leave to the range; VB_NO_PLACE: they leave none. */
static bool is_forced(const struct vb_segment *list, int count, uintptr_t first, uint64_t *at)
{
	bool forced = false;
	for (int i = 0; i < count; i++) {
		if (!list[i].linear || !vb_memory_is_held(list[i].linear, list[i].end - list[i].start))
			continue;
		uint64_t wanted = place_by(&list[i], first);
		*at = forced && wanted != *at ? VB_NO_PLACE : wanted;
		forced = true;
		if (*at == VB_NO_PLACE)
			break;
	}
	return forced;
}

/*
 * Whether the pages from `first` on may lie there. A region that has them is of memory that was
 * unmapped since: its pages stay as they were.
 */
static bool may_lie(uint64_t at, uint64_t bytes, uintptr_t first)
{
	return at != VB_NO_PLACE && vb_place_is_free(&vb_places, at, bytes, first) &&
	       !vb_memory_is_held(vb_area() + at, bytes);
}

/*
 * Whether a region has a page of that place which is not there in the program any more: it was
 * replaced, and the region keeps its bytes.
 */
static bool has_replaced(const struct vb_segment *list, int count, uintptr_t first, uint64_t at)
{
	for (int i = 0; i < count; i++)
		if (!list[i].linear && vb_memory_is_held(vb_area() + at + (list[i].start - first),
							 list[i].end - list[i].start))
			return true;
	return false;
}

/* A place where the neighbouring mappings have theirs, or find theirs; or any. */
static uint64_t choose_anew(uintptr_t first, uint64_t bytes, bool swept)
{
	struct vb_heap heap = { first, first + bytes, VB_GROWS_DOWN };
	uint64_t at = vb_place_near(&vb_places, first, bytes, heap);
	if (may_lie(at, bytes, first))
		return at;
	heap = vb_find_heap(first, first + bytes, vb_places.bytes);
	at = vb_place_near(&vb_places, first, bytes, heap);
	if (may_lie(at, bytes, first))
		return at;
	at = vb_place_in_gap(&vb_places, heap.end - heap.start, heap.growth);
	if (at != VB_NO_PLACE)
		return at + (first - heap.start);
	/* It fits if pages without a region leave their places. */
	if (!swept && heap.end - heap.start <= vb_places.bytes - held_pages * VB_PAGE)
		return VB_NO_PLACE;
	return vb_place_in_gap(&vb_places, bytes, heap.growth);
}

/*
 * A place for [first, last), whose mappings these are, or VB_NO_PLACE. `swept`: no pages without a
 * region are in the way.
 */
static uint64_t choose(const struct vb_segment *list, int count, uintptr_t first, uintptr_t last,
		       bool swept)
{
	uint64_t at = VB_NO_PLACE, bytes = last - first;
	if (is_forced(list, count, first, &at))
		return vb_place_is_free(&vb_places, at, bytes, first) &&
				       !has_replaced(list, count, first, at) ?
			       at :
			       VB_NO_PLACE;
	/* Pages that lie there already need not move. */
	for (int i = 0; i < count; i++)
		if (list[i].linear && may_lie(place_by(&list[i], first), bytes, first))
			return place_by(&list[i], first);
	return choose_anew(first, bytes, swept);
}

/* Moves these mappings to the place of `first`. 0 or an errno. */
static int move_all(const struct vb_segment *list, int count, uintptr_t first, uint64_t at)
{
	for (int i = 0; i < count; i++) {
		uint64_t target = vb_area() + at + (list[i].start - first);
		if (list[i].linear == target)
			continue;
		int error = move_pages(&list[i], target);
		if (error)
			return error;
		if (list[i].linear)
			give_back(list[i].linear - vb_area(), list[i].end - list[i].start);
	}
	return 0;
}

/* ---- ranges of several pieces */

/* The pages behind the last piece lie there. False: there are too many pieces. */
static bool add_piece(struct vb_piece *pieces, int *count, uint64_t linear, uint64_t bytes)
{
	struct vb_piece *last = &pieces[*count - 1];
	if (*count > 0 && last->linear + last->length == linear) {
		last->length += bytes;
		return true;
	}
	if (*count == VB_PIECES_MAX)
		return false;
	pieces[(*count)++] = (struct vb_piece){ linear, bytes };
	return true;
}

/* Moves what these mappings have of [from, to) to the place of `from`. 0 or an errno. */
static int move_part(const struct vb_segment *list, int count, uintptr_t from, uintptr_t to,
		     uint64_t at)
{
	int error = 0;
	vb_take_place(&vb_places, at, to - from, from);
	for (int i = 0; i < count && !error; i++) {
		struct vb_segment part = list[i];
		part.start = part.start > from ? part.start : from;
		part.end = part.end < to ? part.end : to;
		if (part.start < part.end)
			error = move_pages(&part, vb_area() + at + (part.start - from));
	}
	return error;
}

/* The same address, or that of the huge page which it would divide. */
static uintptr_t cut_at(const struct vb_segment *list, int count, uintptr_t address)
{
	for (int i = 0; i < count; i++)
		if (list[i].start < address && address < list[i].end)
			return address & ~(list[i].page - 1);
	return address;
}

/* Neighbouring mappings without a place get as few pieces as the gaps allow. 0 or an errno. */
static int fill_gaps(const struct vb_segment *list, int count, struct vb_piece *pieces, int *made)
{
	uintptr_t from = list[0].start, end = list[count - 1].end;
	while (from < end) {
		uintptr_t to = end;
		uint64_t at = choose_anew(from, to - from, true);
		if (at == VB_NO_PLACE) {
			to = cut_at(list, count, from + vb_largest_gap(&vb_places));
			at = to > from ? vb_place_in_gap(&vb_places, to - from, VB_GROWS_DOWN) :
					 VB_NO_PLACE;
		}
		if (at == VB_NO_PLACE || !add_piece(pieces, made, vb_area() + at, to - from))
			return ENOMEM;
		int error = move_part(list, count, from, to, at);
		if (error)
			return error;
		from = to;
	}
	return 0;
}

/* Pages that have a place stay there, and the others go where there is room. 0 or an errno. */
static int place_in_pieces(const struct vb_segment *list, int count, struct vb_piece *pieces,
			   int *made)
{
	int error = 0;
	*made = 0;
	for (int i = 0, next; i < count && !error; i = next) {
		for (next = i + 1; !list[i].linear && next < count && !list[next].linear;)
			next++;
		if (!list[i].linear)
			error = fill_gaps(list + i, next - i, pieces, made);
		else if (!add_piece(pieces, made, list[i].linear, list[i].end - list[i].start))
			error = ENOMEM;
	}
	return error;
}

/* Leaves of the pieces what is of [first + skip, first + skip + length). Returns their number. */
static int cut_pieces(struct vb_piece *pieces, int count, uint64_t skip, uint64_t length)
{
	int kept = 0;
	for (int i = 0; i < count && length > 0; i++) {
		struct vb_piece one = pieces[i];
		uint64_t cut = skip < one.length ? skip : one.length;
		skip -= cut;
		one.linear += cut;
		one.length = one.length - cut < length ? one.length - cut : length;
		length -= one.length;
		if (one.length > 0)
			pieces[kept++] = one;
	}
	return kept;
}

/* For the pages of [start, end); `*first`: where the pieces begin. Returns their number, or 0. */
static int place(uintptr_t start, uintptr_t end, bool writes, struct vb_piece *pieces,
		 uintptr_t *first)
{
	static struct vb_segment found[VB_SEGMENTS_MAX];
	for (bool swept = false;;) {
		int count = vb_find_segments(start, end, found, NULL, 0, 0);
		int error = count < 0 ? errno : check_segments(found, count, start, end, writes);
		if (error == EOPNOTSUPP && vb_take_segments(found, count) > 0)
			continue;
		if (error == EOPNOTSUPP)
			complain_of_shared(start);
		if (error) {
			errno = error;
			return 0;
		}
		/* Huge pages move whole. */
		*first = found[0].start < start ? found[0].start : start;
		uintptr_t last = found[count - 1].end > end ? found[count - 1].end : end;
		uint64_t at = choose(found, count, *first, last, swept);
		if (at == VB_NO_PLACE && !swept) {
			/* The mappings are others afterwards. */
			sweep();
			swept = true;
			continue;
		}
		used = true;
		int made = 1;
		if (at == VB_NO_PLACE) {
			error = place_in_pieces(found, count, pieces, &made);
			if (error == ENOMEM)
				complain(start, end - start);
		} else {
			vb_take_place(&vb_places, at, last - *first, *first);
			error = move_all(found, count, *first, at);
			pieces[0] = (struct vb_piece){ vb_area() + at, last - *first };
		}
		errno = error;
		return error ? 0 : made;
	}
}

int vb_memory_place(uintptr_t address, size_t length, bool writes, struct vb_piece *pieces)
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
			complain(address, length);
		return 0;
	}
	uintptr_t end = (address + length + VB_PAGE - 1) & ~(VB_PAGE - 1), first;
	int count = place(start, end, writes, pieces, &first);
	return cut_pieces(pieces, count, address - first, length);
}

static void hold(struct vb_piece piece, int change)
{
	uint64_t end = piece.linear + piece.length - 1 - vb_area();
	for (uint64_t page = (piece.linear - vb_area()) / VB_PAGE; page <= end / VB_PAGE; page++) {
		bool was_held = page_regions[page] > 0;
		page_regions[page] += change;
		held_pages += (page_regions[page] > 0) - was_held;
	}
}

void vb_memory_hold(const struct vb_piece *pieces, int count, int change)
{
	for (int i = 0; i < count; i++)
		hold(pieces[i], change);
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
	return separate(vb_area(), vb_area() + vb_places.bytes);
}
