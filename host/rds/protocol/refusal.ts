/** Why a message was not taken. */
import { RefusalError } from '../../errors/errors.js';
import type { Endpoint } from '../../link/endpoint.js';

export type Refused = 'ENOBUFS' | 'EWOULDBLOCK' | 'EFAULT' | 'EACCES';

const WHY: { readonly [Code in Refused]: string } = {
  ENOBUFS: 'all send buffers of this socket are on their way',
  EWOULDBLOCK: 'the path is being made, or the reader there is slow',
  EFAULT: 'there is no path, or no such port',
  EACCES: 'both nodes need the same pre-shared key: RdsNode.of(context, { auth: { psk } })',
};

export function refusal(
  code: Refused,
  to: Endpoint,
  toPort: number,
  why = WHY[code],
): RefusalError {
  return new RefusalError(code, `send to ${to.gid} port ${toPort}: ${why}`);
}
