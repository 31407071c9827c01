/** Links that keep bytes whole: no ICRC is needed there. A page has no interfaces of its own. */
import type { LinkInfo } from './link.js';

export function keepsBytes({ integrity }: LinkInfo): boolean {
  return integrity === 'link';
}
