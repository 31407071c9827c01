/*
 * Ways to fork: children have registered memory of their own. Prints one line per part; the test
 * compares them.
 */
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "loopback.h"

#define PAGE 4096

pid_t _Fork(void);

static volatile char *memory;
static int terminal, stops;

static void write_in_child(void)
{
	memory[1]++;
	if (stops)
		raise(SIGSTOP);
}

static pid_t fork_terminal(void)
{
	return forkpty(&terminal, NULL, NULL, NULL);
}

/* Those that run no handlers of pthread_atfork. */
static pid_t fork_by_call(void)
{
	return syscall(SYS_fork);
}

static pid_t clone_by_call(void)
{
	return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t clone_in_turn(void)
{
	return syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
}

static pid_t clone3_by_call(void)
{
	struct clone_args arguments = { .exit_signal = SIGCHLD };
	return syscall(SYS_clone3, &arguments, sizeof arguments);
}

static int runs_handlers(pid_t (*make)(void))
{
	return make == fork || make == fork_terminal;
}

static int end_child(int seen)
{
	memory[0] = 99;
	return seen == 1 && memory[0] == 99 ? 7 : 8;
}

static void check(const char *name, pid_t (*make)(void))
{
	int status = -1;
	memory[0] = 1;
	memory[1] = 0;
	pid_t child = make();
	if (child == 0) {
		CHECK(memory[1] == runs_handlers(make));
		_exit(end_child(memory[0]));
	}
	waitpid(child, &status, 0);
	printf("%s: ended %d, memory %d %d\n", name, WEXITSTATUS(status), memory[0], memory[1]);
	fflush(stdout);
}

static char stack[1 << 16] __attribute__((aligned(PAGE)));

/* Its own stack, which is registered. */
static int run_child(void *frames)
{
	char *here = __builtin_frame_address(0);
	char *bottom = frames;
	if (here < bottom || here >= bottom + sizeof stack)
		return 9;
	return end_child(memory[0]);
}

/* Called by the assembly below. */
__attribute__((used)) static void run_entry(void)
{
	_exit(end_child(memory[0]));
}

/* The first address on a stack for the system call: rbx is as it was before the call. */
void enter_child(void);
__asm__(".pushsection .text\n"
	"enter_child:\n\t"
	"cmp $0x1234567, %rbx\n\t"
	"je run_entry\n\t"
	"mov $6, %edi\n\t"
	"call _exit@PLT\n\t"
	".popsection");

static long clone_on(void *top)
{
	long result;
	register long fourth __asm__("r8") = 0, fifth __asm__("r9") = 0;
	__asm__ volatile("mov %%rsp, %%r12\n\t"
			 "sub $128, %%rsp\n\t"
			 "and $-16, %%rsp\n\t"
			 "mov $0x1234567, %%rbx\n\t"
			 "call syscall@PLT\n\t"
			 "mov %%r12, %%rsp"
			 : "=a"(result), "+r"(fourth), "+r"(fifth)
			 : "D"((long)SYS_clone), "S"((long)SIGCHLD), "d"(top), "c"(0L)
			 : "rbx", "r12", "r10", "r11", "memory", "cc");
	return result;
}

static void check_clone(void)
{
	int status = -1, own = -1, twice = -1;
	memory[0] = 1;
	pid_t child = clone(run_child, stack + sizeof stack, SIGCHLD, stack);
	waitpid(child, &status, 0);
	void **top = (void **)(stack + sizeof stack) - 2;
	*top = enter_child;
	waitpid(clone_on(top), &own, 0);
	*top = run_entry;
	struct clone_args arguments = { .exit_signal = SIGCHLD,
					.stack = (uintptr_t)stack,
					.stack_size = (char *)top - stack };
	child = syscall(SYS_clone3, &arguments, sizeof arguments);
	waitpid(child, &twice, 0);
	printf("clone: ended %d, on a stack %d %d, memory %d\n", WEXITSTATUS(status),
	       WEXITSTATUS(own), WEXITSTATUS(twice), memory[0]);
	fflush(stdout);
}

/* The child's id is in the child's page alone. */
static void check_id(void)
{
	int status = -1;
	volatile pid_t *id = (volatile pid_t *)(memory + 64);
	*id = 1;
	pid_t child = syscall(SYS_clone, CLONE_CHILD_SETTID | SIGCHLD, 0, 0, id, 0);
	if (child == 0)
		_exit(*id == getpid() ? 7 : 8);
	waitpid(child, &status, 0);
	printf("id: ended %d, here %d\n", WEXITSTATUS(status), *id);
	fflush(stdout);
}

static int store_one(void *place)
{
	*(volatile char *)place = 3;
	return 0;
}

/* Calls that the kernel answers itself. */
static void check_calls(void)
{
	int status = -1;
	char *frames = malloc(1 << 16);
	int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
	waitpid(clone(store_one, frames + (1 << 16), flags, (void *)memory), &status, 0);
	const char *vm = status == 0 && memory[0] == 3 ? "shared" : "not shared";
	free(frames);
	errno = 0;
	int files = clone(run_child, stack + sizeof stack, CLONE_FILES | SIGCHLD, stack);
	const char *refused = files < 0 ? strerrorname_np(errno) : "accepted";
	long closed = syscall(SYS_close, -1);
	const char *first = closed < 0 ? strerrorname_np(errno) : "closed";
	long empty = syscall(SYS_clone3, NULL, 0);
	const char *second = empty < 0 ? strerrorname_np(errno) : "made";
	long bad = syscall(SYS_clone3, 16, 88);
	const char *third = bad < 0 ? strerrorname_np(errno) : "made";
	const int kind = MAP_PRIVATE | MAP_ANONYMOUS, rights = PROT_READ | PROT_WRITE;
	char *page = (char *)syscall(SYS_mmap, 0, PAGE, rights, kind, -1, 0);
	*page = 1;
	printf("calls: memory %s, CLONE_FILES %s, close %s, clone3 %s %s\n", vm, refused, first, second,
	       third);
	fflush(stdout);
	memory[0] = 1;
}

/* A child that stops in its handlers of pthread_atfork does not stop its parent. */
static void check_stopped(void)
{
	int status = -1;
	stops = 1;
	pid_t child = fork();
	if (child == 0)
		_exit(7);
	stops = 0;
	waitpid(child, &status, WUNTRACED);
	int stopped = WIFSTOPPED(status);
	kill(child, SIGCONT);
	waitpid(child, &status, 0);
	printf("stopped: %d, ended %d\n", stopped, WEXITSTATUS(status));
	fflush(stdout);
}

/* fork is no point at which a thread is cancelled. */
static void *fork_cancelled(void *child)
{
	int state;
	pthread_cancel(pthread_self());
	*(pid_t *)child = fork();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	if (*(pid_t *)child == 0)
		_exit(7);
	return NULL;
}

static void check_cancelled(void)
{
	int status = -1;
	pid_t child = -1;
	pthread_t thread;
	pthread_create(&thread, NULL, fork_cancelled, &child);
	pthread_join(thread, NULL);
	waitpid(child, &status, 0);
	printf("cancelled: %s, ended %d\n", child > 0 ? "forked" : "no fork", WEXITSTATUS(status));
	fflush(stdout);
}

/* Forks, and is traced so that its child does not run at all. */
static void fork_traced(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	char *page = aligned_alloc(PAGE, PAGE);
	CHECK(pd && ibv_reg_mr(pd, page, PAGE, ACCESS));
	CHECK(!ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	raise(SIGSTOP);
	_exit(fork() < 0);
}

/* SIGTERM ends a process whose child has not copied its memory. */
static void check_held(struct ibv_device *device)
{
	int status = -1;
	unsigned long held = 0;
	pid_t child = fork();
	if (child == 0)
		fork_traced(device);
	CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
	CHECK(!ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACEFORK | PTRACE_O_EXITKILL));
	CHECK(!ptrace(PTRACE_CONT, child, NULL, 0));
	CHECK(waitpid(child, &status, 0) == child && status >> 8 == (SIGTRAP | PTRACE_EVENT_FORK << 8));
	CHECK(!ptrace(PTRACE_GETEVENTMSG, child, NULL, &held));
	CHECK(!ptrace(PTRACE_CONT, child, NULL, 0));
	kill(child, SIGTERM);
	waitpid(child, &status, 0);
	int stopped = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
	ptrace(PTRACE_CONT, child, NULL, SIGTERM);
	waitpid(child, &status, 0);
	printf("held: signal %d, ended by %d\n", stopped, WTERMSIG(status));
	fflush(stdout);
	kill(held, SIGKILL);
	waitpid(held, NULL, __WALL);
}

/* The process has no device from then on, until it opens one. */
static void check_daemon(struct ibv_qp *qp, struct ibv_device *device)
{
	struct ibv_send_wr request = { .opcode = IBV_WR_SEND }, *bad;
	memory[0] = 1;
	CHECK(!daemon(0, 1));
	int posted = ibv_post_send(qp, &request, &bad);
	memory[0]++;
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, (void *)memory, PAGE, ACCESS) : NULL;
	printf("daemon: posted %s, opened %s, memory %d\n", strerrorname_np(posted),
	       mr ? "yes" : "no", memory[0]);
}

