/** `ibv_get_device_list`: the local addresses at which a device can be opened. */
import { networkInterfaces } from 'node:os';
import { Gid } from '../../link/endpoint.js';
import type { Context } from '../context.js';
import { openDevice, type OpenOptions } from '../open-device.js';

/**
 * One device that could be opened: the results of `ibv_get_device_name`,
 * `ibv_get_device_guid` and the other queries of a device list.
 */
export interface DeviceEntry {
  /** Interface and address: `eth0/10.0.0.1`. */
  readonly name: string;
  readonly gid: Gid;
  /** `ibv_open_device`, over UDP at this address. */
  open(options?: Omit<OpenOptions, 'link' | 'address'>): Promise<Context>;
}

/** One entry for every address of this machine, IPv4 first. */
export function getDeviceList(): DeviceEntry[] {
  const entries: DeviceEntry[] = [];
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    for (const { address } of addresses ?? []) {
      const gid = Gid.parse(address);
      entries.push({
        name: `${name}/${gid}`,
        gid,
        open: (options = {}) => openDevice({ ...options, address: gid.toString() } as OpenOptions),
      });
    }
  }
  return entries.sort((a, b) => Number(b.gid.isIpv4) - Number(a.gid.isIpv4));
}
