/** Errors of TCP ports, local and remote, as refusals with a remedy. */
import { LinkError, RefusalError, VerbenaError, type ErrnoName } from '../errors/errors.js';
import { systemSentence } from '../errors/system-refusal.js';
import { describeAddresses } from './interface.js';
import { lookupSentence } from './lookup-refusal.js';

/**
 * The refusal for a failed listen at `address` (undefined: any) and `port`. `option` names the
 * option of another port. Returns errors that are not the system's unchanged.
 */
export function listenRefusal(
  error: unknown,
  { address = '', port, option = '--port' }: ListenPlace,
): unknown {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (syscall === undefined) return error;
  const cause = { cause: error };
  if (syscall === 'getaddrinfo') {
    const failed = lookupSentence(address, error);
    if (failed.code !== 'ENOENT') return new LinkError(failed.code, failed.sentence, cause);
    const sentence = `${address} has no address (${code}). ${describeAddresses()}`;
    return new LinkError('EADDRNOTAVAIL', sentence, cause);
  }
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
    default: {
      const said = systemSentence(`cannot listen on TCP port ${port}`, error);
      return said ? new LinkError(said.code, said.sentence, cause) : error;
    }
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
  const { code = '', syscall } = error as NodeJS.ErrnoException;
  const refusal = refusalOf(code, server, command, error);
  if (refusal || syscall === undefined) return refusal ?? error;
  const { hostname = server } = error as { readonly hostname?: string };
  const said =
    syscall === 'getaddrinfo'
      ? lookupSentence(hostname, error)
      : systemSentence(`cannot connect to ${server}`, error);
  return said ? new RefusalError(said.code, said.sentence, { cause: error }) : error;
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
