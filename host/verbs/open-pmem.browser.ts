/** Stands in for open-pmem.ts in a browser. */
import { RefusalError } from '../errors/errors.js';

export function openPmem(): Promise<never> {
  const sentence = 'openPmem: there are no files here';
  return Promise.reject(new RefusalError('EOPNOTSUPP', sentence));
}
