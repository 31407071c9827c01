/*
 * A library that registers a handler of fork in its constructor (LIBRARY), and a program that is
 * linked with it: the handler writes to registered memory.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "loopback.h"

extern volatile char *written;

#ifdef LIBRARY
volatile char *written;

static void write_in_child(void)
{
	if (written)
		written[0]++;
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(NULL, NULL, write_in_child);
}
#else
int main(void)
{
	struct ibv_context *context = ibv_open_device(*ibv_get_device_list(NULL));
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	int status = -1;
	char *page = aligned_alloc(4096, 4096);
	page[0] = 1;
	CHECK(pd && ibv_reg_mr(pd, page, 4096, ACCESS));
	written = page;
	pid_t child = fork();
	if (child == 0)
		_exit(written[0]);
	waitpid(child, &status, 0);
	printf("child %d, parent %d\n", WEXITSTATUS(status), written[0]);
	return 0;
}
#endif
