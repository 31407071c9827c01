/*
 * SIGSEGV has two uses here: a store to a page that is moving waits (memory.c), and an access of the
 * engine behind its memory is a trap (turns.c). The kernel has the handler of this library from the
 * first device on; sigaction and its relatives set and return the program's own, which gets each
 * other fault as the kernel would deliver it: its mask, its flags, its stack.
 *
 * No thread blocks SIGSEGV: a fault of a thread that does ends the process, and threads that block
 * all signals are common.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include "internal.h"
#include "turns.h"

typedef int set_action(int number, const struct sigaction *new, struct sigaction *old);

static struct {
	/* A handler takes it as well: its holders have blocked signals. */
	int lock;
	/*
	 * The process whose action in the kernel is the handler of this library. A child of vfork
	 * has actions of its own, and this memory is its parent's.
	 */
	pid_t holder;
	bool moving;
	struct sigaction program;
} state;

typedef int set_mask(int how, const sigset_t *set, sigset_t *old);
typedef sighandler_t set_handler(int number, sighandler_t handler);

static struct {
	set_action *action;
	set_mask *thread_mask;
	set_mask *mask;
	set_handler *handler;
	set_handler *once;
} real;

/* Before handlers of the program may need them: dlsym takes a lock. */
__attribute__((constructor)) static void find_real(void)
{
	real.action = (set_action *)dlsym(RTLD_NEXT, "sigaction");
	real.thread_mask = (set_mask *)dlsym(RTLD_NEXT, "pthread_sigmask");
	real.handler = (set_handler *)dlsym(RTLD_NEXT, "signal");
	real.once = (set_handler *)dlsym(RTLD_NEXT, "__sysv_signal");
	/* The last one: all are there. */
	__atomic_store_n(&real.mask, (set_mask *)dlsym(RTLD_NEXT, "sigprocmask"), __ATOMIC_RELEASE);
}

/* Constructors of other libraries may run before. */
static void find_if_first(void)
{
	if (!__atomic_load_n(&real.mask, __ATOMIC_ACQUIRE))
		find_real();
}

static set_action *real_action(void)
{
	find_if_first();
	return real.action;
}

static uint64_t enter(void)
{
	/* SIGSEGV as well, which another process may send. */
	const uint64_t all = ~0ul;
	uint64_t before = 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
	while (__atomic_exchange_n(&state.lock, 1, __ATOMIC_ACQUIRE))
		sched_yield();
	return before;
}

static void leave(uint64_t before)
{
	__atomic_store_n(&state.lock, 0, __ATOMIC_RELEASE);
	vb_restore_signals(before);
}

/* With SA_SIGINFO as well: the kernel decides by the value alone. */
static bool is_function(const struct sigaction *one)
{
	return one->sa_handler != SIG_DFL && one->sa_handler != SIG_IGN;
}

/* The kernel's action for a fault that no handler has: the process ends. */
static void end_by(int signal, int code)
{
	const struct sigaction none = { .sa_handler = SIG_DFL };
	real_action()(signal, &none, NULL);
	/* A fault comes again when its access is repeated. */
	if (code <= 0)
		raise(signal);
}

static void on_fault(int signal, siginfo_t *info, void *context);

/* With the lock. */
static void install(void)
{
	const struct sigaction *program = &state.program;
	struct sigaction ours = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
	/* The stack of the thread may be among the pages. Otherwise as the program wants it. */
	if (state.moving || !is_function(program) || program->sa_flags & SA_ONSTACK)
		ours.sa_flags |= SA_ONSTACK;
	ours.sa_flags |= program->sa_flags & SA_RESTART;
	if (real_action()(SIGSEGV, &ours, NULL) == 0)
		state.holder = getpid();
}

/* With the lock. The program's action; of a child of vfork, its own in the kernel. */
static int set_program(const struct sigaction *new, struct sigaction *old)
{
	struct sigaction found = state.program;
	int result = 0;
	if (state.holder != getpid()) {
		result = real_action()(SIGSEGV, new, &found);
		/* As a child has it from its parent. */
		if (result == 0 && found.sa_sigaction == on_fault)
			found = state.program;
	} else if (new) {
		state.program = *new;
		install();
	}
	*old = found;
	return result;
}

