/** Stands in for handshake-error.ts in a page, which saves its bytes. */
import type { RemoteError } from './remote-error.js';

export function handshakeError(operation: string, error: RemoteError): RemoteError {
  return error.ofCall(operation);
}
