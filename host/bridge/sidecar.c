/*
 * The sidecar is a Node process that has the device. It starts with the first verb, as an orphan in
 * a session of its own: no SIGCHLD, no result for wait(), no ctrl-C. It ends when the socket to
 * this process closes, however this process ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "faults.h"
#include "internal.h"
#include "turns.h"
#include "wasm-memory.h"

/* With so few processors a program that polls must let the sidecar run. */
#define FEW_PROCESSORS 4

struct vb vb = { .socket = -1, .memory = -1, .wake = -1, .pass = -1, .shared_file = -1 };

/* Has this process ended? One that no other has waited for yet has. */
static bool has_ended(pid_t pid)
{
	char path[32], state = 'Z', name[64];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return kill(pid, 0) && errno == ESRCH;
	bool is_read = fscanf(file, "%*d %63s %c", name, &state) == 2;
	fclose(file);
	return is_read && state == 'Z';
}

/*
 * The program ends with `verbena run`, also if that is killed: no process would wait for it. The
 * mark is for the child of that process alone, whose parent may have ended before this runs.
 */
__attribute__((constructor)) static void end_with_parent(void)
{
	const char *text = vb_setting("VERBENA_RUN_PARENT");
	pid_t parent = text ? strtol(text, NULL, 10) : 0;
	bool is_child = getenv("VERBENA_RUN_CHILD") != NULL;
	if (is_child)
		unsetenv("VERBENA_RUN_CHILD");
	if (!parent)
		return;
	bool was_child = parent == getppid();
	if (was_child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if ((was_child || is_child) && parent != getppid() && has_ended(parent))
		raise(SIGKILL);
}

static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

void vb_complain(const char *format, ...)
{
	char line[600];
	va_list list;
	va_start(list, format);
	vsnprintf(line, sizeof line, format, list);
	va_end(list);
	dprintf(STDERR_FILENO, "verbena run: %s\n", line);
}

/* musl has none. */
#pragma weak strerrorname_np

const char *vb_error_name(int error)
{
	const char *name = strerrorname_np ? strerrorname_np(error) : strerror(error);
	return name ? name : "an error";
}

bool vb_debugging(void)
{
	const char *value = vb_setting("VERBENA_DEBUG");
	return value && *value == '1';
}

static int transfer(int fd, void *bytes, size_t length, bool sends)
{
	for (char *at = bytes; length > 0;) {
		ssize_t done = sends ? send(fd, at, length, MSG_NOSIGNAL) : recv(fd, at, length, 0);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return EIO;
		at += done;
		length -= done;
	}
	return 0;
}

/* The words of a reply behind the first two. Returns their number, or -1. */
static int receive_reply(uint64_t *words, int *error)
{
	uint64_t head[2];
	if (transfer(vb.socket, head, sizeof head, false))
		return -1;
	if (head[0] < sizeof head || head[0] > MESSAGE_WORDS * 8 || head[0] % 8)
		return -1;
	size_t length = head[0] - sizeof head;
	if (transfer(vb.socket, words, length, false))
		return -1;
	*error = (int)head[1];
	return length / 8;
}

/* A refusal: its sentence follows its length. */
static void report_refusal(uint32_t operation, const uint64_t *words, int count)
{
	size_t most = count > 1 ? (count - 1) * 8 : 0;
	size_t length = count > 0 && words[0] < most ? words[0] : most;
	/* Programs try what a device may not have: their own sentence is enough. */
	const char *sentence = (const char *)(words + 1);
	if (operation == OP_HELLO)
		vb_complain("%.*s", (int)length, sentence);
	else if (vb_debugging())
		vb_complain("operation %u: %.*s", operation, (int)length, sentence);
}

/* Is there no answer after a second? */
static bool is_late(void)
{
	struct pollfd answer = { .fd = vb.socket, .events = POLLIN };
	return poll(&answer, 1, 1000) == 0;
}

/*
 * A descriptor, for the next request. Not by /proc/PID/fd: the sidecar may not look into a program
 * that is not dumpable (prctl, capabilities of its file, Yama). 0, or -1 with errno.
 */
int vb_pass_descriptor(int socket, int fd)
{
	char byte = 0;
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { .bytes = { 0 } };
	struct iovec place = { &byte, 1 };
	struct msghdr header = { .msg_iov = &place,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control };
	struct cmsghdr *one = CMSG_FIRSTHDR(&header);
	one->cmsg_level = SOL_SOCKET;
	one->cmsg_type = SCM_RIGHTS;
	one->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(one), &fd, sizeof fd);
	return sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/* `passed`: a descriptor for the operation, or -1. */
static int call(uint32_t operation, const uint64_t *arguments, int count, uint64_t *results,
		int result_count, int passed)
{
	uint64_t request[MESSAGE_WORDS], reply[MESSAGE_WORDS];
	int error = EIO;
	if (count > MESSAGE_WORDS - 2)
		return vb_errno(EINVAL);
	if (operation != OP_HELLO && vb.owner != getpid() && vb_child_join(operation))
		return vb_errno(EIO);
	int fault = vb_fault_call(operation, 0);
	if (fault)
		return vb_errno(fault);
	vb_turn_settle();
	request[0] = (2 + count) * 8;
	request[1] = operation;
	if (count > 0)
		memcpy(request + 2, arguments, count * 8);
	/* send and recv are cancellation points; verbs of the kernel have no such point. */
	int cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	/* A handler may call a verb as well, or leave by siglongjmp. */
	uint64_t signals = vb_block_signals();
	pthread_mutex_lock(&call_lock);
	int before = errno;
	int got = passed >= 0 ? vb_pass_descriptor(vb.pass, passed) : 0;
	if (got == 0 && transfer(vb.socket, request, request[0], true))
		got = -1;
	/* A sidecar that is stopped: ctrl-C still ends the program. */
	if (got == 0 && is_late())
		vb_restore_signals(vb_memory_signals(signals));
	if (got == 0)
		got = receive_reply(reply, &error);
	if (got >= 0 && error == 0 && result_count > 0) {
		memset(results, 0, result_count * 8);
		memcpy(results, reply, (got < result_count ? got : result_count) * 8);
	}
	pthread_mutex_unlock(&call_lock);
	vb_restore_signals(signals);
	pthread_setcancelstate(cancel, NULL);
	if (got >= 0 && error)
		report_refusal(operation, reply, got);
	else if (operation == OP_HELLO && error)
		vb_complain("the process of the device ended at its start: it needs some 12 GiB of "
			    "address space (ulimit -v), 40 open files (ulimit -n), and Node in the "
			    "program's root (chroot); raise the limits, or open the device earlier "
			    "(EIO)");
	errno = before;
	return vb_errno(error);
}

int vb_call(uint32_t operation, const uint64_t *arguments, int count, uint64_t *results,
	    int result_count)
{
	return call(operation, arguments, count, results, result_count, -1);
}

int vb_pipe(int ends[2])
{
	return pipe2(ends, O_CLOEXEC) ? errno : 0;
}

int vb_make_channel(uint32_t operation, int *fd, uint64_t *handle)
{
	int ends[2];
	int error = vb_pipe(ends);
	if (error)
		return error;
	/* The sidecar writes to this description of the pipe, and does not wait for room. */
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	error = call(operation, NULL, 0, handle, 1, ends[1]);
	close(ends[1]);
	if (error)
		close(ends[0]);
	else
		*fd = ends[0];
	return error;
}

bool vb_sidecar_lives(void)
{
	char one;
	/* A thread that has the turn may not be cancelled here. */
	return syscall(SYS_recvfrom, vb.socket, &one, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) != 0;
}

int vb_read_event(int fd, void *event, size_t size)
{
	ssize_t got = read(fd, event, size);
	if (got == (ssize_t)size)
		return 0;
	/* Another thread has destroyed the channel. A read of the kernel's waits for a signal then. */
	if (got == 0 && vb_sidecar_lives())
		return pause();
	if (got == 0)
		errno = EIO;
	return -1;
}

int vb_lift(int fd)
{
	struct rlimit files = { 0 };
	int lifted = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, VB_FD_FIRST);
	/* A low limit of open files: the upper half, or any that the sidecar does not start with. */
	if (fd >= 0 && lifted < 0 && !getrlimit(RLIMIT_NOFILE, &files))
		lifted = fcntl(fd, F_DUPFD_CLOEXEC, (int)files.rlim_cur / 2);
	if (fd >= 0 && lifted < 0)
		lifted = fcntl(fd, F_DUPFD_CLOEXEC, SIDECAR_PROGRAM + 1);
	if (fd >= 0)
		close(fd);
	return lifted;
}

