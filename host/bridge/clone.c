/*
 * Children of `clone` and of `syscall`, the functions of the C library. Without CLONE_VM they are
 * children as of fork: the child gets copies of registered memory (fork.c). With CLONE_VM they are
 * threads, or share all memory until exec, and the call goes to the kernel as it is. Calls of
 * `syscall` that are about memory go to memory-calls.c.
 *
 * `syscall` is in assembly: a child with a stack of its own, and a child of vfork, return from the
 * function without a frame of this library. The library's own calls come here as well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "internal.h"

/* Later kernels have longer arguments of clone3. */
#define ARGUMENTS_BYTES 256

_Static_assert(SYS_clone == 56 && SYS_fork == 57 && SYS_clone3 == 435, "numbers below");
_Static_assert(SYS_mremap == 25 && SYS_madvise == 28 && SYS_shmdt == 67, "numbers below");

__asm__(".pushsection .text\n"
	".globl syscall\n"
	".type syscall, @function\n"
	"syscall:\n"
	".cfi_startproc\n\t"
	"cmp $25, %rdi\n\t"
	"je vb_memory_call\n\t"
	"cmp $28, %rdi\n\t"
	"je vb_memory_call\n\t"
	"cmp $67, %rdi\n\t"
	"je vb_memory_call\n\t"
	"lea -56(%rdi), %rax\n\t"
	"cmp $1, %rax\n\t"
	"jbe 1f\n\t"
	"cmp $435, %rdi\n\t"
	"jne vb_syscall\n"
	"1:\n\t"
	"push %rdi\n\t.cfi_adjust_cfa_offset 8\n\t"
	"push %rsi\n\t.cfi_adjust_cfa_offset 8\n\t"
	"push %rdx\n\t.cfi_adjust_cfa_offset 8\n\t"
	"push %rcx\n\t.cfi_adjust_cfa_offset 8\n\t"
	"push %r8\n\t.cfi_adjust_cfa_offset 8\n\t"
	"push %r9\n\t.cfi_adjust_cfa_offset 8\n\t"
	"sub $8, %rsp\n\t.cfi_adjust_cfa_offset 8\n\t"
	"call vb_is_fork\n\t"
	"add $8, %rsp\n\t.cfi_adjust_cfa_offset -8\n\t"
	"pop %r9\n\t.cfi_adjust_cfa_offset -8\n\t"
	"pop %r8\n\t.cfi_adjust_cfa_offset -8\n\t"
	"pop %rcx\n\t.cfi_adjust_cfa_offset -8\n\t"
	"pop %rdx\n\t.cfi_adjust_cfa_offset -8\n\t"
	"pop %rsi\n\t.cfi_adjust_cfa_offset -8\n\t"
	"pop %rdi\n\t.cfi_adjust_cfa_offset -8\n\t"
	"test %al, %al\n\t"
	"je vb_syscall\n\t"
	"mov vb_kept_registers@gottpoff(%rip), %rax\n\t"
	"mov %rbx, %fs:(%rax)\n\t"
	"mov %rbp, %fs:8(%rax)\n\t"
	"mov %r12, %fs:16(%rax)\n\t"
	"mov %r13, %fs:24(%rax)\n\t"
	"mov %r14, %fs:32(%rax)\n\t"
	"mov %r15, %fs:40(%rax)\n\t"
	"jmp vb_fork_by_call\n\t"
	".cfi_endproc\n"
	".size syscall, . - syscall\n"
	".globl vb_syscall\n"
	".hidden vb_syscall\n"
	".type vb_syscall, @function\n"
	"vb_syscall:\n"
	".cfi_startproc\n\t"
	"mov %rdi, %rax\n\t"
	"mov %rsi, %rdi\n\t"
	"mov %rdx, %rsi\n\t"
	"mov %rcx, %rdx\n\t"
	"mov %r8, %r10\n\t"
	"mov %r9, %r8\n\t"
	"mov 8(%rsp), %r9\n\t"
	"syscall\n\t"
	"cmp $-4095, %rax\n\t"
	"jae 2f\n\t"
	"ret\n"
	"2:\n\t"
	"push %rax\n\t.cfi_adjust_cfa_offset 8\n\t"
	"call __errno_location@PLT\n\t"
	"pop %rcx\n\t.cfi_adjust_cfa_offset -8\n\t"
	"neg %ecx\n\t"
	"mov %ecx, (%rax)\n\t"
	"mov $-1, %rax\n\t"
	"ret\n\t"
	".cfi_endproc\n"
	".size vb_syscall, . - vb_syscall\n"
	".popsection");

/* rbx, rbp, r12 to r15 at the last call of `syscall` that made a child: a function keeps them. */
__attribute__((used, visibility("hidden"),
	       tls_model("initial-exec"))) __thread uint64_t vb_kept_registers[6];

/* Reads what a program names, as the kernel does. False: there is nothing to read (EFAULT). */
static bool read_arguments(void *to, uint64_t from, size_t bytes)
{
	const struct iovec here = { to, bytes }, there = { (void *)from, bytes };
	long got = vb_syscall(SYS_process_vm_readv, getpid(), (long)&here, 1, (long)&there, 1, 0);
	/* A filter of system calls. */
	if (got < 0 && errno != EFAULT)
		memcpy(to, (const void *)from, bytes);
	return got == (long)bytes || (got < 0 && errno != EFAULT);
}

