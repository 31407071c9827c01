/** `rpma_utils_*`: a device by an address, and what it can do. */
import { timerMillis } from '../base/timer.js';
import { lookUp } from '../cm/address-info.js';
import { openTowards } from '../cm/connection-device.js';
import { checkWhole } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { checkContext, type Context } from '../verbs/context.js';
import { openDevice, type UdpOpenOptions } from '../verbs/open-device.js';
import { UtilIbvContext } from './constants.js';

/** As a number, or as the text that librpma takes. */
export type Port = number | string;

/**
 * `rpma_utils_get_ibv_context`: opens the device at that local address, or at whichever address
 * reaches that remote one (UtilIbvContext). Devices are opened, not found: it is the caller's to
 * close. Rejects as `openDevice`; RefusalError ENOENT (no such host), EAGAIN
 * (the resolver does not answer now).
 */
export async function utilsGetIbvContext(
  addr: string,
  type: number,
  options: UdpOpenOptions = {},
): Promise<Context> {
  if (type !== UtilIbvContext.LOCAL && type !== UtilIbvContext.REMOTE) {
    throw new MisuseError('type', `must be a UtilIbvContext, got ${type}`);
  }
  const address = await lookUp(addr);
  if (type === UtilIbvContext.LOCAL) return openDevice({ ...options, address });
  return openTowards(address, options);
}

/** `rpma_utils_ibv_context_is_odp_capable`: pages come when they are touched, nothing is pinned. */
export function utilsIbvContextIsOdpCapable(context: Context): boolean {
  checkContext('utilsIbvContextIsOdpCapable', context);
  return !context.device.closed;
}

/** @internal Rejects with MisuseError; RefusalError ENOENT, ETIMEDOUT. */
export async function targetOf(
  addr: string,
  port: Port,
  timeoutMillis?: number,
): Promise<{ address: string; port: number }> {
  const number = typeof port === 'number' ? port : /^\d{1,5}$/.test(port) ? Number(port) : -1;
  checkWhole('port', number, 0, 65535);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    if (timeoutMillis === undefined) return;
    const sentence = `${addr}: no answer of the resolver within ${timeoutMillis} ms; check the name server`;
    timer = setTimeout(
      () => reject(new RefusalError('ETIMEDOUT', sentence)),
      timerMillis(timeoutMillis),
    );
  });
  try {
    return { address: await Promise.race([lookUp(addr), late]), port: number };
  } finally {
    clearTimeout(timer);
  }
}
