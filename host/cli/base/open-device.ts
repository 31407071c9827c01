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
import { PacketSentences } from '../decode/packet-sentence.js';
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
  // What stands between a device and its link is ours to make: in this thread.
  const place = { address, port, dscp };
  if (pcap === undefined && !hasFaults(faults)) return openDevice({ ...place, ...limits });
  let link: Link = new UdpLink(place);
  // Nearest to the wire: what the capture has is what travelled.
  if (pcap !== undefined) link = capturing(link, pcap);
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

/** Packets of a `.pcapng` file have the sentences of `verbena decode` as comments. */
function capturing(link: Link, path: string): Link {
  const sentences = new PacketSentences();
  return pcapLink(link, pcapFile(path), {
    comment: (packet, source, destination) => sentences.of(packet, source, destination).text,
  });
}
