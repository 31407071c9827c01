/*
 * The program's own handlers of SIGSEGV, and threads that block all signals, while registered pages
 * move. Prints one line per part; the test compares them.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "loopback.h"

#define PAGE 4096
#define ROUNDS 300
#define FORKS 200

static struct ibv_pd *pd;
static char stack[65536];
static sigjmp_buf back;
static volatile int calls, on_stack, blocked;

static volatile int stop, lost;
static volatile unsigned *counter;

static int is_on_stack(void)
{
	char *here = __builtin_frame_address(0);
	return here >= stack && here < stack + sizeof stack;
}

static void note(void)
{
	sigset_t now;
	calls++;
	on_stack = is_on_stack();
	sigprocmask(SIG_BLOCK, NULL, &now);
	blocked = sigismember(&now, SIGUSR1);
}

static void plain(int signal)
{
	note();
	siglongjmp(back, signal);
}

static void detailed(int signal, siginfo_t *info, void *context)
{
	note();
	siglongjmp(back, info->si_addr == NULL && context ? signal : -1);
}

static void *count_up(void *all)
{
	sigset_t set;
	sigfillset(&set);
	if (all)
		pthread_sigmask(SIG_BLOCK, &set, NULL);
	unsigned now = *counter;
	while (!stop) {
		*counter = ++now;
		if (*counter != now) {
			lost++;
			now = *counter;
		}
	}
	return NULL;
}

/* Pages that another thread writes are registered. */
static void move_pages(const char *name, void *all)
{
	calls = lost = 0;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t thread;
		char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		counter = (unsigned *)pages;
		stop = 0;
		pthread_create(&thread, NULL, count_up, all);
		usleep(100);
		struct ibv_mr *mr = ibv_reg_mr(pd, pages + 64, 4000, ACCESS);
		usleep(100);
		stop = 1;
		pthread_join(thread, NULL);
		ibv_dereg_mr(mr);
		munmap(pages, 2 * PAGE);
	}
	printf("%s: %d stores lost, %d calls of the handler\n", name, lost, calls);
	fflush(stdout);
}

static void fault(const char *name)
{
	calls = 0;
	int signal = sigsetjmp(back, 1);
	if (signal == 0)
		*(volatile char *)NULL = 1;
	printf("%s: signal %d, %d call%s, SIGUSR1 %s\n", name, signal, calls,
	       on_stack ? " on its stack" : "", blocked ? "blocked" : "free");
	fflush(stdout);
}

