/* Turns of the engine that this process makes: what turns.c and datagrams.c share. */
#ifndef VERBENA_TURNS_H
#define VERBENA_TURNS_H

#include <stdbool.h>
#include <stdint.h>

/* ---- turns.c; all but the first two do nothing if the sidecar makes all turns */

/* Receives the device's socket over `pass`, if the sidecar allows turns. */
void vb_turns_begin(int pass);
/* In a child of fork: the device is its parent's. */
void vb_turns_leave(void);
/* Does this process make turns, and does no thread of the sidecar have the turn? */
bool vb_makes_turns(void);
/* A doorbell was rung. False: this process cannot serve it now. */
bool vb_turn_post(void);
/* A poll has found nothing. False: another thread or process has the turn. */
bool vb_turn_poll(void);
/* Answers that wait leave now: the thread has nothing to post, or control verbs may end a queue. */
void vb_turn_settle(void);
/* A queue is armed: the program may sleep, and the sidecar makes turns again. */
void vb_turn_follow(void);

/* ---- turns.c in the sidecar (device-thread.c) */

/*
 * From now on this process makes turns as the sidecar's thread. `program`: a socket to it. False:
 * the context is not in the memory.
 */
bool vb_turns_serve(int program);
/*
 * A turn: how many doorbells, packets and timers there were; 0 as well if it fails. -1: another
 * thread has it, also after as many attempts more to take it.
 */
int vb_turn_serve(unsigned attempts);
/* There is no other turn. */
void vb_turns_end(void);
/* When the next turn is due, in microseconds; 0: never. */
double vb_turn_deadline(void);
/* The error by which the socket is lost; EFAULT: the engine has trapped; 0: neither. */
int vb_turn_failure(void);

/* An access of the engine behind its memory ends the turn, and does not return. */
void vb_turn_fault(uintptr_t at);

/* The kernel's set of signals, except those of faults; returns the one before. */
uint64_t vb_block_signals(void);
void vb_restore_signals(uint64_t before);

/* ---- datagrams.c: the batching link (host/link/udp) in this process; under the turn */

/* `slots` of VB_SLOT_BYTES bytes at `address` of the device's memory. */
#define VB_SLOT_BYTES 65536u
void vb_datagrams_begin(int socket, uint32_t address, unsigned slots, bool can_segment);
/*
 * Receives the datagrams of one system call, and describes them to the engine. Returns the number
 * of descriptors, or a negated errno.
 */
int vb_datagrams_receive(void);
struct abi_send_descriptor;
/* Sends packets of the engine; `too_long` is called for one that the interface does not take. */
void vb_datagrams_send(const struct abi_send_descriptor *list, unsigned count,
		       void (*too_long)(uint32_t qpn));

#endif