#define DESCRIPTORS (SIDECAR_PROGRAM - SIDECAR_SOCKET + 1)

/* Descriptors of a new sidecar, at this side. */
struct ends {
	int socket;
	int memory;
	int wake;
	int pipe;
	int pass;
};

/* In the order of their numbers there. */
static void list_ends(const struct ends *ends, int list[DESCRIPTORS])
{
	const int all[DESCRIPTORS] = { ends->socket, ends->memory, ends->wake,
				       ends->pipe,   ends->pass,   ends->socket };
	memcpy(list, all, sizeof all);
}

/* Limits that the program has set itself are not for the sidecar. */
static void raise_limits(void)
{
	const int kinds[] = { RLIMIT_AS,    RLIMIT_DATA,   RLIMIT_FSIZE,
			      RLIMIT_NPROC, RLIMIT_NOFILE, RLIMIT_CPU };
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct rlimit limit;
		if (getrlimit(kinds[i], &limit))
			continue;
		limit.rlim_cur = limit.rlim_max;
		setrlimit(kinds[i], &limit);
	}
}

/* In the child of a program with threads: system calls only. Does not return. */
static void become_sidecar(const struct ends *ends, char *const argv[], char *const environment[])
{
	/* An intermediate process, so that init or a subreaper is the parent. */
	long child = vb_syscall(SYS_clone, CLONE_UNTRACED, 0, 0, 0, 0);
	if (child != 0)
		_exit(child < 0);
	setsid();
	raise_limits();
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* The program's input and output would stay open for their readers. */
	int null = open("/dev/null", O_RDWR);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	/* Standard error stays open for a message after the program's end: an incomplete capture. */
	if (!vb_debugging() && !vb_setting("VERBENA_RUN_COMPLAINS"))
		dup2(null, STDERR_FILENO);
	int from[DESCRIPTORS];
	list_ends(ends, from);
	for (int i = 0; i < DESCRIPTORS; i++)
		if (dup2(from[i], SIDECAR_SOCKET + i) < 0)
			_exit(1);
	if (syscall(SYS_close_range, SIDECAR_PROGRAM + 1, ~0u, 0) < 0)
		for (int fd = SIDECAR_PROGRAM + 1; fd < 4096; fd++)
			close(fd);
	execve(argv[0], argv, environment);
	_exit(1);
}

