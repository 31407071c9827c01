/*
 * A program's own processes: the sidecar is not its child, sends no SIGCHLD, takes no low
 * descriptor, and ends when the program ends in any way. Then waits to be ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t signals;

static void note(int signal)
{
	signals += signal == SIGCHLD;
}

int main(void)
{
	signal(SIGCHLD, note);
	int before = open("/dev/null", O_RDONLY);
	close(before);
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	if (!context)
		return 1;
	int first_error = waitpid(-1, NULL, WNOHANG) < 0 ? errno : 0;
	struct ibv_context *second = ibv_open_device(list[0]);
	printf("children: %s, %d signals; contexts: %s\n", strerrorname_np(first_error),
	       (int)signals, second && second != context ? "two" : "one");
	/* A verb that the device does not have, and one that needs another device. */
	struct ibv_flow_attr flow = { 0 };
	struct ibv_xrcd_init_attr xrcd = { 0 };
	errno = 0;
	void *opened = ibv_open_xrcd(context, &xrcd);
	(void)flow;
	printf("xrcd: %s %s\n", opened ? "opened" : "refused", strerrorname_np(errno));
	fflush(stdout);
	close(before);
	pause();
	return 0;
}