/* Calls the program's handler with the signals blocked that it wants blocked. */
static void deliver(int signal, siginfo_t *info, ucontext_t *context)
{
	uint64_t before = enter();
	struct sigaction program = state.program, last;
	if (is_function(&program) && program.sa_flags & SA_RESETHAND)
		set_program(&(struct sigaction){ .sa_handler = SIG_DFL }, &last);
	leave(before);
	if (!is_function(&program)) {
		if (program.sa_handler == SIG_DFL || info->si_code > 0)
			end_by(signal, info->si_code);
		return;
	}
	sigset_t blocked;
	sigorset(&blocked, &context->uc_sigmask, &program.sa_mask);
	if (!(program.sa_flags & SA_NODEFER))
		sigaddset(&blocked, signal);
	vb_restore_signals(*(uint64_t *)&blocked);
	if (program.sa_flags & SA_SIGINFO)
		program.sa_sigaction(signal, info, context);
	else
		program.sa_handler(signal);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	int error = errno;
	uintptr_t at = (uintptr_t)info->si_addr;
	/* Not of kill(). */
	if (info->si_code > 0) {
		vb_turn_fault(at);
		if (vb_memory_fault(at)) {
			errno = error;
			return;
		}
	}
	deliver(signal, info, context);
}

void vb_signals_catch(bool moving)
{
	struct sigaction now;
	uint64_t before = enter();
	state.moving = moving;
	/* Set by a system call of the program's own. */
	real_action()(SIGSEGV, NULL, &now);
	if (now.sa_sigaction != on_fault)
		state.program = now;
	install();
	leave(before);
}

/*
 * In a child of fork. Another thread of the parent may have had the lock. Nothing of this library
 * is in the child's way until it opens a device.
 */
void vb_signals_leave(void)
{
	struct sigaction now;
	state.lock = 0;
	state.holder = 0;
	real_action()(SIGSEGV, NULL, &now);
	if (now.sa_sigaction == on_fault)
		real_action()(SIGSEGV, &state.program, NULL);
}

static int set_fault_action(const struct sigaction *new, struct sigaction *old)
{
	/* Read and written without the lock: their pointers are the program's. */
	struct sigaction wanted, found;
	if (new)
		wanted = *new;
	uint64_t before = enter();
	int result = set_program(new ? &wanted : NULL, &found);
	leave(before);
	if (old && result == 0)
		*old = found;
	return result;
}

VB_EXPORT int sigaction(int number, const struct sigaction *restrict new,
			struct sigaction *restrict old)
{
	if (number == SIGSEGV)
		return set_fault_action(new, old);
	if (!new || sigismember(&new->sa_mask, SIGSEGV) != 1)
		return real_action()(number, new, old);
	struct sigaction wanted = *new;
	sigdelset(&wanted.sa_mask, SIGSEGV);
	return real_action()(number, &wanted, old);
}

static sighandler_t set_fault_handler(sighandler_t handler, int flags)
{
	struct sigaction new = { .sa_handler = handler, .sa_flags = flags }, old;
	return set_fault_action(&new, &old) ? SIG_ERR : old.sa_handler;
}

VB_EXPORT sighandler_t signal(int number, sighandler_t handler)
{
	find_if_first();
	if (number != SIGSEGV)
		return real.handler(number, handler);
	return set_fault_handler(handler, SA_RESTART);
}

/* Of programs that were compiled for X/Open alone. */
VB_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler)
{
	find_if_first();
	if (number != SIGSEGV)
		return real.once(number, handler);
	return set_fault_handler(handler, SA_RESETHAND | SA_NODEFER);
}

VB_EXPORT sighandler_t ssignal(int, sighandler_t) __attribute__((alias("signal")));
VB_EXPORT sighandler_t sysv_signal(int, sighandler_t) __attribute__((alias("__sysv_signal")));

/* The set without SIGSEGV, in `room` if it differs. */
static const sigset_t *without_faults(int how, const sigset_t *set, sigset_t *room)
{
	if (!set || how == SIG_UNBLOCK || sigismember(set, SIGSEGV) != 1)
		return set;
	*room = *set;
	sigdelset(room, SIGSEGV);
	return room;
}

VB_EXPORT int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	sigset_t room;
	find_if_first();
	return real.thread_mask(how, without_faults(how, set, &room), old);
}

VB_EXPORT int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	sigset_t room;
	find_if_first();
	return real.mask(how, without_faults(how, set, &room), old);
}
