/** Failed look-ups of a host's name (getaddrinfo): no such name, or no answer. */
import type { ErrnoName } from '../errors/errors.js';
import { systemSentence } from '../errors/system-refusal.js';

/** Codes of a name that does not exist, has no address, or is no name. */
const UNKNOWN = new Set(['ENOTFOUND', 'EAI_NONAME', 'EAI_NODATA', 'EINVAL']);

/** The code and the sentence of a refusal. ENOENT: the name has no address. */
export function lookupSentence(
  host: string,
  error: unknown,
): { readonly code: ErrnoName; readonly sentence: string } {
  const { code = '', syscall } = error as NodeJS.ErrnoException;
  if (code === 'EAI_AGAIN') {
    const sentence = `the resolver does not answer now for the host ${host} (${code})`;
    const remedy = 'try again later, or check its name servers';
    return { code: 'EAGAIN', sentence: `${sentence}; ${remedy}` };
  }
  const isAsked = syscall === undefined || UNKNOWN.has(code);
  const failed = isAsked ? undefined : systemSentence(`cannot look up the host ${host}`, error);
  return failed ?? { code: 'ENOENT', sentence: `the host ${host} is not known; check the name` };
}
