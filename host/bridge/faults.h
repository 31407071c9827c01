/* Faults at the verbs (faults.c). */
#ifndef VERBENA_FAULTS_H
#define VERBENA_FAULTS_H

#include "internal.h"

/* Whether there is any rule. */
extern bool vb_faults;

/* One more queue pair of the process. */
void vb_fault_qp(uint32_t qp_num);
/*
 * A call of an operation, or FAULT_POST_SEND… on a queue pair (0: none): waits if a rule delays it.
 * Returns the errno that a rule demands, or 0.
 */
int vb_fault_call(unsigned call, uint32_t qp_num);
/* The status of a completion, which a rule may turn into an error. */
uint32_t vb_fault_status(uint32_t status, uint32_t qp_num);

#endif
