/*
 * Turns of the engine in this process: a thread that posts or polls runs the engine (build/bridge/
 * engine.c, translated from the module that the sidecar runs) on the device's memory and sends and
 * receives over the device's socket. The sidecar's thread makes turns while the program does not.
 *
 * The rules are those of two threads that share an engine (host/engine/control-block.ts, and
 * host/device/progress/thread-progress.ts): one of them has the turn, and each call of an export
 * has the lock, since control verbs run in the sidecar. Both words say that this process holds them
 * (ABI_CONTROL_LENT), so that the sidecar can take them back after its end.
 *
 * A trap of the engine, or an access outside of its memory, ends the turn: this process makes no
 * other, and its device fails.
 *
 * Signals wait for the end of a turn: a handler may call a verb, whose reply would wait for the lock
 * of the turn that it has interrupted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "engine.h"
#include "internal.h"
#include "turns.h"
#include "wasm-memory.h"

/* Fast empty polls in a row after which the thread counts as one that only polls. */
#define RAPID_POLLS 8
#define RAPID_MICROS 100
/* So soon the sidecar's thread looks after a leader that has gone (progress-thread.ts). */
#define LOOK_MICROS 500
/* No turns for so long, at most, while threads of the sidecar wait. */
#define YIELD_MICROS 10000
#define LOCK_SPINS 200
#define LOCK_NANOSECONDS 20000
/* Sleeps between two checks that the sidecar lives. */
#define LOCK_SLEEPS 50
/* Lists of packets that leave in one turn at most: the engine's could have no end. */
#define DRAIN_LISTS 4096
/* The link fails after this number of errors in a row (udp-batch.ts). */
#define RECEIVE_ERRORS_MAX 16

uint32_t wasm_memory_pages;

static struct {
	bool active;
	/* The value of turn and lock while this process holds them. */
	uint32_t holder;
	/* In the sidecar: a socket to the program, which hangs up when that ends; else -1. */
	int program;
	int socket;
	/* Lists for packets that leave, of `buffers` buffers: the context's could be overwritten. */
	const struct abi_send_descriptor *sends;
	uint32_t buffers;
	/* An answer waits for the next turn. */
	bool owes;
	double deadline;
	/* Head of the ring of events as last seen. */
	uint32_t events;
	/* Packets that other processes of the device have brought, as last seen. */
	uint32_t mail;
	/* Since when threads of the sidecar wait; 0: none does. */
	double waiting;
	/* Doorbells, packets and timers of this turn. */
	unsigned done;
	/* In the sidecar: receive errors in a row, and the one by which the socket is lost. */
	unsigned errors;
	int lost;
	bool has_lock;
	jmp_buf trapped;
} turns = { .holder = ABI_CONTROL_LENT, .program = -1, .socket = -1 };

/* This thread has the turn. */
static __thread bool in_turn __attribute__((tls_model("initial-exec")));

/* Fast empty polls in a row of this thread, and when the last one ended. */
static __thread struct {
	unsigned polls;
	double polled;
} rapid __attribute__((tls_model("initial-exec")));

