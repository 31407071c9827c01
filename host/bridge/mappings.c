/*
 * The mappings of the program that meet a range: by PROCMAP_QUERY of Linux 6.11, one call for each
 * of them, or by the lines of /proc/self/maps, which takes as long as there are mappings below.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "memory.h"

/* The file of the device's memory. */
static dev_t device;
static ino_t inode;

void vb_mappings_begin(int file)
{
	struct stat status = { 0 };
	fstat(file, &status);
	device = status.st_dev;
	inode = status.st_ino;
}

/* The file system, from the time at which the library was loaded; -1: absent then. */
static int processes = -1;

/* Before the program changes its root, or the mounts. */
__attribute__((constructor)) static void open_processes(void)
{
	struct rlimit files;
	/* The program needs the few that it has. */
	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur <= VB_FD_FIRST)
		return;
	int fd = syscall(SYS_openat, AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	processes = vb_lift(fd);
}

/* The program may have closed it, and have another file by its number. */
static bool has_processes(void)
{
	struct statfs status;
	return processes >= 0 && !fstatfs(processes, &status) && status.f_type == PROC_SUPER_MAGIC;
}

static int open_maps(void)
{
	const int flags = O_RDONLY | O_CLOEXEC;
	static bool said;
	int fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", flags);
	if (fd < 0 && has_processes())
		fd = syscall(SYS_openat, processes, "self/maps", flags);
	int error = errno;
	if (fd < 0 && !said) {
		said = true;
		vb_complain("registered memory needs /proc/self/maps: %s; mount /proc before the "
			    "program starts",
			    vb_error_name(error));
	}
	errno = error;
	return fd;
}

/* Where the mapping lies in the device's memory, if it is of its file. */
static void find_place(struct vb_segment *found, uint64_t offset, ino_t number, unsigned major,
		       unsigned minor)
{
	dev_t maps_device = ((dev_t)(major & 0xfff) << 8) | (minor & 0xff) |
			    ((dev_t)(minor & ~0xffu) << 12);
	if (number == inode && maps_device == device && found->shared)
		found->linear = offset + (vb.shared_file >= 0 ? vb.shared : 0);
}

/* The kernel names a segment of System V by its key, and its file by its identifier. */
#define SEGMENT_NAME "/SYSV"

static void find_segment(struct vb_segment *found, ino_t number, const char *name)
{
	found->system_v = found->shared && !strncmp(name, SEGMENT_NAME, sizeof SEGMENT_NAME - 1);
	found->segment = number;
}

/* ---- lines of /proc/self/maps */

/* Lines of the file, one by one, without memory from the heap, which may be what is moving. */
struct lines {
	int fd;
	/* The kernel answers PROCMAP_QUERY: no line is read. */
	bool has_queries;
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

/* The largest size that the pages of such a mapping can have: its line does not say. */
static uintptr_t largest_page(uintptr_t start, uintptr_t end)
{
	const uintptr_t gib = (uintptr_t)1 << 30;
	return (start | end) % gib ? VB_HUGE_PAGE : gib;
}

/* One line: start-end rights offset device inode path. */
static bool parse_line(const char *line, struct vb_segment *found)
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
	found->anonymous = number == 0 && !found->shared;
	found->page = strncmp(line + path, "/anon_hugepage", 14) == 0 ? largest_page(start, end) : VB_PAGE;
	find_place(found, offset, number, major, minor);
	find_segment(found, number, line + path);
	return true;
}

/* ---- PROCMAP_QUERY; linux/fs.h before 6.11 does not have it */

struct map_query {
	uint64_t size;
	uint64_t flags;
	uint64_t address;
	uint64_t start;
	uint64_t end;
	uint64_t rights;
	uint64_t page_size;
	uint64_t offset;
	uint64_t inode;
	uint32_t major;
	uint32_t minor;
	uint32_t name_size;
	uint32_t build_id_size;
	uint64_t name_address;
	uint64_t build_id_address;
};

enum {
	QUERY_READABLE = 1,
	QUERY_WRITABLE = 2,
	QUERY_EXECUTABLE = 4,
	QUERY_SHARED = 8,
	QUERY_COVERING_OR_NEXT = 16,
	QUERY_FILE_BACKED = 32,
};

#define QUERY_CALL _IOWR('f', 17, struct map_query)

