/*
 * A child of fork has copies of registered memory, as ibv_fork_init promises, and no device.
 *
 * Registered pages are shared mappings, so both processes run on the same pages until the child has
 * replaced them. If they include the stack, neither may use it meanwhile: fork runs on another
 * stack, and the parent waits for the child.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utmp.h>
#include "internal.h"
#include "turns.h"

#define STACK_BYTES (512 * 1024)

static vb_make_child *make_child;
static const long *child_words;

static struct {
	int pipe[2];
	/* Blocked by the program itself. */
	uint64_t signals;
	pid_t child;
	int error;
	/* Its child has not copied the pages yet. */
	bool shares;
} forking;

/*
 * Copies the pages. The first of the handlers of pthread_atfork, so that those of the program write
 * to copies; _Fork calls none.
 */
static void separate(void)
{
	/* Of each child: it may have no device, or share nothing. */
	vb_signals_leave();
	if (!forking.shares)
		return;
	forking.shares = false;
	/* Pages that are still the parent's would be overwritten by both. */
	int error = vb_memory_separate();
	if (error) {
		vb_complain("a child gets no copy of registered memory, and ends: %s",
			    vb_error_name(error));
		_exit(127);
	}
	/* Handlers of the program may take long, or stop. */
	(void)!write(forking.pipe[1], "", 1);
}

typedef void handler(void);

