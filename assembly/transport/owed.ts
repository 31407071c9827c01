/**
 * Acknowledgements that nobody asked for. Between peers of our own kind a requester does not ask
 * where no completion depends on the answer (ack-request.ts `isAwaited`), and the responder answers
 * all the same: along with what is asked for later, or when a little time has passed. So an answer
 * of the application's comes back without two acknowledgements beside it.
 *
 * A responder may acknowledge whenever it likes (IBA 9.7.5.1.2); a requester must not count on it,
 * so its own timers run as ever.
 */
import { Context } from './context';
import { QueuePair } from './queue-pair';
import { acknowledgeLater } from './responder';
import { serves } from './state-machine';

/** Shorter than a requester's shortest patience (window.ts `REPEAT_SLACK_MICROS`). */
const OWED_MICROS: u64 = 500;
/**
 * Where a link paces itself a packet costs ten times as much, and few arrive in that time. Shorter
 * than the patience of who has lost nothing (`PATIENT_SLACK_MICROS`); who has, asks each time.
 */
const OWED_MICROS_PACED: u64 = 5000;

/** A message is here whose sender did not ask for an acknowledgement. */
export function owe(context: Context, qp: QueuePair): void {
  // Others do not count on it.
  if (qp.reorderPeer == 0) return;
  qp.ackOwed = 1;
  if (qp.owes) return;
  qp.owes = 1;
  qp.owesNext = context.owesFirst;
  context.owesFirst = changetype<usize>(qp);
  if (context.owedMicros != 0) return;
  context.owedMicros = context.now + (context.paced ? OWED_MICROS_PACED : OWED_MICROS);
}

/** When the time has passed: what was not acknowledged with anything else is acknowledged. */
export function payOwed(context: Context): void {
  if (context.owedMicros == 0 || context.now < context.owedMicros) return;
  context.owedMicros = 0;
  let at = context.owesFirst;
  context.owesFirst = 0;
  while (at != 0) {
    const qp = changetype<QueuePair>(at);
    at = qp.owesNext;
    qp.owes = 0;
    if (qp.ackOwed && serves(qp.state)) acknowledgeLater(context, qp);
  }
}

/** Takes a queue pair off the list wherever it stands; for its end. */
export function forgetOwed(context: Context, qp: QueuePair): void {
  if (!qp.owes) return;
  const target = changetype<usize>(qp);
  let before: usize = 0;
  let at = context.owesFirst;
  while (at != target) {
    before = at;
    at = changetype<QueuePair>(at).owesNext;
  }
  if (before == 0) context.owesFirst = qp.owesNext;
  else changetype<QueuePair>(before).owesNext = qp.owesNext;
  qp.owes = 0;
  if (context.owesFirst == 0) context.owedMicros = 0;
}
