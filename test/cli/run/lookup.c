/* A program that is linked with none of the libraries, and looks verbs up by name and version. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

static int devices_by(struct ibv_device **(*list)(int *), void (*give_back)(struct ibv_device **))
{
	int count = -1;
	struct ibv_device **devices = list ? list(&count) : NULL;
	if (devices)
		give_back(devices);
	return count;
}

int main(void)
{
	printf("loaded before: %s\n", dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD) ? "yes" : "no");
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void *manager = dlopen("librdmacm.so.1", RTLD_LAZY);
	if (!verbs || !manager) {
		printf("%s\n", dlerror());
		return 1;
	}
	void *give_back = dlsym(verbs, "ibv_free_device_list");
	printf("devices: %d by name, %d by version\n",
	       devices_by(dlsym(verbs, "ibv_get_device_list"), give_back),
	       devices_by(dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1"), give_back));
	printf("another version: %s\n", dlvsym(verbs, "ibv_get_device_list", "NO_1.0") ? "yes" : "no");
	const char *(*text)(enum ibv_wc_status) = dlsym(verbs, "ibv_wc_status_str");
	printf("of the library itself: %s\n", text ? text(IBV_WC_SUCCESS) : "missing");
	struct rdma_event_channel *(*create)(void) =
		dlvsym(manager, "rdma_create_event_channel", "RDMACM_1.0");
	void (*destroy)(struct rdma_event_channel *) = dlsym(manager, "rdma_destroy_event_channel");
	struct rdma_event_channel *channel = create ? create() : NULL;
	printf("channel: %s\n", channel ? "yes" : "no");
	if (channel)
		destroy(channel);
	void *loaded = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	printf("loaded behind: %s, closed: %d\n", loaded == verbs ? "the same" : "another", dlclose(loaded));
	printf("missing: %s\n", dlopen("libnowhere.so.1", RTLD_NOW) ? "found" : dlerror());
	return dlclose(verbs) | dlclose(manager);
}
