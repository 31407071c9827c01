/** Stands in for named-domain.ts in a page: no other process finds a domain of a page. */
import { RefusalError } from '../../errors/errors.js';

export class NamedDomain {}

export function publishDomain(): never {
  const sentence = 'publish: named domains are not in verbena/browser; use pd.allocShpd';
  throw new RefusalError('EOPNOTSUPP', sentence);
}

export function openNamedDomain(): Promise<never> {
  const sentence = 'openDomain: named domains are not in verbena/browser; use context.sharePd';
  return Promise.reject(new RefusalError('EOPNOTSUPP', sentence));
}