/* The sidecar allocates little and reads no files: it needs few heaps, and no pool of threads. */
static char *const sizes[] = { "MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=65536",
			       "MALLOC_TOP_PAD_=0", "UV_THREADPOOL_SIZE=1" };

static bool is_in(char **list, int count, const char *entry)
{
	size_t length = strcspn(entry, "=") + 1;
	for (int i = 0; i < count; i++)
		if (!strncmp(list[i], entry, length))
			return true;
	return false;
}

/*
 * The environment without what loads this library, and with the options of `verbena run`. The
 * caller frees the list.
 */
static char **sidecar_environment(char *owner)
{
	const int own = sizeof sizes / sizeof *sizes;
	char *const *settings = vb_settings();
	int count = 0, kept = 0, most = own + 2;
	while (environ && environ[count])
		count++;
	while (settings[most - own - 2])
		most++;
	char **list = calloc(count + most, sizeof *list);
	if (!list)
		return NULL;
	for (int i = 0; i < count; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "NODE_OPTIONS=", 13))
			list[kept++] = environ[i];
	for (; *settings; settings++)
		if (!is_in(list, kept, *settings))
			list[kept++] = *settings;
	for (int i = 0; i < own; i++)
		list[kept++] = sizes[i];
	list[kept] = owner;
	return list;
}

