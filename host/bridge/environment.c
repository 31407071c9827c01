/*
 * Variables that `verbena run` has set (launch.ts), also once the program has cleared its
 * environment: they are copied when the library is loaded.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "internal.h"

/* More than launch.ts sets. */
#define KEPT_MAX 32

static const char prefix[] = "VERBENA_";
/* For this process alone (sidecar.c): a sidecar with it would end with another one's parent. */
static const char mark[] = "VERBENA_RUN_CHILD=";
static char *kept[KEPT_MAX + 1];

static void keep(void)
{
	int count = 0;
	for (char **one = environ; one && *one && count < KEPT_MAX; one++)
		if (!strncmp(*one, prefix, sizeof prefix - 1) &&
		    strncmp(*one, mark, sizeof mark - 1) && (kept[count] = strdup(*one)))
			count++;
}

/* Constructors of other libraries may open the device before this. */
__attribute__((constructor)) static void keep_once(void)
{
	static bool is_kept;
	if (!__atomic_exchange_n(&is_kept, true, __ATOMIC_SEQ_CST))
		keep();
}

static const char *value_in(const char *entry, const char *name, size_t length)
{
	return !strncmp(entry, name, length) && entry[length] == '=' ? entry + length + 1 : NULL;
}

const char *vb_setting(const char *name)
{
	const char *value = getenv(name);
	keep_once();
	for (char **one = kept; *one && !value; one++)
		value = value_in(*one, name, strlen(name));
	return value;
}

char *const *vb_settings(void)
{
	keep_once();
	return kept;
}
