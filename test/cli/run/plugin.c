/* A plugin with verbs (PLUGIN), and a program that opens it with RTLD_DEEPBIND. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#ifdef PLUGIN
const char *first_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	return list && list[0] ? ibv_get_device_name(list[0]) : "none";
}
#else
int main(int argc, char **argv)
{
	void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
	const char *(*first)(void) = plugin ? dlsym(plugin, "first_device") : NULL;
	printf("device: %s\n", first ? first() : dlerror());
	return 0;
}
#endif
