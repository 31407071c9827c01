/** The device of a server or a client: the common one of its local address, if none is chosen. */
import { MisuseError, RefusalError } from '../errors/errors.js';
import { COMMON_MEMORY_BYTES, commonDevice, commonDeviceMoved } from '../cm/common-device.js';
import { checkEndOptions, openTowards } from '../cm/connection-device.js';
import { followAddress } from '../cm/follow-address.js';
import { localAddressTowards } from '../link/interface.js';
import { ROCE_PORT } from '../link/link.js';
import type { Context } from '../verbs/context.js';
import type { UdpOpenOptions } from '../verbs/open-device.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { LocalMemory } from './local-regions.js';

/** Which device is used. Default: one that this process shares by local address. */
export interface DeviceChoice {
  /** A device that the application opened. It stays open until what uses it is closed as well. */
  readonly context?: Context;
  /** A protection domain of the application's own, for `registered` regions; its device is used. */
  readonly pd?: ProtectionDomain;
  /** Opens a device with these options for this call alone. */
  readonly device?: UdpOpenOptions;
}

/** Regions beyond this size get a device of their own. */
const COMMON_BYTES_MAX = 64 * 2 ** 20;
const HEADROOM_BYTES = 128 * 2 ** 20;
const MEMORY_BYTES_MAX = 2 ** 32 - 2 ** 16;

/** A device in use: a context of its own, its protection domain, and its end. */
export interface DeviceUse {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly local: LocalMemory;
  /**
   * Before another attempt to connect: the device goes to this machine's address of now. Undefined:
   * the application has chosen the device, or its address.
   */
  follow?(): Promise<void>;
  /** Everything that was made from it must have ended. */
  release(): Promise<void>;
}

/** Where a server listens, or what a client connects to. */
export interface Direction {
  /** Of this machine. */
  readonly local?: string;
  readonly remote?: string;
  /** The device must have this UDP port. */
  readonly udpPort?: number;
}

/** Throws MisuseError. */
function checkChoice(operation: string, choice: DeviceChoice): void {
  checkEndOptions(operation, choice);
  const { context, pd, device } = choice;
  if ([context, pd, device].filter((one) => one !== undefined).length > 1) {
    const rule = `${operation}: at most one of context, pd and device is possible`;
    throw new MisuseError('device', rule);
  }
}

/** The error of a call for which the device has no domain, memory or queue left names remedies. */
export function fullError(
  operation: string,
  error: unknown,
  { context }: Pick<DeviceUse, 'context'>,
): unknown {
  const isFull = error instanceof RefusalError && error.code === 'ENOMEM';
  if (!isFull || error.message.startsWith(`${operation}: `)) return error;
  const [cause] = error.message.replace(' (ENOMEM)', '').split('; ');
  const rule = `${operation}: the device at ${context.local.gid} is full (${cause})`;
  const remedy =
    'close remotes and servers that are not in use, pass one protection domain to several calls ' +
    '(option pd), or give this call a device of its own (option device)';
  return new RefusalError('ENOMEM', `${rule}; ${remedy}`, { cause: error });
}

/** `bytes`: memory for regions. Throws as `openDevice`. */
export async function useDevice(
  direction: Direction,
  bytes: number,
  choice: DeviceChoice,
): Promise<DeviceUse> {
  const { context: given, pd, device } = choice;
  const operation = direction.remote === undefined ? 'share' : 'connect';
  checkChoice(operation, choice);
  const local = new LocalMemory();
  if (pd) return { context: pd.context, pd, local, release: async () => {} };
  const context = given ? given.openDevice() : await open(direction, bytes, device);
  const { remote } = direction;
  const isFree = !given && device?.address === undefined && remote !== undefined;
  const follow = async (): Promise<void> => {
    const before = context.local.gid.toString();
    if (await followAddress(context, remote!)) commonDeviceMoved(context, before);
  };
  try {
    const pd = context.allocPd();
    return { context, pd, local, ...(isFree && { follow }), release: () => context.close() };
  } catch (error) {
    await context.close();
    throw fullError(operation, error, { context });
  }
}

/** Devices that were opened for a server. Their port is in its URL. */
const servers = new WeakSet<Context['device']>();

/** May a server, or a client, use the device of a context? */
function fitsAs({ remote, udpPort }: Direction): (context: Context) => boolean {
  if (udpPort !== undefined) return ({ local }) => local.port === udpPort;
  if (remote !== undefined) return () => true;
  return ({ local, device }) => local.port === ROCE_PORT || servers.has(device);
}

async function open(
  direction: Direction,
  bytes: number,
  device: UdpOpenOptions | undefined,
): Promise<Context> {
  const { local, remote, udpPort } = direction;
  const address = device?.address ?? local ?? (await localAddressTowards(remote!));
  const port = udpPort === undefined ? {} : { port: udpPort };
  const isLarge = bytes > COMMON_BYTES_MAX;
  const memoryBytes = isLarge
    ? Math.min(MEMORY_BYTES_MAX, bytes + HEADROOM_BYTES)
    : COMMON_MEMORY_BYTES;
  const openAt = async (options: UdpOpenOptions): Promise<Context> => {
    if (remote !== undefined) return openTowards(remote, options);
    // Clients look for a server at 4791.
    const context = await openTowards(address, options, ROCE_PORT);
    servers.add(context.device);
    return context;
  };
  if (device) return openAt({ ...(isLarge && { memoryBytes }), ...port, ...device, address });
  const make = (): Promise<Context> => openAt({ memoryBytes, ...port, address });
  return isLarge ? make() : commonDevice(address, fitsAs(direction), make);
}
