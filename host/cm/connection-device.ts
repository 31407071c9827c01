/** Devices of connections and listeners that get none from the application. */
import { checkObject } from '../base/options.js';
import { LinkError } from '../errors/errors.js';
import { localAddressTowards } from '../link/interface.js';
import { ROCE_PORT } from '../link/link.js';
import { portTowards, warnOfOtherPort } from '../link/udp/other-port.js';
import type { Context } from '../verbs/context.js';
import { openDevice, type UdpOpenOptions } from '../verbs/open-device.js';
import { COMMON_MEMORY_BYTES, commonDevice } from './common-device.js';

/**
 * @internal Opens a device at the local address that reaches the remote one, at UDP port `port`.
 * If that is taken, the device uses another one and warns.
 */
export async function openTowards(
  address: string,
  device: UdpOpenOptions = {},
  port = portTowards(address),
): Promise<Context> {
  checkObject('connect', device, 'device');
  const local = device.address ?? (await localAddressTowards(address));
  try {
    return await openDevice({ ...device, address: local, port: device.port ?? port });
  } catch (error) {
    const isTaken = error instanceof LinkError && error.code === 'EADDRINUSE';
    if (!isTaken || device.port !== undefined) throw error;
    const context = await openDevice({ ...device, address: local, port: 0 });
    await warnOfOtherPort(context.local, address);
    return context;
  }
}

/** Device of one connection: a device of its own, or a context of the common one. */
export async function deviceTowards(address: string, device?: UdpOpenOptions): Promise<Context> {
  if (device !== undefined) return openTowards(address, device);
  const local = await localAddressTowards(address);
  const any = (): boolean => true;
  return commonDevice(local, any, () =>
    openTowards(address, { address: local, memoryBytes: COMMON_MEMORY_BYTES }),
  );
}

/** Device of one listener. Linux and RoCE cards find it at port 4791 only. */
export async function deviceAt(address: string, device?: UdpOpenOptions): Promise<Context> {
  if (device !== undefined) {
    checkObject('listen', device, 'device');
    return openDevice({ ...device, address });
  }
  const isFound = ({ local }: Context): boolean => local.port === ROCE_PORT;
  return commonDevice(address, isFound, () =>
    openDevice({ address, memoryBytes: COMMON_MEMORY_BYTES }),
  );
}
