/** Refusals by the system: the call, its errno, and the remedy. */
import { RefusalError, VerbenaError, type ErrnoName } from './errors.js';

const NO_THREAD = 'the limit of threads is reached: end some, or raise it (ulimit -u)';

/** Remedy by errno. */
const REMEDIES: Partial<Record<ErrnoName, string>> = {
  EAGAIN: NO_THREAD,
  EMFILE: 'this process has as many files open as it may: close some, or raise it (ulimit -n)',
  ENFILE: 'the system has as many files open as it may: end programs, or raise fs.file-max',
  ENOMEM: 'there is no memory left: end other programs, or ask for less (memoryBytes)',
  ENOBUFS: 'the system has no buffers left: end other programs, or try again',
  ENOSPC: 'there is no room left: remove files, or take another place',
  ENOLCK: 'the file system gives no locks: take another place (directory), or mount it with them',
  EACCES: 'this user may not: change the permissions, or run as another one',
  EPERM: 'it is not permitted: a sandbox or a filter may forbid it',
  EIO: 'the disk or the file system fails: see what the system logs (dmesg)',
  ENOENT: 'it is not there',
  ENETUNREACH: 'there is no way there: is the interface up?',
  EADDRNOTAVAIL: 'it is no address of this machine, or none of its ports is free',
  EADDRINUSE: 'another socket has it: choose another port, or another address',
};

/** A thread that could not be started says so by codes of Node. */
function errnoOf(code: string): ErrnoName {
  if (code === 'ERR_WORKER_OUT_OF_MEMORY') return 'ENOMEM';
  if (code.startsWith('ERR_WORKER')) return 'EAGAIN';
  return code in REMEDIES ? (code as ErrnoName) : 'EIO';
}

/** The same without its class; undefined: the system did not say it. */
export function systemSentence(
  what: string,
  error: unknown,
): { readonly code: ErrnoName; readonly sentence: string } | undefined {
  const { code: said, syscall, message } = error as NodeJS.ErrnoException;
  if (typeof said !== 'string') return undefined;
  const code = errnoOf(said);
  const call = syscall ?? (said.startsWith('ERR_WORKER') ? 'starting a thread' : message);
  const remedy = code === said || said.startsWith('ERR_WORKER') ? REMEDIES[code] : message;
  return { code, sentence: `${what}: the system refuses ${call}: ${remedy}` };
}

/**
 * `what` is the call of ours that cannot be granted. What is thrown on purpose, and what is a mistake
 * of ours, stays as it is.
 */
export function systemRefusal(what: string, error: unknown): unknown {
  if (error instanceof VerbenaError) return error;
  const found = systemSentence(what, error);
  return found ? new RefusalError(found.code, found.sentence, { cause: error }) : error;
}
