/** Opens a device over UDP as a command line asks for it: address, port, capture, faults. */
import {
  UdpLink,
  faultLink,
  openDevice,
  pcapFile,
  pcapLink,
  type Context,
  type Link,
} from '../../index.js';

/** What a wire may be made to do to what we send; percent of packets. */
export interface FaultPercents {
  readonly loss?: number;
  readonly duplicate?: number;
  readonly reorder?: number;
  readonly corrupt?: number;
  readonly seed?: number;
}

export interface DeviceOptions {
  /** Local IPv4 or IPv6 address. */
  readonly address: string;
  /** UDP port; 0: a free one. */
  readonly port: number;
  readonly faults?: FaultPercents;
  /** A capture of all packets goes here. */
  readonly pcap?: string;
}

/** Rejects with LinkError, and RefusalError for memory or the capture's path. */
export async function openLocalDevice(
  { address, port, faults = {}, pcap }: DeviceOptions,
  limits: { readonly memoryBytes: number; readonly rdAtomicMax?: number },
): Promise<Context> {
  // What stands between a device and its link is ours to make: in this thread.
  if (pcap === undefined && !hasFaults(faults)) return openDevice({ address, port, ...limits });
  let link: Link = new UdpLink({ address, port });
  // Nearest to the wire: what the capture has is what travelled.
  if (pcap !== undefined) link = pcapLink(link, pcapFile(pcap));
  if (hasFaults(faults)) {
    link = faultLink(link, {
      loss: (faults.loss ?? 0) / 100,
      duplication: (faults.duplicate ?? 0) / 100,
      reordering: (faults.reorder ?? 0) / 100,
      corruption: (faults.corrupt ?? 0) / 100,
      ...(faults.seed === undefined ? {} : { seed: faults.seed }),
    });
  }
  try {
    return await openDevice({ link, ...limits });
  } catch (error) {
    // The capture's file is open.
    await link.close();
    throw error;
  }
}

export function hasFaults({ loss, duplicate, reorder, corrupt }: FaultPercents): boolean {
  return [loss, duplicate, reorder, corrupt].some((percent) => (percent ?? 0) > 0);
}
