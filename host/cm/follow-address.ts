/**
 * A machine gets another address (DHCP, Wi-Fi in place of Ethernet, a VPN): a device that was
 * opened without an address, and has lost its connections, goes to the new one.
 */
import { RefusalError } from '../errors/errors.js';
import { isLoopback, isOurs, localAddressTowards } from '../link/interface.js';
import type { Context } from '../verbs/context.js';
import { Manager } from './manager.js';

/**
 * Moves the device to the address from which the system sends to `remote` now. Resolves to that
 * address; undefined: it is at that address, or stays where it is: no route, a link that does not
 * move, listeners, or other users of the device whose address still exists.
 */
export async function followAddress(context: Context, remote: string): Promise<string | undefined> {
  const { gid } = context.local;
  if (context.device.closed || isLoopback(gid)) return undefined;
  const now = await localAddressTowards(remote).catch(() => undefined);
  if (now === undefined || now === gid.toString() || context.device.closed) return undefined;
  const isAlone = context.siblings.users === 1;
  if ((!isAlone && isOurs(gid)) || Manager.of(context).isListening) return undefined;
  // No peer needs the port: this side connects.
  for (const port of [context.local.port, 0]) {
    try {
      await context.moveTo(now, port);
      return now;
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      if (error.code !== 'EADDRINUSE') return undefined;
    }
  }
  return undefined;
}
