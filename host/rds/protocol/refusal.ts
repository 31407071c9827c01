/** Errors of a refused send. */
import { RefusalError } from '../../errors/errors.js';
import type { Endpoint } from '../../link/endpoint.js';

export type Refused = 'ENOBUFS' | 'EWOULDBLOCK' | 'EFAULT' | 'EACCES';

const WHY: { readonly [Code in Refused]: string } = {
  ENOBUFS: 'the send buffers of this socket are full; retry after POLLOUT',
  EWOULDBLOCK: 'the path is being made, or the reader at the peer is slow; retry after POLLOUT',
  EFAULT: 'no path to the peer, no such port, or earlier messages were lost; retry later',
  EACCES: 'both nodes need the same pre-shared key: RdsNode.of(context, { auth: { psk } })',
};

export const NO_SUCH_PORT = 'no socket of that node has the port; retry when one is bound';

export function refusal(
  code: Refused,
  to: Endpoint,
  toPort: number,
  why = WHY[code],
): RefusalError {
  return new RefusalError(code, `send to ${to.gid} port ${toPort}: ${why}`);
}