static int spawn(const struct ends *ends, const char *node, const char *script)
{
	char owner[64];
	snprintf(owner, sizeof owner, "VERBENA_RUN_OWNER=%d", getpid());
	/* The baseline compiler and a large young heap are for programs that compute. */
	char *argv[] = { (char *)node,	       "--no-warnings", "--max-semi-space-size=1",
			 "--no-sparkplug",     (char *)script,	NULL };
	char **environment = sidecar_environment(owner);
	if (!environment)
		return ENOMEM;
	/*
	 * A program that adopts orphans would adopt the sidecar, with SIGCHLD at its end. Orphans of
	 * its own have another parent if theirs ends meanwhile.
	 */
	int adopts = 0;
	prctl(PR_GET_CHILD_SUBREAPER, &adopts);
	if (adopts)
		prctl(PR_SET_CHILD_SUBREAPER, 0);
	/* Without a signal at its end: the program's wait() does not see it. Nor does a debugger. */
	long child = vb_syscall(SYS_clone, CLONE_UNTRACED, 0, 0, 0, 0);
	if (child == 0)
		become_sidecar(ends, argv, environment);
	int error = child < 0 ? errno : 0;
	int status = 0;
	while (!error && waitpid(child, &status, __WALL) < 0)
		if (errno != EINTR)
			error = errno;
	if (adopts)
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	free(environment);
	return error ? error : status ? EAGAIN : 0;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Descriptors of this side until the sidecar has greeted. */
struct begin {
	int pipe;
	int pass;
};

/* Opens all that both sides have. 0 or an errno. */
static int open_ends(struct ends *theirs, struct begin *ours)
{
	int sockets[2], pipes[2], passes[2];
	/* A child's channel to the sidecar of its parent. */
	close_end(&vb.socket);
	vb.memory = vb_lift(memfd_create("verbena", MFD_CLOEXEC));
	vb.wake = vb_lift(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	if (vb.memory < 0 || vb.wake < 0)
		return errno;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		return errno;
	vb.socket = vb_lift(sockets[0]);
	theirs->socket = vb_lift(sockets[1]);
	if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK))
		return errno;
	theirs->pipe = vb_lift(pipes[0]);
	ours->pipe = vb_lift(pipes[1]);
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, passes))
		return errno;
	ours->pass = vb_lift(passes[0]);
	theirs->pass = vb_lift(passes[1]);
	theirs->memory = vb.memory;
	theirs->wake = vb.wake;
	const int lifted[] = { vb.socket, theirs->socket, theirs->pipe,
			       ours->pipe, ours->pass,	  theirs->pass };
	for (size_t i = 0; i < sizeof lifted / sizeof *lifted; i++)
		if (lifted[i] < 0)
			return EMFILE;
	return 0;
}

/* Address space for all indices of the engine's C: one outside of the memory is a fault. */
static char *reserve(size_t bytes)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	size_t whole = (1ull << 32) + WASM_GUARD_BYTES;
	char *base = vb_map(NULL, whole, PROT_NONE, flags, -1, 0);
	vb.has_guard = base != MAP_FAILED;
	/* A limit of address space: the sidecar makes all turns. */
	return vb.has_guard ? base : vb_map(NULL, bytes, PROT_NONE, flags, -1, 0);
}

static int refuse_map(void)
{
	int error = errno;
	vb_complain("cannot map the %zu MiB of the device: %s; choose a smaller --memory, or raise "
		    "the limit of address space (ulimit -v)",
		    vb.bytes >> 20, vb_error_name(error));
	return error;
}

static int map_memory(const char *path)
{
	const int rights = PROT_READ | PROT_WRITE;
	vb.bytes = vb.hello[HELLO_MEMORY_BYTES];
	vb.base = reserve(vb.bytes);
	if (vb.base == MAP_FAILED)
		return refuse_map();
	const int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
	if (vb_map(vb.base, vb.bytes, rights, flags, vb.memory, 0) == MAP_FAILED)
		return refuse_map();
	vb.shared = vb.hello[HELLO_SHARED];
	if (vb.shared == 0)
		return 0;
	vb.shared_file = vb_lift(open(path, O_RDWR | O_CLOEXEC));
	if (vb.shared_file < 0) {
		int error = errno;
		vb_complain("cannot open %s, the memory of the device: %s; open the device before "
			    "the program changes its root or its rights",
			    path, vb_error_name(error));
		return error;
	}
	size_t length = vb.bytes - vb.shared;
	void *at = vb_map(vb.base + vb.shared, length, rights, MAP_SHARED | MAP_FIXED, vb.shared_file, 0);
	return at == MAP_FAILED ? errno : 0;
}

