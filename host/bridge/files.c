/*
 * UCX, libfabric and NCCL look at /sys/class/infiniband and /dev/infiniband before they open a
 * device. Calls of the program with such a path are answered from a table.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "internal.h"

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
	{ "/ports/1/gid_attrs/ndevs/0", NULL },
	{ "/ports/1/pkeys/0", "0xffff\n" },
};

/* Folder of the network interface that has the device's address. */
static const char INTERFACES[] = "/device/net";

static const char *file_text(const char *path)
{
	size_t length = sizeof CLASS - 1;
	if (!path || strncmp(path, CLASS, length))
		return NULL;
	for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
		if (!strcmp(path + length, FILES[i].path))
			return FILES[i].text ? FILES[i].text : vb_interface_line();
	return NULL;
}

/*
 * The name of entry `index` of the folder at `path`, or NULL; names may come again. `path` may end
 * with slashes.
 */
static const char *entry_of(const char *path, size_t index, char name[NAME_MAX + 1])
{
	static const char root[] = "/sys/class/infiniband";
	const size_t files = sizeof FILES / sizeof *FILES;
	size_t length = strlen(path), class = sizeof CLASS - 1;
	while (length > 1 && path[length - 1] == '/')
		length--;
	if (length == sizeof root - 1 && !strncmp(path, root, length))
		return index == 0 ? CLASS + sizeof root : NULL;
	if (length < class || strncmp(path, CLASS, class) || (path[class] && path[class] != '/'))
		return NULL;
	const char *rest = path + class;
	length -= class;
	if (index == files && !length)
		return "device";
	if (!strncmp(rest, INTERFACES, length)) {
		size_t whole = sizeof INTERFACES - 1;
		if (length == whole)
			return index == 0 ? vb_interface_name() : NULL;
		if (length && INTERFACES[length] == '/')
			return index == 0 ? INTERFACES + length + 1 : NULL;
	}
	for (size_t i = 0, found = 0; i < files; i++) {
		const char *file = FILES[i].path;
		if (strncmp(file, rest, length) || file[length] != '/' || found++ != index)
			continue;
		size_t part = strcspn(file + length + 1, "/");
		memcpy(name, file + length + 1, part);
		name[part] = '\0';
		return name;
	}
	return NULL;
}

static bool is_folder(const char *path)
{
	char name[NAME_MAX + 1];
	return path && entry_of(path, 0, name);
}

static bool is_device(const char *path)
{
	return path && !strcmp(path, DEVICE);
}

/* ---- folders */

/* Stands for a DIR of the C library, whose first word is no such address. */
struct folder {
	const void *tag;
	char *path;
	size_t next;
	struct dirent64 entry;
};

static const char folder_tag;

static struct folder *folder_of(DIR *dir)
{
	struct folder *folder = (struct folder *)dir;
	return folder->tag == &folder_tag ? folder : NULL;
}

VB_EXPORT DIR *opendir(const char *path)
{
	if (!is_folder(path))
		return REAL(opendir)(path);
	struct folder *folder = calloc(1, sizeof *folder);
	if (!folder || !(folder->path = strdup(path))) {
		free(folder);
		return NULL;
	}
	folder->tag = &folder_tag;
	return (DIR *)folder;
}

/* Has an entry before this one the same name? */
static bool is_repeated(const char *path, size_t index, const char *name)
{
	char before[NAME_MAX + 1];
	for (size_t i = 0; i < index; i++)
		if (!strcmp(entry_of(path, i, before), name))
			return true;
	return false;
}

VB_EXPORT struct dirent64 *readdir64(DIR *dir)
{
	struct folder *folder = folder_of(dir);
	if (!folder)
		return REAL(readdir64)(dir);
	char kept[NAME_MAX + 1];
	const char *name;
	do
		name = entry_of(folder->path, folder->next++, kept);
	while (name && is_repeated(folder->path, folder->next - 1, name));
	if (!name)
		return NULL;
	folder->entry = (struct dirent64){ .d_ino = folder->next, .d_type = DT_UNKNOWN,
					   .d_reclen = sizeof folder->entry };
	strcpy(folder->entry.d_name, name);
	return &folder->entry;
}

/* On x86-64 both structs are the same. */
VB_EXPORT struct dirent *readdir(DIR *dir)
{
	return folder_of(dir) ? (struct dirent *)readdir64(dir) : REAL(readdir)(dir);
}

VB_EXPORT int closedir(DIR *dir)
{
	struct folder *folder = folder_of(dir);
	if (!folder)
		return REAL(closedir)(dir);
	free(folder->path);
	free(folder);
	return 0;
}

VB_EXPORT void rewinddir(DIR *dir)
{
	if (folder_of(dir))
		folder_of(dir)->next = 0;
	else
		REAL(rewinddir)(dir);
}

VB_EXPORT long telldir(DIR *dir)
{
	return folder_of(dir) ? (long)folder_of(dir)->next : REAL(telldir)(dir);
}

VB_EXPORT void seekdir(DIR *dir, long at)
{
	if (folder_of(dir))
		folder_of(dir)->next = at;
	else
		REAL(seekdir)(dir, at);
}

VB_EXPORT int dirfd(DIR *dir)
{
	if (!folder_of(dir))
		return REAL(dirfd)(dir);
	errno = ENOTSUP;
	return -1;
}

typedef int (*chooses)(const struct dirent64 *);
typedef int (*compares)(const struct dirent64 **, const struct dirent64 **);

