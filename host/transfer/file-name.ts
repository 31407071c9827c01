/**
 * Which names a file may have on the server. The name comes from the wire: it must name a file in
 * the served directory and nothing else, and not one of the files that the server keeps beside it.
 */
import { RefusalError } from '../errors/errors.js';
import { textOf } from './bytes.js';

export const PART_SUFFIX = '.part';
export const JOURNAL_SUFFIX = '.part.journal';
/** Bytes that file systems allow, less what we append. */
const NAME_BYTES_MAX = 255 - JOURNAL_SUFFIX.length;

/** Throws RefusalError EINVAL with the rule that `name` breaks. */
export function checkFileName(name: string): void {
  const rule = brokenRule(name);
  if (rule === undefined) return;
  throw new RefusalError('EINVAL', `a file cannot be put as ${JSON.stringify(name)}: ${rule}`);
}

/** May a received file have that name? */
export function isFileName(name: string): boolean {
  return brokenRule(name) === undefined;
}

function brokenRule(name: string): string | undefined {
  if (name === '') return 'the name is empty';
  if (name === '.' || name === '..') return 'that is a directory';
  // A shell or a tool would run what a hidden file says (.bashrc, .ssh, .git).
  if (name.startsWith('.')) return 'it begins with a dot';
  if (/[/\\]/.test(name)) return 'a name has no path in it';
  // A control character would forge lines of a log; the others make a name look like another one.
  if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(name)) {
    return 'it has a control, format or other invisible character; rename the file';
  }
  const bytes = new TextEncoder().encode(name);
  if (textOf(bytes) !== name) return 'it is no valid Unicode';
  if (bytes.length > NAME_BYTES_MAX)
    return `it has more than ${NAME_BYTES_MAX} bytes; use a shorter name`;
  const lower = name.toLowerCase();
  if (lower.endsWith(PART_SUFFIX) || lower.endsWith('.journal')) {
    return 'the server keeps files of its own under such names (.part, .journal)';
  }
  return undefined;
}
