/** `ioctl` on a socket: the interface requests list only interfaces that can carry RDP. */
import { networkInterfaces } from 'node:os';
import { RefusalError } from '../../errors/errors.js';
import { Gid } from '../../link/endpoint.js';
import type { Context } from '../../verbs/context.js';

/** Request numbers of Linux. */
export const IoctlRequest = Object.freeze({
  /** Bytes of the message that the next `recvmsg` returns. */
  FIONREAD: 0x541b,
  /** Bytes sent and not acknowledged. */
  SIOCOUTQ: 0x5411,
  SIOCGIFCONF: 0x8912,
  SIOCGIFFLAGS: 0x8913,
  SIOCGIFADDR: 0x8915,
  SIOCGIFNETMASK: 0x891b,
  SIOCGIFMTU: 0x8921,
});

/** `ifreq`: an interface that can carry RDP. */
export interface InterfaceRequest {
  readonly name: string;
  readonly address: string;
  /** Undefined for links without one (loopback, data channel). */
  readonly netmask: string | undefined;
  readonly mtu: number;
  /** `IFF_UP`, `IFF_LOOPBACK`, `IFF_RUNNING`. */
  readonly flags: number;
}

const [IFF_UP, IFF_LOOPBACK, IFF_RUNNING] = [0x1, 0x8, 0x40];

/** The interface of a device; one that the system does not know is called `rdp` and its index. */
export function interfaceOf({ local, device }: Context, index: number): InterfaceRequest {
  const { packetSizeMax: mtu } = device.info;
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    for (const { address, netmask, internal } of addresses ?? []) {
      if (!Gid.parse(address).equals(local.gid)) continue;
      const flags = IFF_UP | IFF_RUNNING | (internal ? IFF_LOOPBACK : 0);
      return { name, address, netmask, mtu, flags };
    }
  }
  const flags = IFF_UP | IFF_RUNNING;
  return { name: `rdp${index}`, address: `${local.gid}`, netmask: undefined, mtu, flags };
}

/** Answers `request` for interface `name`. Throws RefusalError EADDRNOTAVAIL, EINVAL. */
export function interfaceAnswer(
  request: number,
  name: string | undefined,
  interfaces: readonly InterfaceRequest[],
): readonly InterfaceRequest[] | string | number | undefined {
  if (request === IoctlRequest.SIOCGIFCONF) return interfaces;
  if (!Object.values<number>(IoctlRequest).includes(request)) {
    const known = 'use a request of IoctlRequest';
    throw new RefusalError('EINVAL', `ioctl: unknown request 0x${request.toString(16)}; ${known}`);
  }
  const found = interfaces.find((one) => one.name === name);
  if (!found) {
    const names = interfaces.map((one) => one.name).join(', ');
    const rule = `interface ${name} cannot carry RDP; those that can: ${names}`;
    throw new RefusalError('EADDRNOTAVAIL', `ioctl: ${rule}`);
  }
  switch (request) {
    case IoctlRequest.SIOCGIFFLAGS:
      return found.flags;
    case IoctlRequest.SIOCGIFADDR:
      return found.address;
    case IoctlRequest.SIOCGIFNETMASK:
      return found.netmask;
    default:
      return found.mtu;
  }
}
