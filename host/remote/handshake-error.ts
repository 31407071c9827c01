/** A connection ended before the first message of the peer. */
import { RemoteError } from './remote-error.js';

/** The peer may have ended it on purpose: its `onClient` failed. */
export function handshakeError(operation: string, error: RemoteError): RemoteError {
  const { code } = error;
  if (code !== 'ECONNRESET' || error.operation !== 'connection') return error.ofCall(operation);
  const rule = 'the peer ended the connection at once';
  const remedy = 'see the errors of its onClient and onError';
  return new RemoteError(operation, { code, rule, remedy }, { cause: error });
}
