/** Requests fail since their packets are too long for the network or the interface. */
import { VendorError } from '#build/abi.js';
import type { Reason } from './failure-reason.js';

/** By the `vendor_err` of RETRY_EXC_ERR; undefined: the peer is silent. */
export function pathMtuReason(vendorErr: number, after: string): Reason | undefined {
  const { PATH_MTU, PATH_MTU_REFUSED } = VendorError;
  if (vendorErr < PATH_MTU) return undefined;
  const cause = vendorErr >= PATH_MTU_REFUSED ? 'the system refuses' : 'the network drops';
  const rule = `${cause} packets of path MTU ${vendorErr % PATH_MTU}, and carries shorter ones`;
  const next = 'the next connection has a smaller one (or raise the MTU on the way)';
  return { code: 'EMSGSIZE', rule, remedy: `${next}; ${after}` };
}
