/*
 * UCX, libfabric and NCCL look at /sys/class/infiniband and /dev/infiniband before they open a
 * device. Calls of the program with such a path are answered from a table.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "internal.h"

#define REAL(name)                                                                       \
	({                                                                               \
		static __typeof__(&name) real;                                           \
		if (!real)                                                               \
			real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);               \
		real;                                                                    \
	})

#define UVERBS_MAJOR 231
#define UVERBS_MINOR 192

static const char CLASS[] = "/sys/class/infiniband/verbena0";
static const char DEVICE[] = "/dev/infiniband/uverbs0";

/* Files below CLASS and their contents. */
static const struct {
	const char *path;
	const char *text;
} FILES[] = {
	{ "/node_type", "1: CA\n" },
	{ "/fw_ver", "0.1\n" },
	{ "/ports/1/link_layer", "Ethernet\n" },
	{ "/ports/1/state", "4: ACTIVE\n" },
	{ "/ports/1/phys_state", "5: LinkUp\n" },
	{ "/ports/1/rate", "40 Gb/sec (4X QDR)\n" },
	{ "/ports/1/gid_attrs/types/0", "RoCE v2\n" },
	{ "/ports/1/gid_attrs/ndevs/0", "lo\n" },
	{ "/ports/1/pkeys/0", "0xffff\n" },
};

static const char *file_text(const char *path)
{
	size_t length = sizeof CLASS - 1;
	if (!path || strncmp(path, CLASS, length))
		return NULL;
	for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
		if (!strcmp(path + length, FILES[i].path))
			return FILES[i].text;
	return NULL;
}

static bool is_folder(const char *path)
{
	size_t length = sizeof CLASS - 1;
	if (!path)
		return false;
	if (!strcmp(path, "/sys/class/infiniband") || !strcmp(path, CLASS))
		return true;
	if (strncmp(path, CLASS, length))
		return false;
	size_t rest = strlen(path + length);
	for (size_t i = 0; rest > 0 && i < sizeof FILES / sizeof *FILES; i++)
		if (!strncmp(path + length, FILES[i].path, rest) && FILES[i].path[rest] == '/')
			return true;
	return false;
}

static bool is_device(const char *path)
{
	return path && !strcmp(path, DEVICE);
}

/* A descriptor to read `text` from. */
static int open_text(const char *text)
{
	int fd = memfd_create("verbena-sysfs", MFD_CLOEXEC);
	size_t length = strlen(text);
	if (fd >= 0 && (write(fd, text, length) != (ssize_t)length || lseek(fd, 0, SEEK_SET) != 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* 0: the path is ours, and `status` is filled. */
static int stat_ours(const char *path, struct stat *status)
{
	const char *text = file_text(path);
	if (!text && !is_device(path) && !is_folder(path))
		return -1;
	memset(status, 0, sizeof *status);
	status->st_nlink = 1;
	if (text) {
		status->st_mode = S_IFREG | 0444;
		status->st_size = strlen(text);
	} else if (is_device(path)) {
		status->st_mode = S_IFCHR | 0666;
		status->st_rdev = makedev(UVERBS_MAJOR, UVERBS_MINOR);
	} else
		status->st_mode = S_IFDIR | 0555;
	return 0;
}

static int open_ours(const char *path, bool *ours)
{
	const char *text = file_text(path);
	*ours = text || is_device(path);
	if (text)
		return open_text(text);
	return *ours ? REAL(open)("/dev/null", O_RDWR | O_CLOEXEC) : -1;
}

/* The mode is there with these flags only. */
#define MODE_OF(flags)                                                                   \
	({                                                                               \
		mode_t given = 0;                                                        \
		if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) {           \
			va_list list;                                                    \
			va_start(list, flags);                                           \
			given = va_arg(list, mode_t);                                    \
			va_end(list);                                                    \
		}                                                                        \
		given;                                                                   \
	})

VB_EXPORT int open(const char *path, int flags, ...)
{
	bool ours;
	mode_t mode = MODE_OF(flags);
	int fd = open_ours(path, &ours);
	return ours ? fd : REAL(open)(path, flags, mode);
}

VB_EXPORT int open64(const char *path, int flags, ...)
{
	bool ours;
	mode_t mode = MODE_OF(flags);
	int fd = open_ours(path, &ours);
	return ours ? fd : REAL(open64)(path, flags, mode);
}

VB_EXPORT int openat(int folder, const char *path, int flags, ...)
{
	bool ours;
	mode_t mode = MODE_OF(flags);
	int fd = open_ours(path, &ours);
	return ours ? fd : REAL(openat)(folder, path, flags, mode);
}

VB_EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
	const char *text = file_text(path);
	int fd = text ? open_text(text) : -1;
	return text ? (fd < 0 ? NULL : fdopen(fd, "r")) : REAL(fopen)(path, mode);
}

VB_EXPORT FILE *fopen64(const char *restrict path, const char *restrict mode)
{
	const char *text = file_text(path);
	int fd = text ? open_text(text) : -1;
	return text ? (fd < 0 ? NULL : fdopen(fd, "r")) : REAL(fopen64)(path, mode);
}

VB_EXPORT int access(const char *path, int mode)
{
	bool ours = file_text(path) || is_device(path) || is_folder(path);
	return ours ? 0 : REAL(access)(path, mode);
}

VB_EXPORT int stat(const char *restrict path, struct stat *restrict status)
{
	return stat_ours(path, status) ? REAL(stat)(path, status) : 0;
}

/* On x86-64 both structs are the same. */
VB_EXPORT int stat64(const char *restrict path, struct stat64 *restrict status)
{
	return stat_ours(path, (struct stat *)status) ? REAL(stat64)(path, status) : 0;
}

VB_EXPORT int lstat(const char *restrict path, struct stat *restrict status)
{
	return stat_ours(path, status) ? REAL(lstat)(path, status) : 0;
}