static void free_entries(struct dirent64 **list, int count)
{
	while (count > 0)
		free(list[--count]);
	free(list);
}

/* The C library's own calls of opendir do not come here. */
VB_EXPORT int scandir64(const char *path, struct dirent64 ***entries, chooses choose,
			compares compare)
{
	if (!is_folder(path))
		return REAL(scandir64)(path, entries, choose, compare);
	struct dirent64 **list = NULL, *entry;
	int count = 0;
	DIR *dir = opendir(path);
	while (dir && (entry = readdir64(dir))) {
		if (choose && !choose(entry))
			continue;
		struct dirent64 **longer = realloc(list, (count + 1) * sizeof *list);
		struct dirent64 *copy = longer ? malloc(sizeof *copy) : NULL;
		list = longer ? longer : list;
		if (!copy) {
			closedir(dir);
			free_entries(list, count);
			errno = ENOMEM;
			return -1;
		}
		*copy = *entry;
		list[count++] = copy;
	}
	if (!dir)
		return -1;
	closedir(dir);
	if (compare && count > 0)
		qsort(list, count, sizeof *list, (int (*)(const void *, const void *))compare);
	*entries = list;
	return count;
}

VB_EXPORT int scandir(const char *path, struct dirent ***entries,
		      int (*choose)(const struct dirent *),
		      int (*compare)(const struct dirent **, const struct dirent **))
{
	if (!is_folder(path))
		return REAL(scandir)(path, entries, choose, compare);
	return scandir64(path, (struct dirent64 ***)entries, (chooses)choose, (compares)compare);
}

/* ---- files */

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

VB_EXPORT int openat64(int folder, const char *path, int flags, ...)
{
	bool ours;
	mode_t mode = MODE_OF(flags);
	int fd = open_ours(path, &ours);
	return ours ? fd : REAL(openat64)(folder, path, flags, mode);
}

/* With _FORTIFY_SOURCE: flags that need no mode. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);

VB_EXPORT int __open_2(const char *path, int flags)
{
	bool ours;
	int fd = open_ours(path, &ours);
	return ours ? fd : REAL(__open_2)(path, flags);
}

VB_EXPORT int __open64_2(const char *path, int flags)
{
	bool ours;
	int fd = open_ours(path, &ours);
	return ours ? fd : REAL(__open64_2)(path, flags);
}

VB_EXPORT int __openat_2(int folder, const char *path, int flags)
{
	bool ours;
	int fd = open_ours(path, &ours);
	return ours ? fd : REAL(__openat_2)(folder, path, flags);
}

VB_EXPORT int __openat64_2(int folder, const char *path, int flags)
{
	bool ours;
	int fd = open_ours(path, &ours);
	return ours ? fd : REAL(__openat64_2)(folder, path, flags);
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

VB_EXPORT int faccessat(int folder, const char *path, int mode, int flags)
{
	bool ours = file_text(path) || is_device(path) || is_folder(path);
	return ours ? 0 : REAL(faccessat)(folder, path, mode, flags);
}

VB_EXPORT int euidaccess(const char *path, int mode)
{
	bool ours = file_text(path) || is_device(path) || is_folder(path);
	return ours ? 0 : REAL(euidaccess)(path, mode);
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

VB_EXPORT int lstat64(const char *restrict path, struct stat64 *restrict status)
{
	return stat_ours(path, (struct stat *)status) ? REAL(lstat64)(path, status) : 0;
}

VB_EXPORT int fstatat(int folder, const char *restrict path, struct stat *restrict status,
		      int flags)
{
	return stat_ours(path, status) ? REAL(fstatat)(folder, path, status, flags) : 0;
}

VB_EXPORT int fstatat64(int folder, const char *restrict path, struct stat64 *restrict status,
			int flags)
{
	if (stat_ours(path, (struct stat *)status))
		return REAL(fstatat64)(folder, path, status, flags);
	return 0;
}

/* Of programs that were linked with glibc before 2.33; on x86-64 both structs are the same. */
int __xstat(int version, const char *path, struct stat *status);
int __lxstat(int version, const char *path, struct stat *status);
int __fxstatat(int version, int folder, const char *path, struct stat *status, int flags);

VB_EXPORT int __xstat(int version, const char *path, struct stat *status)
{
	return stat_ours(path, status) ? REAL(__xstat)(version, path, status) : 0;
}

VB_EXPORT int __lxstat(int version, const char *path, struct stat *status)
{
	return stat_ours(path, status) ? REAL(__lxstat)(version, path, status) : 0;
}

VB_EXPORT int __fxstatat(int version, int folder, const char *path, struct stat *status, int flags)
{
	if (stat_ours(path, status))
		return REAL(__fxstatat)(version, folder, path, status, flags);
	return 0;
}

#define SAME(name, as) VB_EXPORT __typeof__(as) name __attribute__((alias(#as)))
SAME(__xstat64, __xstat);
SAME(__lxstat64, __lxstat);
SAME(__fxstatat64, __fxstatat);

VB_EXPORT int statx(int folder, const char *restrict path, int flags, unsigned int mask,
		    struct statx *restrict made)
{
	struct stat status;
	if (stat_ours(path, &status))
		return REAL(statx)(folder, path, flags, mask, made);
	*made = (struct statx){ .stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_SIZE,
				.stx_mode = status.st_mode,
				.stx_nlink = status.st_nlink,
				.stx_size = status.st_size,
				.stx_rdev_major = major(status.st_rdev),
				.stx_rdev_minor = minor(status.st_rdev) };
	return 0;
}
