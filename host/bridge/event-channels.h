/* Completion channels of the program, for the device's thread. */
#ifndef VERBENA_EVENT_CHANNELS_H
#define VERBENA_EVENT_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

/* So long, at most, an event waits for room in its pipe. */
#define VB_ROOM_MICROS 5000

/* Number of events that the engine has made: the place of the next one (device-thread.c). */
uint64_t vb_thread_events(void);
/* An event of the queue at this address, at this place. False: it has no channel here. */
bool vb_channel_put(uint32_t address, uint64_t place);
/* An event of each queue: some may be lost. */
void vb_channels_put_all(void);
/* Do events wait for room in their pipes? */
bool vb_channels_wait(void);
/* Puts these again. */
void vb_channels_retry(void);
/* The device has ended: no queue has a channel any more. */
void vb_channels_end(void);

#endif
