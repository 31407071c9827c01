/*
 * Faults at the verbs (`verbena run --fault`): calls that fail, completions with another status,
 * calls that take longer. The rules come from the environment (cli/run/fault-file.ts); each has a
 * random sequence of its own, so the same program meets the same faults again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "faults.h"

#define RULES_MAX 64
#define MILLION 1000000u

struct rule {
	/* FAULT_FAIL, FAULT_STATUS, FAULT_DELAY. */
	unsigned kind;
	/* An operation or FAULT_POST_SEND…; of FAULT_STATUS nothing. */
	unsigned target;
	/* An errno, a status, or microseconds. */
	unsigned value;
	/* The n-th only, each n-th, or with this probability in a million; 0: not so. */
	unsigned at, every, chance;
	/* At most so often; 0: no limit. */
	unsigned times;
	/* The n-th queue pair that the process creates; 0: all. */
	unsigned qp;
	unsigned seen, done;
	uint64_t random;
};

static struct vb_lock lock = VB_LOCK_INITIALIZER;
static struct rule rules[RULES_MAX];
static size_t rule_count;
/* Numbers of the queue pairs in the order of their creation. */
static uint32_t *numbers;
static size_t number_count;

bool vb_faults;

/* SplitMix64. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t value = *state += 0x9e3779b97f4a7c15;
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

__attribute__((constructor)) static void read_rules(void)
{
	const char *text = vb_setting("VERBENA_RUN_FAULTS");
	int length = 0;
	unsigned seed = 0;
	if (!text || sscanf(text, "%u%n", &seed, &length) != 1)
		return;
	for (text += length; rule_count < RULES_MAX; text += length) {
		struct rule *one = &rules[rule_count];
		if (sscanf(text, ";%u:%u:%u:%u:%u:%u:%u:%u%n", &one->kind, &one->target,
			   &one->value, &one->at, &one->every, &one->chance, &one->times, &one->qp,
			   &length) != 8)
			break;
		one->random = ((uint64_t)seed << 32) + rule_count++;
	}
	vb_faults = rule_count > 0;
}

/* The place of a queue pair among those of the process, from 1 on; 0: unknown. */
static unsigned ordinal_of(uint32_t qp_num)
{
	for (size_t i = number_count; i > 0; i--)
		if (numbers[i - 1] == qp_num)
			return i;
	return 0;
}

/* Whether the rule holds now: this is one more call, or completion, that it is about. */
static bool holds(struct rule *one, uint32_t qp_num)
{
	if (one->qp && one->qp != ordinal_of(qp_num))
		return false;
	one->seen++;
	if (one->times && one->done >= one->times)
		return false;
	if (one->at && one->at != one->seen)
		return false;
	if (one->every && one->seen % one->every)
		return false;
	if (one->chance && next_random(&one->random) % MILLION >= one->chance)
		return false;
	one->done++;
	return true;
}

static unsigned find(unsigned kind, unsigned target, uint32_t qp_num)
{
	unsigned value = 0;
	vb_lock(&lock);
	for (size_t i = 0; i < rule_count && !value; i++)
		if (rules[i].kind == kind && rules[i].target == target && holds(&rules[i], qp_num))
			value = rules[i].value;
	vb_unlock(&lock);
	return value;
}

void vb_fault_qp(uint32_t qp_num)
{
	if (!vb_faults)
		return;
	vb_lock(&lock);
	uint32_t *grown = realloc(numbers, (number_count + 1) * sizeof *numbers);
	if (grown) {
		numbers = grown;
		numbers[number_count++] = qp_num;
	}
	vb_unlock(&lock);
}

int vb_fault_call(unsigned call, uint32_t qp_num)
{
	if (!vb_faults)
		return 0;
	unsigned micros = find(FAULT_DELAY, call, qp_num);
	if (micros) {
		struct timespec left = { micros / MILLION, micros % MILLION * 1000l };
		while (nanosleep(&left, &left) && errno == EINTR)
			;
	}
	return find(FAULT_FAIL, call, qp_num);
}

uint32_t vb_fault_status(uint32_t status, uint32_t qp_num)
{
	if (!vb_faults || status != IBV_WC_SUCCESS)
		return status;
	unsigned other = find(FAULT_STATUS, 0, qp_num);
	if (!other)
		return status;
	/* As an adapter does: what is posted behind it is flushed. */
	VB_CALL(OP_FAIL_QP, NULL, 0, qp_num);
	return other;
}
