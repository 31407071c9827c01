/**
 * Explains the messages of NVMe queues in captured packets (`verbena decode`). The messages of the
 * connection manager tell which queue pairs belong to NVMe.
 */
import { Opcode } from '#build/abi.js';
import { serviceIdOf } from '../cm/address.js';
import { PortSpace } from '../cm/enums.js';
import { parseMad } from '../cm/mad.js';
import { explainCapsule, explainCompletion } from './command.js';
import { NVME_RDMA_PORT } from './constants.js';
import { RdmaRequestData } from './structures.js';

const BTH_BYTES = 12;
const DETH_BYTES = 8;
const IETH_BYTES = 4;
const ICRC_BYTES = 4;
const IP_CM_BYTES = 36;
/** Connections that are remembered: a capture may have been made to have more. */
const QUEUES_MAX = 65536;

interface Queue {
  readonly isAdmin: boolean;
  readonly isHosts: boolean;
}

export class NvmeEavesdropper {
  readonly #service: bigint;
  /** Open requests, by the requester's address and communication id. */
  readonly #asked = new Map<string, boolean>();
  /** By address and number of the queue pair that a message is for. */
  readonly #queues = new Map<string, Queue>();

  /** `port`: where the targets listen. */
  constructor(port: number = NVME_RDMA_PORT) {
    this.#service = serviceIdOf(PortSpace.TCP, port);
  }

  /** Explains a packet from BTH to ICRC; '' if it does not belong to NVMe. */
  hear(packet: Uint8Array, source: string, destination: string): string {
    const end = packet.length - ICRC_BYTES - (((packet[1] ?? 0) >> 4) & 3);
    switch (packet[0]) {
      case Opcode.UD_SEND_ONLY:
        this.#learn(packet.subarray(BTH_BYTES + DETH_BYTES, end), source, destination);
        return '';
      case Opcode.RC_SEND_ONLY:
      case Opcode.RC_SEND_FIRST:
        return this.#say(packet, packet.subarray(BTH_BYTES, end), destination);
      case Opcode.RC_SEND_ONLY_WITH_INVALIDATE:
        return this.#say(packet, packet.subarray(BTH_BYTES + IETH_BYTES, end), destination);
      default:
        return '';
    }
  }

  #say(packet: Uint8Array, bytes: Uint8Array, destination: string): string {
    const number = (packet[5]! << 16) | (packet[6]! << 8) | packet[7]!;
    const queue = this.#queues.get(`${destination} ${number}`);
    if (!queue) return '';
    return (queue.isHosts ? explainCompletion(bytes) : explainCapsule(bytes, queue.isAdmin)) ?? '';
  }

  #learn(mad: Uint8Array, source: string, destination: string): void {
    const message = parseMad(mad);
    if (typeof message === 'string') return;
    if (message.name === 'REQ' && message.serviceId === this.#service) {
      const data = message.privateData.subarray(IP_CM_BYTES);
      if (data.length < RdmaRequestData.size) return;
      const { qid } = RdmaRequestData.read(data);
      this.#remember(this.#asked, `${source} ${message.localCommId}`, qid === 0);
      const queue = { isAdmin: qid === 0, isHosts: true };
      this.#remember(this.#queues, `${source} ${message.localQpn}`, queue);
    }
    if (message.name === 'REP') {
      const isAdmin = this.#asked.get(`${destination} ${message.remoteCommId}`);
      if (isAdmin === undefined) return;
      const queue = { isAdmin, isHosts: false };
      this.#remember(this.#queues, `${source} ${message.localQpn}`, queue);
    }
  }

  #remember<T>(table: Map<string, T>, key: string, value: T): void {
    if (table.size < QUEUES_MAX) table.set(key, value);
  }
}
