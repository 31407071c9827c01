/*
 * Does what its words say, one after the other: `open` a device, `pause` until a signal, `exec` this
 * program with the words that are left, `clone` a process by the instruction, past the C library, that
 * lives on without the standard files; `clear` the environment.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void open_one(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (context)
		printf("%d has %s\n", (int)getpid(), ibv_get_device_name(list[0]));
	else
		printf("%d has no device: %s\n", (int)getpid(), strerrorname_np(errno));
	fflush(stdout);
}

static long clone_past_library(void)
{
	register long fourth __asm__("r10") = 0;
	register long fifth __asm__("r8") = 0;
	long child = SYS_clone;
	__asm__ volatile("syscall"
			 : "+a"(child)
			 : "D"((long)SIGCHLD), "S"(0l), "d"(0l), "r"(fourth), "r"(fifth)
			 : "rcx", "r11", "memory");
	return child;
}

int main(int count, char **words)
{
	for (int i = 1; i < count; i++) {
		if (!strcmp(words[i], "open"))
			open_one();
		else if (!strcmp(words[i], "pause"))
			pause();
		else if (!strcmp(words[i], "clear"))
			clearenv();
		else if (!strcmp(words[i], "clone")) {
			long child = clone_past_library();
			if (child == 0) {
				for (int fd = 0; fd < 3; fd++)
					close(fd);
				pause();
			}
			printf("clone %ld\n", child);
			fflush(stdout);
		} else if (!strcmp(words[i], "exec")) {
			words[i] = words[0];
			return execv(words[0], words + i);
		}
	}
	return 0;
}
