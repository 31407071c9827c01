/** Devices of connections and listeners that get none from the application. */
import { checkObject } from '../base/options.js';
import { checkFlag, checkWhole } from '../errors/check-whole.js';
import { LinkError, MisuseError } from '../errors/errors.js';
import { localAddressTowards } from '../link/interface.js';
import { ROCE_PORT } from '../link/link.js';
import { portTowards, warnOfOtherPort } from '../link/udp/other-port.js';
import { checkContext, type Context } from '../verbs/context.js';
import { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { openDevice, type UdpOpenOptions } from '../verbs/open-device.js';
import { COMMON_MEMORY_BYTES, commonDevice } from './common-device.js';

/** Options whose values are objects, and those that the connection manager does not check. */
export type EndChoice = Partial<
  Readonly<Record<'context' | 'pd' | 'device' | 'qp' | 'cqe' | 'srq', unknown>>
>;

/** @internal Throws MisuseError for a value of another type, null included. */
export function checkEndOptions(
  operation: string,
  { context, pd, device, qp, cqe, srq }: EndChoice,
): void {
  if (qp !== undefined) checkObject(operation, qp, 'qp');
  if (cqe !== undefined) checkWhole('cqe', cqe as number, 1);
  if (srq !== undefined) checkFlag('srq', srq as boolean);
  if (context !== undefined) checkContext(operation, context);
  if (device !== undefined) checkObject(operation, device, 'device');
  if (pd === undefined || pd instanceof ProtectionDomain) return;
  const found = pd === null ? 'null' : typeof pd;
  throw new MisuseError('pd', `${operation} takes a domain of context.allocPd, got ${found}`);
}

/**
 * @internal Opens a device at the local address that reaches the remote one, at UDP port `port`.
 * If that is taken, the device uses another one and warns.
 */
export async function openTowards(
  address: string,
  device: UdpOpenOptions = {},
  port = portTowards(address),
): Promise<Context> {
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
  if (device !== undefined) return openDevice({ ...device, address });
  const isFound = ({ local }: Context): boolean => local.port === ROCE_PORT;
  return commonDevice(address, isFound, () =>
    openDevice({ address, memoryBytes: COMMON_MEMORY_BYTES }),
  );
}
