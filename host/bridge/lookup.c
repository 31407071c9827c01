/*
 * Programs that look verbs up by name: `dlopen("libibverbs.so.1")`, then `dlsym` or `dlvsym`. The
 * library of that name is searched first there, whatever was preloaded. So they get a handle of a
 * library without functions of its own that needs this library, and the one of that name behind it
 * (build.mjs).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "internal.h"

typedef void *open_library(const char *file, int flags);

/* Of `libibverbs.so.1` the name behind `lib`; NULL: another library. */
static const char *name_of(const char *file)
{
	const char *slash = strrchr(file, '/');
	const char *base = slash ? slash + 1 : file;
	if (!strncmp(base, "libibverbs.so", 13))
		return "ibverbs";
	return strncmp(base, "librdmacm.so", 12) ? NULL : "rdmacm";
}

/* The library beside this one that stands for it. NULL: it cannot be loaded. */
static void *open_in_place_of(const char *name, int flags)
{
	Dl_info own;
	if (!dladdr(&name_of, &own) || !own.dli_fname)
		return NULL;
	const char *slash = strrchr(own.dli_fname, '/');
	int length = slash ? (int)(slash + 1 - own.dli_fname) : 0;
	char path[PATH_MAX];
	int size = snprintf(path, sizeof path, "%.*slibverbena-%s.so", length, own.dli_fname, name);
	return size < (int)sizeof path ? REAL(dlopen)(path, flags & ~RTLD_NOLOAD) : NULL;
}

static void *open_verbs(const char *file, int flags, const char *name, open_library *real)
{
	void *given = real(file, flags);
	if (!given)
		return NULL;
	void *ours = open_in_place_of(name, flags);
	if (!ours) {
		/* No error of this call is the program's. */
		dlerror();
		return given;
	}
	dlclose(given);
	return ours;
}

/*
 * RTLD_DEEPBIND is ignored: such a library finds the verbs, and other functions that this library
 * answers, in the libraries that it needs.
 *
 * The last call is a jump: the system finds the paths of the library that calls by its address.
 */
VB_EXPORT void *dlopen(const char *file, int flags)
{
	open_library *real = REAL(dlopen);
	const char *name = file ? name_of(file) : NULL;
	flags &= ~RTLD_DEEPBIND;
	return name ? open_verbs(file, flags, name, real) : real(file, flags);
}
