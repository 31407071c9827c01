/** A queue pair is wanted of a listener that has memory by name. */
import { ConnectError } from '../cm/connect-error.js';
import { speaksProtocol } from './hello.js';

/** The listener there was opened by `share`: its clients pass a URL. Undefined: it was not. */
export function wrongLevel(error: unknown): ConnectError | undefined {
  if (!(error instanceof ConnectError) || !speaksProtocol(error.privateData)) return undefined;
  const sentence = 'connect: the listener there was opened by share; connect to its URL (rdma://…)';
  return new ConnectError(error.code, sentence, undefined, { cause: error });
}