static double now_micros(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* As ControlBlock has moments: the low 32 bits, never 0. */
static uint32_t moment(double micros)
{
	uint32_t low = (uint32_t)(uint64_t)micros;
	return low ? low : 1;
}

static uint32_t *word(unsigned offset)
{
	return vb_at(vb.hello[HELLO_CONTROL] + offset);
}

static const struct abi_context *context(void)
{
	return vb_at(vb.hello[HELLO_CONTEXT]);
}

static uint32_t address(void)
{
	return vb.hello[HELLO_CONTEXT];
}

static uint8_t *memory(void)
{
	return (uint8_t *)vb.base;
}

/* ---- the lock and the turn */

static bool change(unsigned offset, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(word(offset), &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static bool take(unsigned offset)
{
	return change(offset, 0, turns.holder);
}

/* In the sidecar: has the program ended? */
static bool is_orphaned(void)
{
	struct pollfd program = { turns.program, 0, 0 };
	const struct timespec none = { 0, 0 };
	return turns.program >= 0 && syscall(SYS_ppoll, &program, 1, &none, NULL, 0) > 0 &&
	       program.revents & POLLHUP;
}

/*
 * In the sidecar: what the program held that has ended (ControlBlock.reclaim). True: it is free now.
 */
static bool reclaim(unsigned offset)
{
	return vb_load(word(offset)) == ABI_CONTROL_LENT && is_orphaned() &&
	       change(offset, ABI_CONTROL_LENT, 0);
}

static void rest(long nanoseconds)
{
	const struct timespec moment = { 0, nanoseconds };
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &moment, NULL);
}

/* Ends this turn: the other process has ended, or the engine has trapped. */
static __attribute__((noreturn)) void abandon(void)
{
	longjmp(turns.trapped, 1);
}

/* The lock is not free, for long. */
static void look_after_lock(void)
{
	if (turns.program < 0) {
		if (!vb_sidecar_lives())
			abandon();
		return;
	}
	/* It has ended in a call of the engine, whose lists may be half changed. */
	if (reclaim(ABI_CONTROL_LOCK))
		abandon();
	/* A stray store has locked it. */
	if (vb_load(word(ABI_CONTROL_STOP)) != 0 && is_orphaned())
		abandon();
}

static void lock(void)
{
	for (unsigned spin = 0; spin < LOCK_SPINS; spin++) {
		if (take(ABI_CONTROL_LOCK)) {
			turns.has_lock = true;
			return;
		}
		__builtin_ia32_pause();
	}
	for (unsigned sleeps = 1; !take(ABI_CONTROL_LOCK); sleeps++) {
		rest(LOCK_NANOSECONDS);
		if (sleeps % LOCK_SLEEPS == 0)
			look_after_lock();
	}
	turns.has_lock = true;
}

static void unlock(void)
{
	turns.has_lock = false;
	vb_store(word(ABI_CONTROL_LOCK), 0);
}

void wasm_trap(void)
{
	vb_complain("the engine has trapped, and the device fails; please report it");
	abandon();
}

void vb_turn_fault(uintptr_t at)
{
	uintptr_t base = (uintptr_t)vb.base;
	if (in_turn && at >= base + vb.bytes && at < base + (1ull << 32) + WASM_GUARD_BYTES)
		wasm_trap();
}

/* Signals of a fault of this very code stay. */
uint64_t vb_block_signals(void)
{
	const uint64_t faults = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) |
				1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1) | 1ull << (SIGABRT - 1);
	uint64_t most = ~faults, before = 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &most, &before, sizeof most);
	return before;
}

void vb_restore_signals(uint64_t before)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}

/* Threads of the sidecar that wait get the turn first: it cannot be handed to them. */
static bool must_yield(double now)
{
	if (vb_load(word(ABI_CONTROL_WAITERS)) == 0) {
		turns.waiting = 0;
		return false;
	}
	if (turns.waiting == 0)
		turns.waiting = now;
	return now - turns.waiting < YIELD_MICROS;
}

/* ---- one turn */

static void refuse_packet(uint32_t qpn)
{
	lock();
	engine_receiveRefusal(memory(), address(), qpn);
	unlock();
}

/* Packets that are due leave. */
static void drain(void)
{
	turns.owes = false;
	uint32_t buffer = turns.buffers - 1;
	const struct abi_send_descriptor *list =
		turns.sends + (size_t)buffer * ABI_SEND_BUFFER_PACKETS;
	for (unsigned lists = 0; lists < DRAIN_LISTS; lists++) {
		lock();
		uint32_t count = engine_nextPackets(memory(), address(), buffer);
		unlock();
		if (count == 0)
			return;
		if (count > ABI_SEND_BUFFER_PACKETS)
			count = ABI_SEND_BUFFER_PACKETS;
		vb_datagrams_send(list, count, refuse_packet);
	}
	turns.owes = true;
}

static void read_deadline(void)
{
	lock();
	double one = engine_nextDeadline(memory(), address());
	double other = engine_nextDelayedAck(memory(), address());
	unlock();
	/* 0 is never. */
	turns.deadline = one == 0 || other == 0 ? one + other : one < other ? one : other;
}

/* udp-batch.ts: nothing has come, or an answer to something that we sent. */
static bool is_harmless(int error)
{
	return error == EAGAIN || error == EINTR || error == ECONNRESET || error == ECONNREFUSED ||
	       error == EHOSTUNREACH || error == ENETUNREACH;
}

static void note_error(int error)
{
	bool is_closed = error == EBADF || error == ENOTSOCK;
	if (is_harmless(error))
		return;
	/* The program has closed it. */
	if (turns.program < 0 && is_closed)
		turns.active = false;
	if (turns.program >= 0 && (++turns.errors == RECEIVE_ERRORS_MAX || is_closed))
		turns.lost = error;
}

