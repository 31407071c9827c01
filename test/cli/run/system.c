/* System of a program beside the verbs: a child's view of the device, sysfs, interfaces. */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void in_child(struct ibv_context *context, struct ibv_pd *pd)
{
	static char page[4096];
	struct ibv_port_attr port = { 0 };
	struct ibv_alloc_dm_attr size = { .length = 4096 };
	int error = ibv_query_port(context, 1, &port);
	struct ibv_dm *dm = ibv_alloc_dm(context, &size);
	int freed = dm ? ibv_free_dm(dm) : -1;
	errno = 0;
	struct ibv_mr *mr = ibv_reg_mr(pd, page, sizeof page, IBV_ACCESS_LOCAL_WRITE);
	printf("child: port %d %d, device memory %d, region %s\n", error, port.state, freed,
	       mr ? "made" : strerrorname_np(errno));
	fflush(stdout);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void print_folder(const char *path)
{
	char *names[32];
	int count = 0;
	struct stat status;
	struct dirent *entry;
	DIR *folder = opendir(path);
	while (folder && count < 32 && (entry = readdir(folder)))
		names[count++] = strdup(entry->d_name);
	qsort(names, count, sizeof *names, by_name);
	printf("%s:", path);
	for (int i = 0; i < count; i++)
		printf(" %s", names[i]);
	printf("%s\n", stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? "" : " (no folder)");
	if (folder)
		closedir(folder);
}

/* Names of the C library's functions that compilers and older versions choose. */
static void print_old_names(void)
{
	static const char folder[] = "/sys/class/infiniband/verbena0";
	static const char file[] = "/sys/class/infiniband/verbena0/node_type";
	struct stat status;
	int stats = 0, opened = 0, again = 0;
	static const char *const by_version[] = { "__xstat", "__xstat64", "__lxstat", "__lxstat64" };
	static const char *const by_path[] = { "__open_2", "__open64_2" };
	static const char *const at_folder[] = { "openat64", "__openat_2", "__openat64_2" };
	for (int i = 0; i < 4; i++) {
		int (*one)(int, const char *, struct stat *) = dlsym(RTLD_DEFAULT, by_version[i]);
		stats += one && one(1, folder, &status) == 0 && S_ISDIR(status.st_mode);
	}
	for (int i = 0; i < 2; i++) {
		int (*one)(const char *, int) = dlsym(RTLD_DEFAULT, by_path[i]);
		opened += one && one(file, O_RDONLY) >= 0;
	}
	for (int i = 0; i < 3; i++) {
		int (*one)(int, const char *, int) = dlsym(RTLD_DEFAULT, at_folder[i]);
		opened += one && one(AT_FDCWD, file, O_RDONLY) >= 0;
	}
	DIR *read = opendir("/sys/class/infiniband");
	for (int i = 0; read && i < 2; i++, rewinddir(read))
		again += readdir(read) != NULL;
	if (read)
		closedir(read);
	printf("old names: %d of stat, %d of open; access %d; read again %d\n", stats, opened,
	       faccessat(AT_FDCWD, file, R_OK, 0), again);
}

static int not_gids(const struct dirent *entry)
{
	return entry->d_name[0] != 'g';
}

static void print_scanned(struct ibv_context *context)
{
	static const char folder[] = "/sys/class/infiniband/verbena0/ports/1";
	struct dirent **list;
	struct ibv_gid_entry gid = { 0 };
	int count = scandir(folder, &list, not_gids, alphasort);
	printf("scanned:");
	for (int i = 0; i < count; free(list[i++]))
		printf(" %s", list[i]->d_name);
	if (count >= 0)
		free(list);
	count = scandir("/proc/self/fdinfo", &list, not_gids, alphasort);
	for (int i = 0; i < count; i++)
		free(list[i]);
	if (count >= 0)
		free(list);
	int error = ibv_query_gid_ex(context, 1, 0, &gid, 0);
	printf("; others: %s; interface %s\n", count > 0 ? "yes" : "no",
	       !error && gid.ndev_ifindex == if_nametoindex("lo") ? "lo" : "unknown");
}

static void print_interfaces(void)
{
	struct ifaddrs *list;
	if (getifaddrs(&list))
		return;
	for (struct ifaddrs *one = list; one; one = one->ifa_next) {
		char text[INET_ADDRSTRLEN];
		const struct sockaddr_in *in = (const struct sockaddr_in *)one->ifa_addr;
		if (!in || in->sin_family != AF_INET || strcmp(one->ifa_name, "verbena0"))
			continue;
		inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
		printf("interface: %s %s\n", one->ifa_name, text);
	}
	freeifaddrs(list);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	if (!pd)
		return 1;
	print_folder("/sys/class/infiniband/");
	print_folder("/sys/class/infiniband/verbena0/device/net/");
	print_folder("/sys/class/infiniband/verbena0/ports/1");
	print_old_names();
	print_scanned(context);
	print_interfaces();
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		in_child(context, pd);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	/* A queue that stays empty: each poll returns, also those that sleep. */
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_wc wc;
	int found = 0;
	for (int i = 0; i < 100; i++)
		found += ibv_poll_cq(cq, 1, &wc);
	printf("empty polls: %d\n", found);
	return 0;
}
