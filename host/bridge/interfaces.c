/*
 * Programs look for the network interface of a device: libfabric in getifaddrs, others in sysfs. An
 * address such as 127.0.0.2 is on no interface but lo, which libfabric passes over, so such a device
 * gets an entry of its own in getifaddrs.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

static const char OWN[] = "verbena0";

/* Entries of ours stand at the end of a list. */
struct entry {
	struct ifaddrs list;
	struct sockaddr_in address;
	struct sockaddr_in mask;
	char name[sizeof OWN];
};

/* The IPv4 address of the device. False: it has another one, or none. */
static bool device_address(struct in_addr *address)
{
	const char *text = vb_setting("VERBENA_RUN_ADDRESS");
	return text && inet_pton(AF_INET, text, address) == 1;
}

/* The interface of `list` with this address, lo or another one. */
static const struct ifaddrs *interface_of(const struct ifaddrs *list, struct in_addr address)
{
	for (; list; list = list->ifa_next) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)list->ifa_addr;
		if (in && in->sin_family == AF_INET && in->sin_addr.s_addr == address.s_addr)
			return list;
	}
	return NULL;
}

VB_EXPORT int getifaddrs(struct ifaddrs **made)
{
	struct in_addr address;
	int result = REAL(getifaddrs)(made);
	if (result || !device_address(&address))
		return result;
	const struct ifaddrs *found = interface_of(*made, address);
	if (found && !(found->ifa_flags & IFF_LOOPBACK))
		return 0;
	struct entry *entry = calloc(1, sizeof *entry);
	if (!entry) {
		REAL(freeifaddrs)(*made);
		return -1;
	}
	strcpy(entry->name, OWN);
	entry->address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = address };
	entry->mask = (struct sockaddr_in){ .sin_family = AF_INET,
					    .sin_addr.s_addr = htonl(IN_CLASSA_NET) };
	entry->list = (struct ifaddrs){ .ifa_name = entry->name,
					.ifa_flags = IFF_UP | IFF_RUNNING,
					.ifa_addr = (struct sockaddr *)&entry->address,
					.ifa_netmask = (struct sockaddr *)&entry->mask };
	struct ifaddrs **last = made;
	while (*last)
		last = &(*last)->ifa_next;
	*last = &entry->list;
	return 0;
}

VB_EXPORT void freeifaddrs(struct ifaddrs *list)
{
	struct ifaddrs **last = &list;
	while (*last && (*last)->ifa_next)
		last = &(*last)->ifa_next;
	/* The last one is ours, or of the list. */
	struct in_addr address;
	if (*last && device_address(&address) && !strcmp((*last)->ifa_name, OWN)) {
		free(*last);
		*last = NULL;
	}
	if (list)
		REAL(freeifaddrs)(list);
}

const char *vb_interface_line(void)
{
	static char line[IF_NAMESIZE + 1];
	struct in_addr address;
	struct ifaddrs *list;
	/* Each address that begins with 127 is one of lo. */
	char name[IF_NAMESIZE] = "lo";
	if (device_address(&address) && !REAL(getifaddrs)(&list)) {
		const struct ifaddrs *found = interface_of(list, address);
		if (found)
			snprintf(name, sizeof name, "%s", found->ifa_name);
		REAL(freeifaddrs)(list);
	}
	snprintf(line, sizeof line, "%s\n", name);
	return line;
}

const char *vb_interface_name(void)
{
	static char name[IF_NAMESIZE];
	snprintf(name, sizeof name, "%.*s", (int)strcspn(vb_interface_line(), "\n"),
		 vb_interface_line());
	return name;
}