static void receive(double now, bool later)
{
	int count = turns.lost ? 0 : vb_datagrams_receive();
	if (count < 0)
		note_error(-count);
	if (count <= 0)
		return;
	turns.errors = 0;
	turns.done += count;
	lock();
	engine_receivePackets(memory(), address(), count, now);
	unlock();
	turns.owes = true;
	if (!later)
		drain();
}

/* The slot of this process in the arena, which other processes of the device write. */
static const struct abi_context_slot *own_slot(void)
{
	return vb_at(context()->slot);
}

static void serve_doorbells(double now, bool later)
{
	/* Messages of the local path are looked at with the doorbells. */
	bool has_messages = vb_load(&own_slot()->announced) != context()->announced_seen;
	lock();
	uint32_t rung = engine_postDoorbells(memory(), address(), now);
	unlock();
	turns.done += rung + has_messages;
	if ((rung > 0 || has_messages) && later)
		drain();
}

/* Runner.turn: `later`: what answers to arrivals waits for the next turn. */
static void make_turn(double now, bool later)
{
	if (turns.owes)
		drain();
	serve_doorbells(now, later);
	receive(now, later);
	read_deadline();
	if (turns.deadline != 0 && now_micros() >= turns.deadline) {
		lock();
		engine_advance(memory(), address(), now_micros());
		unlock();
		turns.done++;
	} else if (later)
		return;
	drain();
	read_deadline();
}

/* Runner.post */
static void make_post(double now)
{
	serve_doorbells(now, false);
	drain();
	read_deadline();
}

/* ---- what the sidecar's thread is to know */

static bool wakes_by(double micros)
{
	if (!vb_load(word(ABI_CONTROL_SLEEPING)))
		return false;
	uint32_t until = vb_load(word(ABI_CONTROL_UNTIL));
	return until != 0 && (int32_t)(moment(micros) - until) >= 0;
}

/* Only the sidecar serves timers if this thread does not return, and events and FLUSHes always. */
static void report(double now)
{
	vb_store(word(ABI_CONTROL_TOUCHED), moment(now));
	double due = turns.owes ? now + LOOK_MICROS : turns.deadline;
	uint32_t events = vb_load(vb_at(context()->events));
	bool has_more = context()->flush_first != 0 || context()->wake_count != 0 ||
			vb_load(vb_at(vb.hello[HELLO_STRAYS])) != 0 ||
			vb_load(&own_slot()->mail) != turns.mail;
	bool wake = events != turns.events || has_more || (due != 0 && !wakes_by(due));
	turns.events = events;
	turns.mail = vb_load(&own_slot()->mail);
	if (has_more)
		vb_store(word(ABI_CONTROL_LED), 0);
	if (wake)
		vb_kick();
}

enum kind { POST, POLL, POLL_LATER, SETTLE, LOOK };

/* The turn is this thread's, but for LOOK. False: it has failed, and there will be no other. */
static bool run(enum kind kind, double now)
{
	if (setjmp(turns.trapped)) {
		turns.active = false;
		if (turns.has_lock)
			unlock();
		return false;
	}
	turns.done = 0;
	if (kind == POST)
		make_post(now);
	else if (kind == LOOK)
		read_deadline();
	else if (kind == SETTLE) {
		drain();
		read_deadline();
	} else
		make_turn(now, kind == POLL_LATER);
	return true;
}

static bool turn(enum kind kind, double now)
{
	if (!turns.active || must_yield(now))
		return false;
	int error = errno;
	uint64_t signals = vb_block_signals();
	bool taken = take(ABI_CONTROL_TURN);
	in_turn = taken;
	bool done = taken && run(kind, now);
	in_turn = false;
	if (done)
		report(now);
	if (taken)
		vb_store(word(ABI_CONTROL_TURN), 0);
	vb_restore_signals(signals);
	/* Verbs of a device set it only if they fail. */
	errno = error;
	return done;
}

bool vb_makes_turns(void)
{
	/* Another thread of this process may have the turn; the sidecar's thread has it for long. */
	uint32_t holder = turns.active ? vb_load(word(ABI_CONTROL_TURN)) : 1;
	return holder == 0 || holder == ABI_CONTROL_LENT;
}

bool vb_turn_post(void)
{
	return turns.active && turn(POST, now_micros());
}

bool vb_turn_poll(void)
{
	if (!turns.active)
		return false;
	double now = now_micros();
	rapid.polls = now - rapid.polled < RAPID_MICROS ? rapid.polls + 1 : 0;
	bool leads = rapid.polls >= RAPID_POLLS;
	if (leads)
		vb_store(word(ABI_CONTROL_LED), moment(now));
	bool done = turn(leads ? POLL_LATER : POLL, now);
	rapid.polled = now_micros();
	return done;
}

