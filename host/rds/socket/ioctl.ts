/** `ioctl` on a socket: the requests for interfaces, which list only what can carry RDP. */
import { networkInterfaces } from 'node:os';
import { RefusalError } from '../../errors/errors.js';
import { Gid } from '../../link/endpoint.js';
import type { Context } from '../../verbs/context.js';

/** Numbers of Linux's requests. */
export const IoctlRequest = Object.freeze({
  /** Bytes of the message that the next `recvmsg` finds. */
  FIONREAD: 0x541b,
  /** Bytes that are sent and not acknowledged. */
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
  /** Undefined where the link has none (loopback, data channel). */
  readonly netmask: string | undefined;
  readonly mtu: number;
  /** `IFF_UP`, `IFF_LOOPBACK`, `IFF_RUNNING`. */
  readonly flags: number;
}

const [IFF_UP, IFF_LOOPBACK, IFF_RUNNING] = [0x1, 0x8, 0x40];

/** The interface of a device; `index` names one that the system does not know: `rdp0`. */
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

/** What `request` says of the interface called `name`. Throws RefusalError EADDRNOTAVAIL, EINVAL. */
export function interfaceAnswer(
  request: number,
  name: string | undefined,
  interfaces: readonly InterfaceRequest[],
): readonly InterfaceRequest[] | string | number | undefined {
  if (request === IoctlRequest.SIOCGIFCONF) return interfaces;
  if (!Object.values<number>(IoctlRequest).includes(request)) {
    throw new RefusalError('EINVAL', `ioctl: no request 0x${request.toString(16)}`);
  }
  const found = interfaces.find((one) => one.name === name);
  if (!found) throw new RefusalError('EADDRNOTAVAIL', `ioctl: no interface ${name} is owner RDP`);
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
