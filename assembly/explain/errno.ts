/** Sentences for the Errno of refused verbs. */
import { Errno } from '../memory/errno';

/** An errno: what it means here, and what to try. */
export function errnoSentence(errno: i32): string {
  switch (errno) {
    case Errno.OK:
      return 'Success.';
    case Errno.EPERM:
      return (
        'EPERM: that is not allowed to this caller. Likely: an object of another protection ' +
        'domain or device, or a Q_Key that only the device itself may use. Try: create both ' +
        'objects on the same protection domain.'
      );
    case Errno.EAGAIN:
      return (
        'EAGAIN: not now. Something that this needs is still under way, or there was nothing ' +
        'to fetch. Try: poll for completions and events, then call again.'
      );
    case Errno.ENOMEM:
      return (
        'ENOMEM: a queue or table is full. Limits are taken when the device or the queue is ' +
        'created. Try: poll for completions, since work requests keep their place until then; ' +
        'or open the device, or create the queue, with larger limits.'
      );
    case Errno.EACCES:
      return (
        'EACCES: the access rights do not go together. Likely: REMOTE_WRITE or REMOTE_ATOMIC ' +
        'without LOCAL_WRITE, a right that the base region lacks, or persistence on memory that ' +
        'cannot persist. Try: register with all rights that the operation needs.'
      );
    case Errno.EBUSY:
      return (
        'EBUSY: something still uses the object. Likely: a queue pair on the completion queue, ' +
        'a region or window in the protection domain, or an event without acknowledgement. ' +
        'Try: destroy the users first, and acknowledge their events.'
      );
    case Errno.EINVAL:
      return (
        'EINVAL: an argument is invalid, or invalid in this state. Likely: attributes that this ' +
        'transition of the queue pair does not take or misses, a value beyond the limits of the ' +
        'device, or a range that wraps around. Nothing was changed. Try: compare the ' +
        'arguments with the limits of the device and the state of the object.'
      );
    case Errno.ENOSPC:
      return (
        'ENOSPC: there is no room left. Likely: the memory of the device, the shared arena or ' +
        'the file behind it is full. Try: free what is no longer needed, or open with more.'
      );
    case Errno.EOPNOTSUPP:
      return (
        'EOPNOTSUPP: this device, link or kind of queue pair does not have that operation. Try: ' +
        'ask the device what it can do, and create the queue pair with the operation enabled.'
      );
    default:
      return (
        'No verb answers with the errno ' +
        errno.toString() +
        ': it comes from the operating system, or from somewhere else.'
      );
  }
}
