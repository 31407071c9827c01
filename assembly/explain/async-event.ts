/** Asynchronous events: what happened, and what to do about it. */
import { AsyncEvent } from '../transport/shared/status';

/** Events about one queue pair, completion queue or shared receive queue. */
function objectSentence(event: i32): string {
  switch (event) {
    case AsyncEvent.CQ_ERR:
      return (
        'A completion queue overflowed or failed: completions are lost, and the queue pairs ' +
        'that use it go into error. Try: make the queue as large as all work requests that may ' +
        'complete on it, or poll it more often.'
      );
    case AsyncEvent.QP_FATAL:
      return (
        'A queue pair went into error because a completion could not be written or its queues ' +
        'are damaged. Try: look at its completion queue first, then reset and connect it again.'
      );
    case AsyncEvent.QP_REQ_ERR:
      return (
        'The peer sent a request that this queue pair does not allow, and the connection is in ' +
        'error. Likely: both sides disagree on message sizes, operations or the number of ' +
        'outstanding reads. Try: compare how the two queue pairs were set up.'
      );
    case AsyncEvent.QP_ACCESS_ERR:
      return (
        'The peer tried to reach memory that it may not, and the connection is in error. ' +
        'Likely: a wrong or stale rkey, a range outside of the region, or a missing access ' +
        'flag. Try: compare address, length and rkey on both sides.'
      );
    case AsyncEvent.COMM_EST:
      return (
        'The first packet arrived on a queue pair that is still in RTR: the peer is ready. ' +
        'Nothing is wrong; move it to RTS when it should send.'
      );
    case AsyncEvent.SQ_DRAINED:
      return (
        'The send queue of a queue pair in SQD has finished all messages that it had begun. ' +
        'Nothing is wrong; its attributes may be changed now.'
      );
    case AsyncEvent.PATH_MIG:
      return 'The connection moved to its alternate path. RoCE has none, so this never comes.';
    case AsyncEvent.PATH_MIG_ERR:
      return 'The alternate path could not be used. RoCE has none, so this never comes.';
    case AsyncEvent.SRQ_ERR:
      return (
        'A shared receive queue failed and takes no more receives. Try: destroy it together ' +
        'with its queue pairs and create them again.'
      );
    case AsyncEvent.SRQ_LIMIT_REACHED:
      return (
        'A shared receive queue holds fewer receives than its limit. Nothing is wrong yet: ' +
        'post more receives, and set the limit again, for it fires only once.'
      );
    case AsyncEvent.QP_LAST_WQE_REACHED:
      return (
        'A queue pair in error will take no more receives from its shared receive queue. ' +
        'Nothing more is wrong: it may be destroyed now without losing a receive.'
      );
    case AsyncEvent.WQ_FATAL:
      return 'A work queue failed. Try: destroy and create it again, with its queue pair.';
    case AsyncEvent.PATH_MTU_ERR:
      return (
        'A queue pair ended because packets of its path MTU do not get to the peer; short ones do, ' +
        'or the system refused long ones. Try: connect with a smaller pathMtu (for ten minutes ' +
        '"connect" does so by itself), or raise the MTU on the way.'
      );
    default:
      return '';
  }
}

/** An asynchronous event: what it means, and what to do. */
export function asyncEventSentence(event: i32): string {
  const sentence = objectSentence(event);
  if (sentence != '') return sentence;
  switch (event) {
    case AsyncEvent.DEVICE_FATAL:
      return (
        'The device failed: nothing on it works any longer. Likely: its link was lost for good, ' +
        'or its engine stopped on an error of its own. Try: close it and open it again.'
      );
    case AsyncEvent.PORT_ACTIVE:
      return 'The port is active: its link is open. Nothing is wrong.';
    case AsyncEvent.PORT_ERR:
      return (
        'The port is down: its link was lost, packets neither leave nor arrive. Try: look at ' +
        'the network interface that has its address; connections live on if it returns in time.'
      );
    case AsyncEvent.LID_CHANGE:
      return 'The local identifier of the port changed. RoCE has none, so this never comes.';
    case AsyncEvent.PKEY_CHANGE:
      return (
        'The partition table of the port changed. Try: read it again; a queue pair whose ' +
        'partition is gone no longer hears its peer.'
      );
    case AsyncEvent.SM_CHANGE:
      return 'The subnet manager changed. RoCE has none, so this never comes.';
    case AsyncEvent.CLIENT_REREGISTER:
      return 'The subnet manager asks to register again. RoCE has none, so this never comes.';
    case AsyncEvent.GID_CHANGE:
      return (
        'The address table of the port changed. Try: read it again; connections that use an ' +
        'address which is gone have to be made anew.'
      );
    default:
      return 'There is no asynchronous event ' + event.toString() + '; they are 0 to 19, and 64.';
  }
}