/* The first mapping that ends behind `address`. 0 or an errno; ENOENT: there is no further one. */
static int query_mapping(int fd, uintptr_t address, bool of_files, struct vb_segment *found)
{
	struct map_query query = { .size = sizeof query,
				   .flags = QUERY_COVERING_OR_NEXT | (of_files ? QUERY_FILE_BACKED : 0),
				   .address = address };
	if (syscall(SYS_ioctl, fd, QUERY_CALL, &query))
		return errno;
	*found = (struct vb_segment){ .start = query.start, .end = query.end };
	found->rights = (query.rights & QUERY_READABLE ? PROT_READ : 0) |
			(query.rights & QUERY_WRITABLE ? PROT_WRITE : 0) |
			(query.rights & QUERY_EXECUTABLE ? PROT_EXEC : 0);
	found->shared = query.rights & QUERY_SHARED;
	found->anonymous = query.inode == 0 && !found->shared;
	found->page = query.page_size;
	find_place(found, query.offset, query.inode, query.major, query.minor);
	if (found->shared && !found->linear) {
		char name[64];
		query = (struct map_query){ .size = sizeof query, .address = found->start,
					    .name_size = sizeof name,
					    .name_address = (uintptr_t)name };
		/* A longer name is of a file. */
		if (!syscall(SYS_ioctl, fd, QUERY_CALL, &query) && query.name_size > 0)
			find_segment(found, query.inode, name);
	}
	return 0;
}

/* ---- both */

/* Not the device's memory as this library uses it. */
bool vb_is_of_device(const struct vb_segment *one, uint64_t from, uint64_t to)
{
	uintptr_t base = (uintptr_t)vb.base;
	return one->linear && (one->start < base || one->start >= base + vb.bytes);
}

/*
 * The next mapping that ends behind `*address`, in the order of addresses. False: there is no
 * further one, or its line cannot be read.
 */
static bool next_mapping(struct lines *lines, uintptr_t *address, bool of_files,
			 struct vb_segment *found)
{
	char line[512];
	if (lines->has_queries) {
		int error = query_mapping(lines->fd, *address, of_files, found);
		if (!error)
			*address = found->end;
		/* An older kernel, or a filter of system calls. */
		lines->has_queries = !error || error == ENOENT;
		if (lines->has_queries)
			return !error;
	}
	while (next_line(lines, line, sizeof line)) {
		char *end;
		strtoul(line, &end, 16);
		/* Most lines are below, and sscanf takes longer. */
		if (*end == '-' && strtoul(end + 1, NULL, 16) > *address &&
		    parse_line(line, found))
			return true;
	}
	return false;
}

static bool open_lines(struct lines *lines)
{
	lines->at = lines->length = 0;
	lines->has_queries = true;
	lines->fd = open_maps();
	return lines->fd >= 0;
}

int vb_find_segments(uintptr_t start, uintptr_t end, struct vb_segment *list, vb_choose wanted,
		     uint64_t from, uint64_t to)
{
	static struct lines lines;
	struct vb_segment one;
	uintptr_t address = start;
	int count = 0;
	if (!open_lines(&lines))
		return -1;
	/* Chosen mappings are of the device's file. */
	while (count < VB_SEGMENTS_MAX && next_mapping(&lines, &address, wanted, &one)) {
		if (one.start >= end)
			break;
		if (wanted && !wanted(&one, from, to))
			continue;
		uintptr_t first = start & ~(one.page - 1);
		uintptr_t behind = (end - 1) | (one.page - 1);
		if (one.start < first) {
			if (one.linear)
				one.linear += first - one.start;
			one.start = first;
		}
		if (one.end - 1 > behind)
			one.end = behind + 1;
		list[count++] = one;
	}
	close(lines.fd);
	return count;
}

struct vb_heap vb_find_heap(uintptr_t start, uintptr_t end, size_t most)
{
	static struct lines lines;
	struct vb_segment one;
	struct vb_heap heap = { 0 };
	uintptr_t address = start > most ? start - most : 0;
	if (open_lines(&lines)) {
		while (next_mapping(&lines, &address, false, &one)) {
			/* Not the device's memory itself, nor the addresses reserved behind it. */
			bool own = one.rights && (one.anonymous || vb_is_of_device(&one, 0, 0));
			bool joins = own && one.start == heap.end;
			/* Reserved addresses behind it. */
			if (one.start > start && one.start == heap.end && one.anonymous && !one.rights)
				heap.growth = VB_GROWS_ARENA;
			if (one.start > start && (!joins || one.start - start > most))
				break;
			if (!joins)
				heap.start = one.start;
			if (own)
				heap.end = one.end;
		}
		close(lines.fd);
	}
	if (heap.start > start || heap.end < end)
		heap = (struct vb_heap){ start, end, heap.growth };
	uintptr_t top = (uintptr_t)sbrk(0);
	if (heap.start < top && top <= heap.end)
		heap.growth = VB_GROWS_BRK;
	return heap;
}
