/** Errors of TCP ports, local and remote, as refusals with a remedy. */
import { LinkError, RefusalError, VerbenaError, type ErrnoName } from '../errors/errors.js';
import { describeAddresses } from './interface.js';

/**
 * The refusal for a failed listen at `address` (undefined: any) and `port`. `option` names the
 * option of another port. Returns unknown errors unchanged.
 */
export function listenRefusal(
  error: unknown,
  { address = '', port, option = '--port' }: ListenPlace,
): unknown {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (syscall === undefined) return error;
  const cause = { cause: error };
  const choose = `choose another one (${option})`;
  switch (code) {
    case 'EADDRINUSE':
      return new LinkError(code, `TCP port ${port} is taken: ${choose}`, cause);
    case 'EACCES':
      return new LinkError(code, `TCP port ${port} requires more rights: ${choose}`, cause);
    case 'EADDRNOTAVAIL': {
      const sentence = `${address} is no address of this machine. ${describeAddresses()}`;
      return new LinkError(code, sentence, cause);
    }
    default:
      return new LinkError('EIO', `cannot listen on TCP port ${port}: ${message}`, cause);
  }
}

export interface ListenPlace {
  readonly address?: string | undefined;
  readonly port: number;
  readonly option?: string;
}

/**
 * Why `server` (host:port) cannot be talked to; `command` is what should run there. What the system
 * did not say stays as it is.
 */
export function connectRefusal(error: unknown, server: string, command: string): unknown {
  if (error instanceof VerbenaError) return error;
  const { code = '', syscall, message } = error as NodeJS.ErrnoException;
  const refusal = refusalOf(code, server, command, error);
  if (refusal || syscall === undefined) return refusal ?? error;
  return new RefusalError('EIO', `cannot connect to ${server}: ${message}`, { cause: error });
}

/** The refusal for an errno of any source; undefined: no better sentence is known. */
export function refusalOf(
  code: string,
  server: string,
  command: string,
  cause: unknown,
): RefusalError | undefined {
  const refuse = (name: ErrnoName, sentence: string) => new RefusalError(name, sentence, { cause });
  switch (code) {
    case 'ECONNREFUSED':
      return refuse(code, `no process listens at ${server}: start "${command}" there`);
    case 'ETIMEDOUT':
      return refuse(code, `no answer from ${server}: check that "${command}" runs there`);
    case 'ECONNRESET':
    case 'EPIPE':
      return refuse('ECONNRESET', `${server} closed the connection`);
    case 'ENETUNREACH':
    case 'EHOSTUNREACH':
      return refuse('ENETUNREACH', `no route to ${server}`);
  }
  return undefined;
}