/* `pthread_atfork` of each library is this call; `library` is which one. */
int __register_atfork(handler *prepare, handler *parent, handler *child, void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

static void register_separate(void)
{
	if (REAL(__register_atfork))
		REAL(__register_atfork)(NULL, NULL, separate, &__dso_handle);
	else /* musl */
		((__typeof__(&pthread_atfork))dlsym(RTLD_NEXT, "pthread_atfork"))(NULL, NULL, separate);
}

__attribute__((constructor)) static void separate_first(void)
{
	/* Not pthread_once: ThreadSanitizer has that, and comes here before it has begun. */
	static bool is_registered;
	if (!__atomic_exchange_n(&is_registered, true, __ATOMIC_SEQ_CST))
		register_separate();
}

/* Constructors of other libraries, and so their handlers, may run before those of this one. */
VB_EXPORT int __register_atfork(handler *prepare, handler *parent, handler *child, void *library)
{
	separate_first();
	return REAL(__register_atfork)(prepare, parent, child, library);
}

static void in_child(void)
{
	separate();
	vb_sidecar_leave();
	close(forking.pipe[0]);
	close(forking.pipe[1]);
	vb_memory_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

/*
 * Signals without a handler of the program's: a handler could leave by siglongjmp, or fork. Not
 * those that the program has blocked itself.
 */
static void unblock_defaults(void)
{
	struct sigaction now;
	uint64_t free = 0;
	for (int number = 1; number <= 64; number++)
		if (!(forking.signals >> (number - 1) & 1) && !sigaction(number, NULL, &now) &&
		    now.sa_handler == SIG_DFL)
			free |= 1ull << (number - 1);
	syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &free, NULL, sizeof free);
}

static void in_parent(void)
{
	struct pollfd copied = { .fd = forking.pipe[0], .events = POLLIN };
	close(forking.pipe[1]);
	/* A child that died closes its end, too. If it is stopped, ctrl-C still ends this process. */
	while (poll(&copied, 1, 1000) <= 0)
		unblock_defaults();
	close(forking.pipe[0]);
}

static void fork_aside(void)
{
	forking.shares = true;
	forking.child = make_child(child_words);
	forking.error = errno;
	if (forking.child == 0) {
		in_child();
		return;
	}
	forking.shares = false;
	if (forking.child > 0)
		in_parent();
	else {
		close(forking.pipe[0]);
		close(forking.pipe[1]);
	}
}

/* The calling stack is not used until `work` returns. */
static void call_on(char *top, void (*work)(void))
{
	__asm__ volatile("mov %%rsp, %%rbx\n\t"
			 "mov %0, %%rsp\n\t"
			 "call *%1\n\t"
			 "mov %%rbx, %%rsp"
			 : "+r"(top), "+r"(work)
			 :
			 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
			   "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
			   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory",
			   "cc");
}

static pid_t fork_with_memory(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK;
	void *stack = vb_map(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (stack == MAP_FAILED)
		return -1;
	if (vb_pipe(forking.pipe)) {
		vb_unmap(stack, STACK_BYTES);
		return -1;
	}
	call_on((char *)stack + STACK_BYTES, fork_aside);
	vb_unmap(stack, STACK_BYTES);
	errno = forking.error;
	return forking.child;
}

bool vb_forking;

pid_t vb_fork_by(vb_make_child *make, const long *words)
{
	if (vb.owner != getpid()) {
		pid_t own = make(words);
		if (own == 0)
			vb_signals_leave();
		return own;
	}
	/* A thread is not cancelled in fork, but it is in read, write and close. */
	int cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	/* A handler would run before the pages are copied, or leave by siglongjmp. */
	uint64_t signals = vb_block_signals();
	pthread_mutex_lock(&vb_memory_lock);
	forking.signals = signals;
	make_child = make;
	child_words = words;
	__atomic_store_n(&vb_forking, true, __ATOMIC_RELEASE);
	bool used = vb_memory_used();
	pid_t child = used ? fork_with_memory() : make(words);
	if (child == 0 && !used) {
		vb_sidecar_leave();
		vb_memory_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	}
	__atomic_store_n(&vb_forking, false, __ATOMIC_RELEASE);
	if (child != 0)
		pthread_mutex_unlock(&vb_memory_lock);
	vb_restore_signals(signals);
	pthread_setcancelstate(cancel, NULL);
	return child;
}

typedef pid_t fork_call(void);

static pid_t by_library(const long *words)
{
	return ((fork_call *)words[0])();
}

VB_EXPORT pid_t fork(void)
{
	const long words[] = { (long)REAL(fork) };
	return vb_fork_by(by_library, words);
}

/* Of glibc 2.34. */
pid_t _Fork(void);

/* It runs no handlers of pthread_atfork. */
VB_EXPORT pid_t _Fork(void)
{
	const long words[] = { (long)REAL(_Fork) };
	return vb_fork_by(by_library, words);
}

/* The C library's own would call its fork, past this one. */
VB_EXPORT int daemon(int keeps_folder, int keeps_files)
{
	pid_t child = fork();
	if (child != 0) {
		if (child > 0)
			_exit(0);
		return -1;
	}
	if (setsid() < 0)
		return -1;
	if (!keeps_folder && chdir("/"))
		return -1;
	int null = keeps_files ? -1 : open("/dev/null", O_RDWR);
	if (keeps_files)
		return 0;
	if (null < 0)
		return -1;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
	return 0;
}

VB_EXPORT int forkpty(int *primary, char *name, const struct termios *mode,
		      const struct winsize *size)
{
	int own, terminal;
	/* Older C libraries have it in libutil. */
	__typeof__(&openpty) open_both = (__typeof__(&openpty))dlsym(RTLD_DEFAULT, "openpty");
	__typeof__(&login_tty) login = (__typeof__(&login_tty))dlsym(RTLD_DEFAULT, "login_tty");
	if (!open_both || !login) {
		errno = ENOSYS;
		return -1;
	}
	if (open_both(&own, &terminal, name, mode, size))
		return -1;
	pid_t child = fork();
	if (child == 0) {
		close(own);
		if (login(terminal))
			_exit(1);
		return 0;
	}
	int error = errno;
	close(terminal);
	if (child < 0)
		close(own);
	else
		*primary = own;
	errno = error;
	return child;
}

VB_EXPORT int ibv_fork_init(void)
{
	return 0;
}

VB_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

/* Of providers, for memory that they share with a device. */
VB_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

VB_EXPORT int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}
