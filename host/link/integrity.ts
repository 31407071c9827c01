/** Links that keep bytes whole: no ICRC is needed there. */
import type { Endpoint } from './endpoint.js';
import { findInterface, isOnLoopback } from './interface.js';
import type { LinkInfo } from './link.js';

/**
 * Do packets to and from this peer arrive whole, or not at all? An address of this host counts if
 * an interface has it now: such packets take the loopback interface.
 */
export function keepsBytes({ integrity }: LinkInfo, { gid }: Endpoint): boolean {
  if (integrity === 'host') return isOnLoopback(gid) || findInterface(gid) !== undefined;
  return integrity === 'link';
}