extern char **environ;

static void check_spawn(void)
{
	char *const words[] = { "true", NULL };
	pid_t child;
	int status = -1;
	CHECK(!posix_spawnp(&child, "true", NULL, NULL, words, environ));
	waitpid(child, &status, 0);
	int shell = system("exit 3");
	child = vfork();
	if (child == 0)
		_exit(5);
	int last = -1;
	waitpid(child, &last, 0);
	printf("spawned: %d, shell %d, vfork %d, memory %d\n", WEXITSTATUS(status),
	       WEXITSTATUS(shell), WEXITSTATUS(last), memory[0]);
}

int main(int argc, char **argv)
{
	CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1));
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (argc > 1) {
		check_held(list[0]);
		return 0;
	}
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_cq *cq = context ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
	struct ibv_qp *qp = pd && cq ? loopback(pd, cq) : NULL;
	int adopts = 0;
	CHECK(qp && !prctl(PR_GET_CHILD_SUBREAPER, &adopts));
	errno = 0;
	int none = waitpid(-1, NULL, WNOHANG);
	printf("adopted: %d %s, adopts orphans %d\n", none, strerrorname_np(errno), adopts);
	memory = aligned_alloc(PAGE, PAGE);
	CHECK(ibv_reg_mr(pd, (void *)memory, PAGE, ACCESS));
	CHECK(!pthread_atfork(NULL, NULL, write_in_child));
	check("fork", fork);
	check("_Fork", _Fork);
	check("forkpty", fork_terminal);
	check("call of fork", fork_by_call);
	check("call of clone", clone_by_call);
	check("CLONE_VFORK", clone_in_turn);
	check("clone3", clone3_by_call);
	CHECK(ibv_reg_mr(pd, stack, sizeof stack, ACCESS));
	check_clone();
	check_id();
	check_calls();
	check_stopped();
	check_cancelled();
	check_spawn();
	fflush(stdout);
	check_daemon(qp, list[0]);
	return 0;
}
