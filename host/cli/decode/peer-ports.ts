/**
 * Ports of devices that are not at 4791: the second device of an address has another port. It sends
 * from that port, so its packets to a known one name it, and the answers to it are printed as well.
 */
import type { IcrcVerdict } from '../../link/capture/icrc-check.js';
import type { CapturedPacket } from '../../link/capture/pcap.js';
import { FLOW_PORT_MIN } from '../../link/udp/udp-socket.js';

/** A capture of forged packets must not turn every port into one of a device. */
const PORTS_MAX = 64;
const KNOWN_ICRC: ReadonlySet<IcrcVerdict> = new Set(['exact', 'by IP id', 'omitted']);

export class PeerPorts {
  readonly #known: Set<number>;

  constructor(ports: readonly number[]) {
    this.#known = new Set(ports);
  }

  /** The port of the device that sent this packet, if it is not known yet. */
  learn({ source: { port } }: CapturedPacket, verdict: IcrcVerdict): number | undefined {
    // Ports from FLOW_PORT_MIN on are sources of flows: no device receives there.
    if (port >= FLOW_PORT_MIN || this.#known.has(port) || !KNOWN_ICRC.has(verdict))
      return undefined;
    if (this.#known.size >= PORTS_MAX) return undefined;
    this.#known.add(port);
    return port;
  }
}
