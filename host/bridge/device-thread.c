/*
 * The device's thread, in the process of the sidecar: it makes turns of the engine (turns.c) while
 * the program does not, as host/device/progress/progress-thread.ts does for other devices, and needs
 * no JavaScript heap. memory-and-turns.md has what is left to the main thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "event-channels.h"
#include "internal.h"
#include "turns.h"
#include "wasm-memory.h"

/* progress-thread.ts has the reasons for these. */
#define LED_MICROS 200
#define TOUCHED_MICROS 1000
#define LOOK_MICROS 500
#define LAST_ATTEMPTS 3
#define SLEEP_MICROS 1000000
/* So long the main thread waits for the end, at most. */
#define JOIN_SECONDS 2
#define KEPT_MICROS 20
/* Events that wait in their ring for the main thread, at most: it removes them. */
#define STALE_EVENTS 1024
/* spin.ts */
#define PROCESSORS_FEW 2
#define LOST_MICROS 500
#define PAUSE_FACTOR_MAX 160
#define LONG_FACTOR 3
#define LONG_WEIGHT 2
#define WAITS_MAX (2 * LONG_WEIGHT)

/* Of address space. */
#define STACK_BYTES (1 << 20)

static struct {
	uint64_t words[THREAD_WORDS];
	pthread_t thread;
	bool runs;
	/* The main thread has waited for its end in vain. */
	bool is_left;
	/* The writing end of a pipe that the main thread reads. */
	int call;
	/* Parts of the context, whose addresses the program could overwrite. */
	const char *ring;
	uint32_t ring_entries;
	const struct abi_counters *counters;
	struct abi_context_slot *slot;
	/* The last failure that the main thread has been called for. */
	int failure;
	/* Events up to the head of their ring as last seen: its word has the low 32 bits. */
	uint64_t events;
	/* Those that had no room there, as last seen. */
	uint64_t lost;
	/* When events that wait for room in their pipes were put again. */
	double retried;
	/* When drops were counted last, and how many there were. */
	double looked;
	uint64_t dropped;
} self;

static struct {
	double since, pause_ends, pause_micros;
	unsigned pause_factor;
	/* Long waits, less the short ones since. */
	unsigned waits;
} spin;