/* Whether the call makes a child without the memory of its parent. Of `syscall`. */
__attribute__((used)) bool vb_is_fork(long number, uint64_t first, uint64_t second)
{
	uint64_t flags;
	if (number == SYS_clone)
		return !(first & CLONE_VM);
	if (number != SYS_clone3)
		return number == SYS_fork;
	int error = errno;
	bool is_fork = second >= CLONE_ARGS_SIZE_VER0 && second <= ARGUMENTS_BYTES &&
		       read_arguments(&flags, first, sizeof flags) && !(flags & CLONE_VM);
	errno = error;
	return is_fork;
}

static pid_t call_kernel(const long words[6])
{
	return vb_syscall(words[0], words[1], words[2], words[3], words[4], words[5]);
}

/* The child would close the device's descriptors in its parent, or has no thread-local memory. */
static bool is_refused(uint64_t flags)
{
	static bool said;
	if (!(flags & (CLONE_FILES | CLONE_SETTLS)) || vb.owner != getpid())
		return false;
	if (!said)
		vb_complain("clone: a program with a device has no child with CLONE_FILES or "
			    "CLONE_SETTLS and without CLONE_VM; leave both flags out, or call fork "
			    "(EOPNOTSUPP)");
	said = true;
	return true;
}

/* The child returns on this stack, as it does from the C library's own `syscall`. */
static _Noreturn void return_on(uintptr_t stack)
{
	__asm__ volatile("mov (%%rdi), %%rbx\n\t"
			 "mov 8(%%rdi), %%rbp\n\t"
			 "mov 16(%%rdi), %%r12\n\t"
			 "mov 24(%%rdi), %%r13\n\t"
			 "mov 32(%%rdi), %%r14\n\t"
			 "mov 40(%%rdi), %%r15\n\t"
			 "mov %%rsi, %%rsp\n\t"
			 "xor %%eax, %%eax\n\t"
			 "ret"
			 :
			 : "D"(vb_kept_registers), "S"(stack)
			 : "memory");
	__builtin_unreachable();
}

/* A call of `syscall` for which vb_is_fork. */
__attribute__((used)) long vb_fork_by_call(long number, long first, long second, long third,
					   long fourth, long fifth)
{
	/* Its stack is set in the child: pages are copied on another one. */
	union {
		struct clone_args known;
		char bytes[ARGUMENTS_BYTES];
	} copy;
	long words[6] = { number, first, second, third, fourth, fifth };
	uint64_t flags = 0;
	uintptr_t stack = 0;
	pid_t *child_id = NULL;
	if (number == SYS_clone) {
		flags = first;
		stack = second;
		words[1] = first & ~(long)CLONE_CHILD_SETTID;
		words[2] = 0;
		child_id = (pid_t *)fourth;
	}
	if (number == SYS_clone3) {
		if (!read_arguments(copy.bytes, first, second)) {
			errno = EFAULT;
			return -1;
		}
		flags = copy.known.flags;
		copy.known.flags &= ~(uint64_t)CLONE_CHILD_SETTID;
		child_id = (pid_t *)copy.known.child_tid;
		/* One without the other is an error. */
		if (copy.known.stack && copy.known.stack_size) {
			stack = copy.known.stack + copy.known.stack_size;
			copy.known.stack = copy.known.stack_size = 0;
		}
		words[1] = (long)&copy;
	}
	if (is_refused(flags)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	pid_t child = vb_fork_by(call_kernel, words);
	/* Not the kernel, which would write it before the page is copied. */
	if (child == 0 && flags & CLONE_CHILD_SETTID)
		*child_id = vb_syscall(SYS_gettid);
	if (child == 0 && stack)
		return_on(stack);
	return child;
}

typedef int clone_call(int (*run)(void *), void *stack, int flags, void *argument, ...);

static clone_call *real_clone;

__attribute__((constructor)) static void find_real(void)
{
	real_clone = (clone_call *)dlsym(RTLD_NEXT, "clone");
}

static _Noreturn void run_on(void *stack, int (*run)(void *), void *argument)
{
	__asm__ volatile("mov %0, %%rsp\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "call *%1\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %2, %%eax\n\t"
			 "syscall"
			 :
			 : "r"((uintptr_t)stack & -16ul), "r"(run), "i"(SYS_exit), "D"(argument)
			 : "memory");
	__builtin_unreachable();
}

VB_EXPORT int clone(int (*run)(void *), void *stack, int flags, void *argument, ...)
{
	va_list list;
	va_start(list, argument);
	/* There or not, as the C library reads them. */
	pid_t *parent_tid = va_arg(list, pid_t *);
	void *storage = va_arg(list, void *);
	pid_t *child_tid = va_arg(list, pid_t *);
	va_end(list);
	if (flags & CLONE_VM || !run || !stack) {
		if (!real_clone)
			find_real();
		return real_clone(run, stack, flags, argument, parent_tid, storage, child_tid);
	}
	pid_t child = vb_fork_by_call(SYS_clone, (unsigned)flags, 0, (long)parent_tid,
				      (long)child_tid, (long)storage);
	if (child == 0)
		run_on(stack, run, argument);
	return child;
}

VB_EXPORT __typeof__(clone) __clone __attribute__((alias("clone"), copy(clone)));
