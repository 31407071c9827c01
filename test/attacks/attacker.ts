/**
 * The attacker: an unprivileged process that sends UDP datagrams from any address it chooses. On
 * the loopback interface every process can use all of 127.0.0.0/8, including the address of the
 * victim's peer.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { buildIpCm, serviceIdOf } from '../../host/cm/address.js';
import { PortSpace } from '../../host/cm/enums.js';
import { buildMad, parseMad, type FieldsOf, type Message } from '../../host/cm/mad.js';
import type { MessageName } from '../../host/cm/mad.js';
import { Gid } from '../../host/link/endpoint.js';
import { zlibIcrc } from '../support/codec.js';
import { freePort } from '../support/processes.js';

const UD_SEND_ONLY = 0x64;
const DEFAULT_PKEY = 0xffff;
const GENERAL_SERVICES_QKEY = 0x80010000;
const [BTH_BYTES, DETH_BYTES, ICRC_BYTES] = [12, 8, 4];
/** Packets that are sent before the event loop turns. */
const BURST = 64;

/** Fields of a REQ that a victim cannot distinguish from a genuine one. */
export function request(
  from: string,
  to: { readonly address: string; readonly port: number },
  fields: Partial<FieldsOf<'REQ'>> = {},
): Partial<FieldsOf<'REQ'>> {
  const [source, target] = [Gid.parse(from), Gid.parse(to.address)];
  const privateData = new Uint8Array(92);
  privateData.set(buildIpCm({ source, target, sourcePort: 50000 }));
  return {
    localCommId: 0x1111,
    serviceId: serviceIdOf(PortSpace.TCP, to.port),
    localCaGuid: 5n,
    localQpn: 0x77,
    remoteCmResponseTimeout: 20,
    localCmResponseTimeout: 20,
    maxCmRetries: 15,
    pathMtu: 3,
    pkey: DEFAULT_PKEY,
    primaryLocalAckTimeout: 14,
    privateData,
    ...fields,
  };
}

export class Attacker {
  readonly address: string;
  readonly port: number;
  /** Sent datagrams. */
  sent = 0;
  /** Received connection-manager messages. */
  readonly heard: Message[] = [];
  /** Received datagrams of any kind. */
  received = 0;
  /** Called with each datagram; it may keep the bytes. */
  onPacket: ((packet: Buffer) => void) | undefined;
  readonly #socket: Socket;
  #psn = 0;
  #isClosed = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    ({ address: this.address, port: this.port } = socket.address());
    socket.on('message', (packet) => {
      this.received++;
      this.onPacket?.(packet);
      const mad = packet.subarray(BTH_BYTES + DETH_BYTES, -ICRC_BYTES);
      const message = packet[0] === UD_SEND_ONLY ? parseMad(mad) : 'another packet';
      if (typeof message !== 'string') this.heard.push(message);
    });
  }

  /** `port`: 0 selects a free one below 0xc000: answers to ports from there on go to port 4791. */
  static async open(address: string, port = 0): Promise<Attacker> {
    const socket = createSocket('udp4');
    socket.bind({ address, port: port === 0 ? await freePort(address) : port, exclusive: true });
    await once(socket, 'listening');
    socket.setRecvBufferSize(2 ** 20);
    return new Attacker(socket);
  }

  /** A connection-manager message to `to`, as a complete datagram with a correct ICRC. */
  message<Name extends MessageName>(
    to: string,
    name: Name,
    fields: Partial<FieldsOf<Name>>,
    transactionId = 99n,
  ): Buffer {
    const mad = buildMad(name, transactionId, fields);
    const packet = Buffer.alloc(BTH_BYTES + DETH_BYTES + mad.length + ICRC_BYTES);
    packet[0] = UD_SEND_ONLY;
    packet.writeUInt16BE(DEFAULT_PKEY, 2);
    packet.writeUInt32BE(1, 4);
    packet.writeUInt32BE(this.#psn++ & 0xffffff, 8);
    packet.writeUInt32BE(GENERAL_SERVICES_QKEY, BTH_BYTES);
    packet.writeUInt32BE(1, BTH_BYTES + 4);
    packet.set(mad, BTH_BYTES + DETH_BYTES);
    return this.sealed(packet, to);
  }

  /** The packet with the ICRC for the path from here to `to`. */
  sealed(packet: Buffer, to: string, port = 4791): Buffer {
    const flow = {
      ipVersion: 4,
      source: Gid.parse(this.address).bytes.subarray(12),
      destination: Gid.parse(to).bytes.subarray(12),
      sourcePort: this.port,
      destinationPort: port,
      ipId: 0,
    } as const;
    packet.writeUInt32LE(zlibIcrc(flow, packet), packet.length - ICRC_BYTES);
    return packet;
  }

  send(packet: Buffer, address: string, port = 4791): Promise<void> {
    this.sent++;
    return new Promise((resolve) => {
      this.#socket.send(packet, port, address, () => resolve());
    });
  }

  /**
   * Sends the packets of `make`, at most `perSecond`, until it returns none, `stop` is aborted, or
   * the attacker is closed: an attack that failed says why, and not that its flood went on.
   */
  async flood(
    address: string,
    make: (index: number) => Buffer | undefined,
    {
      perSecond = Infinity,
      stop,
      port = 4791,
    }: { perSecond?: number; stop?: AbortSignal; port?: number } = {},
  ): Promise<void> {
    const began = performance.now();
    for (let index = 0; !stop?.aborted && !this.#isClosed;) {
      const due = began + (1000 * index) / perSecond;
      const wait = due - performance.now();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      if (this.#isClosed) return;
      const sending: Promise<void>[] = [];
      for (let count = 0; count < BURST; count++) {
        const packet = make(index++);
        if (!packet) return void (await Promise.all(sending));
        sending.push(this.send(packet, address, port));
      }
      await Promise.all(sending);
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#socket.close();
  }
}