void vb_turn_settle(void)
{
	if (turns.active && turns.owes)
		turn(SETTLE, now_micros());
}

/* The program ends: its peers need not ask again for what it has. */
__attribute__((destructor)) static void settle_at_end(void)
{
	if (vb.owner == getpid())
		vb_turn_settle();
}

void vb_turn_follow(void)
{
	if (!turns.active || vb_load(word(ABI_CONTROL_LED)) == 0)
		return;
	rapid.polls = 0;
	vb_store(word(ABI_CONTROL_LED), 0);
	vb_kick();
}

/* False: the context does not say where packets that leave are described. */
static bool find_sends(void)
{
	uint64_t first = context()->send_descriptors;
	turns.buffers = context()->send_buffers;
	uint64_t entries = (uint64_t)turns.buffers * ABI_SEND_BUFFER_PACKETS;
	turns.sends = vb_at(first);
	return entries > 0 && first + entries * ABI_SEND_DESCRIPTOR_BYTES <= vb.bytes;
}

/* ---- turns of the sidecar's own thread */

bool vb_turns_serve(int program)
{
	if (!find_sends())
		return false;
	turns.holder = ABI_CONTROL_NATIVE;
	turns.program = program;
	turns.owes = false;
	turns.deadline = turns.waiting = 0;
	turns.errors = turns.lost = 0;
	turns.active = true;
	return true;
}

/* Sleeps until the turn of another thread ends, but not long. */
static void await_turn(void)
{
	for (unsigned slept = 0; slept < LOOK_MICROS * 1000; slept += LOCK_NANOSECONDS) {
		if (vb_load(word(ABI_CONTROL_TURN)) == 0)
			return;
		rest(LOCK_NANOSECONDS);
	}
	reclaim(ABI_CONTROL_TURN);
}

int vb_turn_serve(unsigned attempts)
{
	bool taken = false;
	while (turns.active && must_yield(now_micros()))
		rest(LOCK_NANOSECONDS);
	for (unsigned attempt = 0; turns.active && !taken && attempt <= attempts; attempt++) {
		taken = take(ABI_CONTROL_TURN);
		if (!taken)
			await_turn();
	}
	if (!taken)
		return turns.active ? -1 : 0;
	in_turn = true;
	bool done = run(POLL, now_micros());
	in_turn = false;
	vb_store(word(ABI_CONTROL_TURN), 0);
	return done ? (int)turns.done : 0;
}

double vb_turn_deadline(void)
{
	if (!turns.active)
		return 0;
	in_turn = true;
	bool done = run(LOOK, 0);
	in_turn = false;
	if (done && turns.owes)
		return now_micros();
	return done ? turns.deadline : 0;
}

void vb_turns_end(void)
{
	turns.active = false;
}

int vb_turn_failure(void)
{
	return turns.active ? turns.lost : EFAULT;
}

/* ---- begin and end */

/* The descriptor that the sidecar has passed, or -1. */
static int receive_descriptor(int pass)
{
	char byte;
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec place = { &byte, 1 };
	struct msghdr header = { .msg_iov = &place,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control };
	if (recvmsg(pass, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
		return -1;
	struct cmsghdr *found = CMSG_FIRSTHDR(&header);
	if (!found || found->cmsg_level != SOL_SOCKET || found->cmsg_type != SCM_RIGHTS)
		return -1;
	int fd;
	memcpy(&fd, CMSG_DATA(found), sizeof fd);
	return vb_lift(fd);
}

void vb_turns_begin(int pass)
{
	int fd = receive_descriptor(pass);
	if (fd < 0)
		return;
	turns.socket = fd;
	if (!__builtin_cpu_supports(WASM_CPU) || !vb.hello[HELLO_TURNS] || !vb.has_guard ||
	    !find_sends())
		return;
	wasm_memory_pages = vb.bytes >> 16;
	vb_datagrams_begin(fd, vb.hello[HELLO_TURNS],
			   vb.hello[HELLO_TURNS_BYTES] / VB_SLOT_BYTES,
			   vb.hello[HELLO_CAN_SEGMENT]);
	turns.owes = false;
	turns.deadline = 0;
	turns.waiting = 0;
	turns.events = vb_load(vb_at(context()->events));
	turns.mail = vb_load(&own_slot()->mail);
	vb_signals_catch(false);
	turns.active = true;
}

void vb_turns_leave(void)
{
	turns.active = false;
	if (turns.socket >= 0)
		close(turns.socket);
	turns.socket = -1;
}
