/*
 * A program of another C library: it runs, and finds the verbs of the preloaded library by name. A
 * child has copies of its memory.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

#define BYTES 100000
#define LOCAL_WRITE 1

typedef void *find_list(int *count);
typedef void *of_object(void *object);
typedef void *register_memory(void *domain, void *address, size_t length, int access);

static void *of_name(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);
	CHECK(found);
	return found;
}

int main(void)
{
	int count = 0, status = -1;
	void **list = ((find_list *)of_name("ibv_get_device_list"))(&count);
	CHECK(list && count == 1);
	void *context = ((of_object *)of_name("ibv_open_device"))(list[0]);
	void *domain = context ? ((of_object *)of_name("ibv_alloc_pd"))(context) : NULL;
	char *memory = calloc(1, BYTES);
	register_memory *reg = (register_memory *)of_name("ibv_reg_mr");
	CHECK(domain && memory && reg(domain, memory, BYTES, LOCAL_WRITE));
	pid_t child = fork();
	if (child == 0) {
		memory[0] = 1;
		_exit(7);
	}
	CHECK(waitpid(child, &status, 0) == child);
	printf("child %d, memory %d, shell %d\n", WEXITSTATUS(status), memory[0],
	       WEXITSTATUS(system("exit 3")));
	return 0;
}
