/** Opens a device over UDP as a command line asks for it: address, port, capture, faults. */
import type { Context } from '../../verbs/context.js';
import { openDevice } from '../../verbs/open-device.js';
import { hasFaults, type FaultPercents } from './fault-percents.js';

export { hasFaults, type FaultPercents };

export interface DeviceOptions {
  /** Local IPv4 or IPv6 address. */
  readonly address: string;
  /** UDP port; 0: a free one. */
  readonly port: number;
  /** Of the packets that are sent. Default 0. */
  readonly dscp?: number;
  readonly faults?: FaultPercents;
  /** A capture of all packets goes here. */
  readonly pcap?: string;
}

/** Rejects with LinkError, and RefusalError for memory or the capture's path. */
export async function openLocalDevice(
  { address, port, dscp = 0, faults = {}, pcap }: DeviceOptions,
  limits: { readonly memoryBytes: number; readonly rdAtomicMax?: number },
): Promise<Context> {
  // A link with a capture or with faults is wrapped in this thread.
  const place = { address, port, dscp };
  if (pcap === undefined && !hasFaults(faults)) return openDevice({ ...place, ...limits });
  const { wrappedLink } = await import('./wrapped-link.js');
  const link = wrappedLink(place, faults, pcap);
  try {
    return await openDevice({ link, ...limits });
  } catch (error) {
    // The capture's file is open.
    await link.close();
    throw error;
  }
}