static void own_handlers(void)
{
	struct sigaction own = { .sa_sigaction = detailed, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	struct sigaction before, now;
	const stack_t aside = { .ss_sp = stack, .ss_size = sizeof stack };
	CHECK(!sigaltstack(&aside, NULL));
	sigaddset(&own.sa_mask, SIGUSR1);
	CHECK(!sigaction(SIGSEGV, &own, &before) && !sigaction(SIGSEGV, NULL, &now));
	printf("before: %s; now: %s\n", before.sa_handler == SIG_DFL ? "none" : "one",
	       now.sa_sigaction == detailed ? "its own" : "another");
	move_pages("own handler", NULL);
	fault("detailed");
	printf("signal: %s\n", signal(SIGSEGV, plain) == (sighandler_t)detailed ? "its own" : "another");
	move_pages("plain handler", NULL);
	fault("plain");
}

/* A child of vfork, whose memory is this process's, resets its signals before exec. */
static void reset_in_vfork(void)
{
	const struct sigaction none = { .sa_handler = SIG_DFL };
	struct sigaction own = { .sa_sigaction = detailed, .sa_flags = SA_SIGINFO }, now;
	static volatile int found;
	int status = -1;
	CHECK(!sigaction(SIGSEGV, &own, NULL));
	pid_t child = vfork();
	if (child == 0) {
		struct sigaction before;
		sigaction(SIGSEGV, NULL, &before);
		found = before.sa_sigaction == detailed;
		for (int i = 1; i < NSIG; i++)
			sigaction(i, &none, NULL);
		sigaction(SIGSEGV, NULL, &before);
		found += before.sa_handler == SIG_DFL;
		execlp("true", "true", NULL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	CHECK(!sigaction(SIGSEGV, NULL, &now));
	printf("vfork: ended %d, its own %d, of the parent %s\n", status, found,
	       now.sa_sigaction == detailed ? "the same" : "another");
	fault("after vfork");
}

/* The signal that ends a child which does this; 0: it goes on. */
static int end_of(void (*action)(void))
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		action();
		_exit(0);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void send_fault(void)
{
	signal(SIGSEGV, SIG_DFL);
	kill(getpid(), SIGSEGV);
}

static void send_ignored(void)
{
	signal(SIGSEGV, SIG_IGN);
	kill(getpid(), SIGSEGV);
}

/* By the handler that its parent has set. */
static void handle_inherited(void)
{
	struct sigaction now;
	sigaction(SIGSEGV, NULL, &now);
	if (now.sa_sigaction != detailed)
		abort();
	if (sigsetjmp(back, 1) == 0)
		*(volatile char *)NULL = 1;
}

static void fault_twice(void)
{
	struct sigaction once = { .sa_handler = plain, .sa_flags = SA_RESETHAND };
	sigaction(SIGSEGV, &once, NULL);
	if (sigsetjmp(back, 1) == 0)
		*(volatile char *)NULL = 1;
	*(volatile char *)NULL = 1;
}

/* As crash handlers do, which change one field of a struct that they have filled before. */
static void reuse_struct(void)
{
	struct sigaction own = { .sa_handler = SIG_IGN, .sa_flags = SA_SIGINFO }, now;
	sigaction(SIGSEGV, &own, NULL);
	kill(getpid(), SIGSEGV);
	sigaction(SIGSEGV, NULL, &now);
	printf("SA_SIGINFO without a handler: %s\n", now.sa_handler == SIG_IGN ? "ignored" : "lost");
	fflush(stdout);
}

static volatile int reads;

static void *read_actions(void *unused)
{
	struct sigaction now;
	while (!reads)
		sigaction(SIGSEGV, NULL, &now);
	return unused;
}

static void read_in_child(void)
{
	struct sigaction now;
	if (stop)
		sigaction(SIGSEGV, NULL, &now);
}

/* Children that end within some seconds, while another thread of their parent calls sigaction. */
static int forks_that_end(void)
{
	pthread_t thread;
	int ended = 0;
	reads = 0;
	stop = 1;
	pthread_create(&thread, NULL, read_actions, NULL);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		/* One that waits for ever blocks all signals but SIGKILL. */
		int left = 10000;
		while (waitpid(child, NULL, WNOHANG) == 0 && left > 0)
			left -= usleep(1000) == 0;
		ended += left > 0;
		if (left > 0)
			continue;
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		break;
	}
	reads = 1;
	pthread_join(thread, NULL);
	stop = 0;
	return ended;
}

int main(int argc, char **argv)
{
	CHECK(!pthread_atfork(NULL, NULL, read_in_child));
	int before = argc > 1 ? 0 : forks_that_end();
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context && (pd = ibv_alloc_pd(context)));
	/* The same in the process that has the device. */
	if (argc > 1) {
		void (*const actions[])(void) = { send_fault, send_ignored, fault_twice };
		actions[atoi(argv[1])]();
		return 0;
	}
	printf("forks that end: %d without a device, %d with one\n", before, forks_that_end());
	move_pages("all blocked", context);
	own_handlers();
	reuse_struct();
	reset_in_vfork();
	printf("ended by: sent %d, ignored %d, twice %d, handled %d\n", end_of(send_fault),
	       end_of(send_ignored), end_of(fault_twice), end_of(handle_inherited));
	return 0;
}
