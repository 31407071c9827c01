/** Optional members of a wrapper's link: those, and only those, that the link has. */
import type { Link } from './link.js';

export type Polling = Pick<Link, 'poll' | 'wait' | 'wake' | 'setPeerSegments'>;

export function passOnPolling(link: Link): Polling {
  const polling: Polling = {};
  if (link.poll) polling.poll = () => link.poll!();
  if (link.wait) polling.wait = (timeoutMicros) => link.wait!(timeoutMicros);
  if (link.wake) polling.wake = () => link.wake!();
  if (link.setPeerSegments) {
    polling.setPeerSegments = (peer, segments) => link.setPeerSegments!(peer, segments);
  }
  return polling;
}
