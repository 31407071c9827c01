/** A UDP link with a capture or faults around it. Loaded for these only: it takes 60 ms. */
import { pcapFile, pcapLink } from '../../link/capture/pcap.js';
import { faultLink } from '../../link/faults/fault.js';
import type { Link } from '../../link/link.js';
import { UdpLink } from '../../link/udp/udp.js';
import type { UdpOptions } from '../../link/udp/udp-options.js';
import { PacketSentences } from '../decode/packet-sentence.js';
import { hasFaults, type FaultPercents } from './fault-percents.js';

export function wrappedLink(
  place: UdpOptions,
  faults: FaultPercents,
  pcap: string | undefined,
): Link {
  let link: Link = new UdpLink(place);
  // Nearest to the wire: what the capture has is what travelled.
  if (pcap !== undefined) link = capturing(link, pcap);
  if (!hasFaults(faults)) return link;
  return faultLink(link, {
    loss: (faults.loss ?? 0) / 100,
    duplication: (faults.duplicate ?? 0) / 100,
    reordering: (faults.reorder ?? 0) / 100,
    corruption: (faults.corrupt ?? 0) / 100,
    ...(faults.seed === undefined ? {} : { seed: faults.seed }),
  });
}

/** Packets of a `.pcapng` file have the sentences of `verbena decode` as comments. */
function capturing(link: Link, path: string): Link {
  const sentences = new PacketSentences();
  return pcapLink(link, pcapFile(path), {
    comment: (packet, source, destination) => sentences.of(packet, source, destination).text,
  });
}