static int greet(void)
{
	uint64_t reply[MESSAGE_WORDS], children[CHILD_WORDS];
	int error = vb_child_begin(children);
	if (!error)
		error = vb_call(OP_HELLO, children, CHILD_WORDS, reply, MESSAGE_WORDS);
	if (error)
		return error;
	memcpy(vb.hello, reply, sizeof vb.hello);
	char path[(MESSAGE_WORDS - HELLO_WORDS) * 8] = "";
	uint64_t length = reply[HELLO_WORDS];
	if (length >= sizeof path - 8)
		return EINVAL;
	memcpy(path, reply + HELLO_WORDS + 1, length);
	return map_memory(path);
}

static void close_ends(struct ends *theirs, struct begin *ours)
{
	close_end(&theirs->socket);
	close_end(&theirs->pipe);
	close_end(&theirs->pass);
	if (!ours)
		return;
	close_end(&ours->pipe);
	close_end(&ours->pass);
	close_end(&vb.memory);
	close_end(&vb.wake);
}

/* Has the process of `verbena run` taken the ends? Otherwise they are new ones: it may have some. */
static int offer_ends(struct ends *theirs, struct begin *ours, bool *is_taken)
{
	int list[DESCRIPTORS];
	list_ends(theirs, list);
	/* For some seconds at most: a handler that opens the device would wait for this thread. */
	uint64_t signals = vb_block_signals();
	bool was_offered = vb_take_offer(list, DESCRIPTORS, is_taken);
	vb_restore_signals(signals);
	if (*is_taken || !was_offered)
		return 0;
	close_ends(theirs, ours);
	return open_ends(theirs, ours);
}

static int start(void)
{
	const char *node = vb_setting("VERBENA_RUN_NODE"), *script = vb_setting("VERBENA_RUN_SIDECAR");
	struct ends theirs = { -1, -1, -1, -1, -1 };
	struct begin ours = { -1, -1 };
	bool is_taken = false;
	if (!node || !script) {
		vb_complain("the library is loaded without the options of its command: start the "
			    "program by `verbena run` (ENODEV)");
		return ENODEV;
	}
	int error = open_ends(&theirs, &ours);
	if (!error)
		error = offer_ends(&theirs, &ours, &is_taken);
	if (!error && !is_taken)
		error = spawn(&theirs, node, script);
	close_ends(&theirs, NULL);
	if (!error)
		error = greet();
	if (!error)
		error = vb_memory_begin();
	if (!error)
		error = vb_slots_begin();
	if (!error && !vb.hello[HELLO_HAS_THREAD]) {
		close_end(&vb.wake);
		vb.wake = ours.pipe;
		ours.pipe = -1;
	}
	close_end(&ours.pipe);
	if (!error)
		vb_turns_begin(ours.pass);
	if (!error) {
		vb.pass = ours.pass;
		ours.pass = -1;
	}
	close_end(&ours.pass);
	if (error) {
		close_end(&vb.socket);
		close_end(&vb.memory);
		close_end(&vb.wake);
		close_end(&vb.shared_file);
		return error;
	}
	vb.few_processors = sysconf(_SC_NPROCESSORS_ONLN) <= FEW_PROCESSORS;
	vb.generation++;
	vb.owner = getpid();
	return 0;
}

int vb_start(void)
{
	/* As in call(). Signals stay: ctrl-C ends a program whose device does not come. */
	int cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&start_lock);
	int error = vb.owner == getpid() ? 0 : start();
	pthread_mutex_unlock(&start_lock);
	pthread_setcancelstate(cancel, NULL);
	return error;
}

/* In a child of fork, before the program's code runs: the sidecar is its parent's. */
void vb_sidecar_leave(void)
{
	pthread_mutex_init(&call_lock, NULL);
	pthread_mutex_init(&start_lock, NULL);
	vb_locks_leave();
	vb_turns_leave();
	vb_signals_leave();
	close_end(&vb.socket);
	close_end(&vb.memory);
	close_end(&vb.wake);
	close_end(&vb.pass);
	close_end(&vb.shared_file);
	/* Objects of the parent: their rings are empty here and their queue pairs in RESET. */
	vb_map(vb.base, vb.bytes, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	vb_handles_forget();
	vb.owner = 0;
}