static double now_micros(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static uint32_t *word(unsigned offset)
{
	return vb_at(self.words[THREAD_CONTROL] + offset);
}

static const struct abi_context *context(void)
{
	return vb_at(self.words[THREAD_CONTEXT]);
}

/* ControlBlock's moments: the low 32 bits, never 0. */
static uint32_t moment(double micros)
{
	uint32_t low = (uint32_t)(uint64_t)micros;
	return low ? low : 1;
}

/* Did the program write this moment less than `age` microseconds ago? */
static bool is_recent(unsigned offset, double now, uint32_t age)
{
	uint32_t then = vb_load(word(offset));
	return then != 0 && moment(now) - then < age;
}

/* ---- spinning (spin.ts) */

static double spin_until(double now, bool others_work)
{
	bool is_crowded = self.words[THREAD_PROCESSORS] <= PROCESSORS_FEW;
	double most = self.words[THREAD_SPIN_MICROS];
	spin.since = now;
	if (spin.waits >= LONG_WEIGHT || (others_work && is_crowded))
		return now;
	return now + (now < spin.pause_ends && KEPT_MICROS < most ? KEPT_MICROS : most);
}

static void spin_waited(double micros)
{
	if (micros > LONG_FACTOR * (double)self.words[THREAD_SPIN_MICROS])
		spin.waits = spin.waits + LONG_WEIGHT < WAITS_MAX ? spin.waits + LONG_WEIGHT : WAITS_MAX;
	else if (spin.waits > 0)
		spin.waits--;
}

/* After a look in vain. Others that compute keep a yielded processor: no spin for a while then. */
static void spin_yield(void)
{
	double before = now_micros();
	if (before - spin.since < KEPT_MICROS)
		return;
	sched_yield();
	double lost = now_micros() - before;
	if (lost < LOST_MICROS)
		return;
	bool is_again = before - spin.pause_ends < spin.pause_micros;
	unsigned doubled = 2 * spin.pause_factor;
	spin.pause_factor = !is_again ? 1 : doubled < PAUSE_FACTOR_MAX ? doubled : PAUSE_FACTOR_MAX;
	spin.pause_micros = spin.pause_factor * lost;
	spin.pause_ends = before + lost + spin.pause_micros;
}

/* ---- the main thread */

/* It is called once until it has looked (ControlBlock.takeCall). */
static void call_main(void)
{
	if (vb_exchange(word(ABI_CONTROL_EVENTS), 1) == 0)
		syscall(SYS_write, self.call, "", 1);
}

/* Packets are dropped at a rate of which there may be a flood (flood-filter.ts). */
static bool may_be_flood(double now)
{
	double micros = now - self.looked;
	if (micros < ABI_FLOOD_LOOK_MICROS)
		return false;
	const struct abi_counters *counters = self.counters;
	uint64_t dropped = counters->drop_malformed + counters->drop_unknown_opcode +
			   counters->drop_queue_pair + counters->drop_service +
			   counters->drop_source;
	uint64_t more = dropped - self.dropped;
	self.looked = now;
	self.dropped = dropped;
	return more * 1e6 >= ABI_FLOOD_NOTICED_PER_SECOND * micros;
}

uint64_t vb_thread_events(void)
{
	/* Before the head, which is never behind it. */
	uint64_t seen = __atomic_load_n(&self.events, __ATOMIC_SEQ_CST);
	return seen + (uint32_t)(vb_load(self.ring) - (uint32_t)seen);
}

/* New events: those of queues with a channel go there. True: the main thread has some to take. */
static bool take_events(void)
{
	uint32_t head = vb_load(self.ring), unread = head - vb_load(self.ring + ABI_RING_TAIL);
	bool calls = unread > STALE_EVENTS;
	uint64_t lost = __atomic_load_n(&self.counters->events_lost, __ATOMIC_SEQ_CST);
	uint32_t more = head - (uint32_t)self.events;
	uint64_t end = self.events + more;
	for (uint64_t at = more > self.ring_entries ? end - self.ring_entries : self.events; at < end;
	     at++) {
		size_t place = at & (self.ring_entries - 1);
		const struct abi_engine_event *event =
			(const void *)(self.ring + ABI_RING_HEADER_BYTES + place * ABI_ENGINE_EVENT_BYTES);
		if (event->kind != ABI_EVENT_COMPLETION || !vb_channel_put(event->object, at))
			calls = true;
	}
	__atomic_store_n(&self.events, end, __ATOMIC_SEQ_CST);
	/* A queue whose event is lost is armed no more: without one it would be silent for ever. */
	if (more > self.ring_entries || lost != self.lost)
		vb_channels_put_all();
	self.lost = lost;
	return calls;
}

static void report(double now)
{
	int failure = vb_turn_failure();
	bool calls = take_events() || failure != self.failure;
	self.failure = failure;
	if (now - self.retried >= VB_ROOM_MICROS) {
		vb_channels_retry();
		self.retried = now;
	}
	if (may_be_flood(now) || context()->flush_first != 0 || context()->wake_count != 0)
		calls = true;
	if (calls)
		call_main();
}

/* Processes that poll in vain sleep over the word (ControlBlock.countTurn). */
static void count_turn(void)
{
	uint32_t *turns = word(ABI_CONTROL_TURNS);
	__atomic_add_fetch(turns, 1, __ATOMIC_SEQ_CST);
	if (vb_exchange(word(ABI_CONTROL_POLLERS), 0) != 0)
		syscall(SYS_futex, turns, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- sleeping */

static bool has_stopped(void)
{
	return vb_load(word(ABI_CONTROL_STOP)) != 0;
}

/* ControlBlock.fallAsleep: a post reads the flag behind the doorbell. */
static bool fall_asleep(uint32_t kicks, double until)
{
	vb_store(word(ABI_CONTROL_UNTIL), until == 0 ? 0 : moment(until));
	vb_store(word(ABI_CONTROL_SLEEPING), 1);
	return vb_load(word(ABI_CONTROL_KICKS)) == kicks && !has_stopped();
}

/* `receives`: also packets end it. The main thread receives those of groups. */
static void wait_for(double micros, bool receives)
{
	bool has_groups = vb_load(word(ABI_CONTROL_GROUPS)) != 0;
	if (vb_channels_wait() && micros > VB_ROOM_MICROS)
		micros = VB_ROOM_MICROS;
	struct pollfd ready[] = {
		{ (int)self.words[THREAD_WAKE], POLLIN, 0 },
		{ has_groups ? -1 : (int)self.words[THREAD_GROUPS], POLLIN, 0 },
		{ receives && self.failure == 0 ? (int)self.words[THREAD_SOCKET] : -1, POLLIN, 0 },
	};
	long nanos = micros > 0 ? (long)(micros * 1000) : 0;
	const struct timespec most = { nanos / 1000000000, nanos % 1000000000 };
	if (syscall(SYS_ppoll, ready, sizeof ready / sizeof *ready, &most, NULL, 0) <= 0)
		return;
	uint64_t count;
	if (ready[0].revents)
		syscall(SYS_read, (int)self.words[THREAD_WAKE], &count, sizeof count);
	if (ready[1].revents) {
		vb_store(word(ABI_CONTROL_GROUPS), 1);
		call_main();
	}
}

static void sleep_led(uint32_t kicks, double now)
{
	if (fall_asleep(kicks, now + LOOK_MICROS))
		wait_for(LOOK_MICROS, false);
	vb_store(word(ABI_CONTROL_SLEEPING), 0);
}

static void sleep_until_due(uint32_t kicks, double now)
{
	/* Another thread's turn may have moved it. */
	double due = vb_turn_deadline();
	double left = due == 0 || due - now > SLEEP_MICROS ? SLEEP_MICROS : due - now;
	if (fall_asleep(kicks, due)) {
		vb_store(&self.slot->sleeping, 1);
		bool is_quiet = vb_load(&self.slot->announced) == context()->announced_seen;
		wait_for(is_quiet ? left : 0, true);
		vb_store(&self.slot->sleeping, 0);
	}
	vb_store(word(ABI_CONTROL_SLEEPING), 0);
}

/* ---- the thread */

static void *serve(void *unused)
{
	double busy_until = 0, busy_since = 0;
	while (!has_stopped()) {
		uint32_t kicks = vb_load(word(ABI_CONTROL_KICKS));
		bool is_led = is_recent(ABI_CONTROL_LED, now_micros(), LED_MICROS);
		int done = is_led ? 0 : vb_turn_serve(0);
		bool works = done > 0;
		/* The turn of another thread may be past the doorbells: a kick since is for this one. */
		bool is_late = done < 0;
		if (works)
			count_turn();
		double now = now_micros();
		report(now);
		if (works) {
			spin_waited(now - busy_since);
			busy_since = now;
			busy_until = spin_until(now, is_recent(ABI_CONTROL_TOUCHED, now, TOUCHED_MICROS));
		}
		if (is_led)
			sleep_led(kicks, now);
		else if (now >= busy_until && !is_late)
			sleep_until_due(kicks, now);
		else if (!works && !is_late)
			spin_yield();
	}
	/* Posts before the end leave: often they include the last message of a connection. */
	vb_turn_serve(LAST_ATTEMPTS);
	return NULL;
}

/* Is a page reserved there, or mapped? */
static bool is_taken(uint64_t address)
{
	unsigned char resident;
	return mincore((void *)address, VB_PAGE, &resident) == 0;
}

static void forget(void)
{
	close(self.call);
	self.runs = self.is_left = false;
}

/*
 * 0 if a native thread can run the engine on the memory that has `bytes` bytes at `base`, else an
 * errno: an index behind the memory must be a fault.
 */
VB_EXPORT int verbena_thread_check(uint64_t base, uint64_t bytes)
{
	const uint64_t end = 1ull << 32;
	if (self.is_left && pthread_tryjoin_np(self.thread, NULL) == 0)
		forget();
	if (self.runs)
		return EBUSY;
	if (!__builtin_cpu_supports(WASM_CPU))
		return ENOSYS;
	bool has_guard = (bytes == end || (is_taken(base + bytes) && is_taken(base + end - VB_PAGE))) &&
			 is_taken(base + end) && is_taken(base + end + WASM_GUARD_BYTES - VB_PAGE);
	return has_guard ? 0 : ENOMEM;
}

static int start(void)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	/* Handlers of Node run in threads of its own. */
	uint64_t signals = vb_block_signals();
	int error = pthread_create(&self.thread, &attributes, serve, NULL);
	vb_restore_signals(signals);
	pthread_attr_destroy(&attributes);
	if (!error)
		pthread_setname_np(self.thread, "verbena-device");
	return error;
}

static bool is_inside(uint64_t address, uint64_t bytes)
{
	return address + bytes <= vb.bytes;
}

/* Parts of the context, which the program has already. False: they are not in the memory. */
static bool find_parts(void)
{
	if (!is_inside(self.words[THREAD_CONTEXT], sizeof(struct abi_context)))
		return false;
	uint32_t events = context()->events, counters = context()->counters, slot = context()->slot;
	uint32_t entries = context()->events_max;
	self.ring = vb_at(events);
	self.ring_entries = entries;
	self.counters = vb_at(counters);
	self.slot = vb_at(slot);
	uint64_t bytes = ABI_RING_HEADER_BYTES + (uint64_t)entries * ABI_ENGINE_EVENT_BYTES;
	return entries > 0 && (entries & (entries - 1)) == 0 && is_inside(events, bytes) &&
	       is_inside(counters, sizeof *self.counters) && is_inside(slot, sizeof *self.slot);
}

static int close_both(const int ends[2], int error)
{
	close(ends[0]);
	close(ends[1]);
	return -error;
}

/*
 * Starts it. `words`: THREAD_WORDS of 64 bits. Returns the reading end of a pipe, which is the
 * caller's: a byte comes when ControlBlock.takeCall is due. Or a negated errno.
 */
VB_EXPORT int verbena_thread_start(const void *words)
{
	int ends[2];
	if (self.runs)
		return -EBUSY;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	memset(&self, 0, sizeof self);
	memset(&spin, 0, sizeof spin);
	memcpy(self.words, words, sizeof self.words);
	self.call = ends[1];
	vb.base = (char *)(uintptr_t)self.words[THREAD_BASE];
	vb.bytes = self.words[THREAD_BYTES];
	vb.shared = 0;
	vb.hello[HELLO_CONTEXT] = self.words[THREAD_CONTEXT];
	vb.hello[HELLO_CONTROL] = self.words[THREAD_CONTROL];
	wasm_memory_pages = vb.bytes >> 16;
	if (!find_parts() || !vb_turns_serve(self.words[THREAD_PROGRAM]))
		return close_both(ends, EFAULT);
	vb_datagrams_begin(self.words[THREAD_SOCKET], self.words[THREAD_SLOTS],
			   self.words[THREAD_SLOTS_BYTES] / VB_SLOT_BYTES,
			   self.words[THREAD_CAN_SEGMENT]);
	vb_signals_catch(false);
	int error = start();
	self.runs = error == 0;
	return error ? close_both(ends, error) : ends[0];
}

/*
 * Waits for its end, behind ControlBlock.stop. 0; ETIMEDOUT: the program has spoiled the memory, and
 * the thread stays in the engine, or waits for its lock. There is no other until it ends.
 */
VB_EXPORT int verbena_thread_join(void)
{
	if (!self.runs || self.is_left)
		return 0;
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += JOIN_SECONDS;
	int error = pthread_timedjoin_np(self.thread, NULL, &end);
	vb_channels_end();
	if (error) {
		vb_turns_end();
		self.is_left = true;
	} else
		forget();
	return error;
}

/* The error by which the socket is lost; EFAULT: the engine has trapped; 0: neither. */
VB_EXPORT int verbena_thread_failure(void)
{
	return vb_turn_failure();
}
