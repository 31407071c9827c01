/*
 * host/bridge/turns.c with a scripted engine: each line of the input is one step, "KIND NOW DEADLINE
 * RUNG BATCHES PACKETS BATCHES BATCHES". The numbers of batches are those that the step's doorbells,
 * packets and timers make due. Prints the calls of each step: B doorbells, L a look at the socket, R
 * received packets, A timers, N the next packets, S a batch that is sent.
 */
#define clock_gettime scripted_clock
#include "turns.c"
#include <stdio.h>
#include <stdlib.h>

#define MEMORY (1u << 20)
#define CONTEXT 4096u
#define CONTROL 65536u
#define SLOT 70000u
#define STRAYS 80000u
#define SEND_LIST 131072u

struct vb vb;

static struct {
	double now, deadline;
	unsigned rung, of_doorbells, packets, of_packets, of_timers;
} step;
static unsigned due;

int scripted_clock(clockid_t clock, struct timespec *now)
{
	(void)clock;
	now->tv_sec = (time_t)(step.now / 1e6);
	now->tv_nsec = (long)((step.now - now->tv_sec * 1e6) * 1000);
	return 0;
}

uint32_t engine_postDoorbells(uint8_t *const m, uint32_t context, double now)
{
	printf(" B%.0f", now);
	due += step.of_doorbells;
	step.of_doorbells = 0;
	return step.rung;
}

void engine_receivePackets(uint8_t *const m, uint32_t context, uint32_t count, double now)
{
	printf(" R%u", count);
	due += step.of_packets;
}

void engine_advance(uint8_t *const m, uint32_t context, double now)
{
	printf(" A");
	due += step.of_timers;
}

uint32_t engine_nextPackets(uint8_t *const m, uint32_t context, uint32_t buffer)
{
	printf(" N");
	return due > 0 ? 1 + due-- % 7 : 0;
}

double engine_nextDeadline(uint8_t *const m, uint32_t context)
{
	return step.deadline;
}

double engine_nextDelayedAck(uint8_t *const m, uint32_t context)
{
	return 0;
}

void engine_receiveRefusal(uint8_t *const m, uint32_t context, uint32_t qpn)
{
}

void vb_datagrams_begin(int socket, uint32_t address, unsigned slots, bool can_segment)
{
}

int vb_datagrams_receive(void)
{
	printf(" L");
	return step.packets;
}

void vb_datagrams_send(const struct abi_send_descriptor *list, unsigned count,
		       void (*too_long)(uint32_t qpn))
{
	printf(" S%u", count);
}

void vb_kick(void)
{
}

bool vb_sidecar_lives(void)
{
	return true;
}

void vb_signals_catch(bool moving)
{
}

int vb_lift(int fd)
{
	return fd;
}

void vb_complain(const char *format, ...)
{
}

int main(void)
{
	unsigned kind;
	vb.base = calloc(1, MEMORY);
	vb.hello[HELLO_CONTEXT] = CONTEXT;
	vb.hello[HELLO_CONTROL] = CONTROL;
	vb.hello[HELLO_STRAYS] = STRAYS;
	struct abi_context *own = vb_at(CONTEXT);
	own->send_buffers = 1;
	own->send_descriptors = SEND_LIST;
	own->slot = SLOT;
	own->events = STRAYS;
	turns.active = true;
	while (scanf("%u %lf %lf %u %u %u %u %u", &kind, &step.now, &step.deadline, &step.rung,
		     &step.of_doorbells, &step.packets, &step.of_packets, &step.of_timers) == 8) {
		printf("%u", kind);
		if (kind != SETTLE || turns.owes)
			turn(kind, step.now);
		printf(" %s\n", turns.owes ? "owes" : "settled");
	}
	free(vb.base);
	return 0;
}
