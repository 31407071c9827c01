/** `verbena sniff`: one sentence for every RoCEv2 packet that this machine sends or receives. */
import { pcapFile } from '../../link/capture/pcap.js';
import { PacketRecorder } from '../../link/capture/packet-recorder.js';
import { Sniffer } from '../../link/capture/sniffer.js';
import { formatCount } from '../base/format.js';
import { Exit, complain, outputClosed } from '../base/report.js';
import { PacketPrinter } from '../decode/packet-printer.js';
import { PeerPorts } from '../decode/peer-ports.js';

export interface SniffOptions {
  /** Name of a network interface; undefined: all of them. */
  readonly interface?: string;
  /** UDP destination ports. */
  readonly port: readonly number[];
  /** Number of packets after which it ends. */
  readonly count?: number;
  /** A capture of the packets goes here. */
  readonly pcap?: string;
  readonly json?: boolean;
}

export async function sniff(options: SniffOptions): Promise<number> {
  const { interface: name = '', port, count = Infinity, pcap, json = false } = options;
  const sniffer = await Sniffer.open({ name, ports: port });
  const stop = (): void => sniffer.close();
  process.on('SIGINT', stop).on('SIGTERM', stop);
  const counters = { captured: 0, omitted: 0 };
  let sentence = '';
  let recorder: PacketRecorder | undefined;
  try {
    if (pcap !== undefined) {
      recorder = new PacketRecorder(pcapFile(pcap), counters, () => sentence);
      recorder.begin(name === '' ? 'any' : name);
    }
    complain('sniff', `packets to UDP port ${port.join(', ')}; ctrl-C ends`);
    const printer = new PacketPrinter(json);
    const ports = new PeerPorts(port);
    if (count === 0) return Exit.OK;
    for await (const packet of sniffer.packets()) {
      const { text, verdict } = await printer.print(packet);
      sentence = text;
      const other = ports.learn(packet, verdict);
      if (other !== undefined) sniffer.addPort(other);
      recorder?.record(packet, packet.timestampMicros, packet.isReceived);
      if (printer.count >= count || outputClosed()) break;
    }
  } finally {
    process.off('SIGINT', stop).off('SIGTERM', stop);
    sniffer.close();
    await recorder?.close();
  }
  report(sniffer.dropped, counters.omitted);
  return Exit.OK;
}

function report(dropped: number, omitted: number): void {
  if (dropped > 0) {
    const remedy = '--pcap without a terminal, or tcpdump, keeps more';
    complain('sniff', `the kernel dropped ${formatCount(dropped, 'packet')}; ${remedy}`);
  }
  if (omitted > 0) complain('sniff', `the capture lacks ${formatCount(omitted, 'packet')}`);
}
