/** A datagram channel in the test's hand, and a link over such channels. */
import type { ChannelLimits } from '../../host/link/channel/channel-limits.js';
import { ChannelLink } from '../../host/link/channel/channel-link.js';
import type { ChannelReceiver, DatagramChannel } from '../../host/link/channel/datagram-channel.js';
import { Gid, type Endpoint } from '../../host/link/endpoint.js';

export class FakeChannel implements DatagramChannel {
  bufferedBytes = 0;
  /** Sent messages, copied. */
  readonly sent: Uint8Array[] = [];
  /** Takes nothing. */
  isFull = false;
  isClosed = false;
  receiver: ChannelReceiver | undefined;

  start(receiver: ChannelReceiver): void {
    this.receiver = receiver;
  }

  send(message: Uint8Array): boolean {
    if (this.isFull) return false;
    this.sent.push(Uint8Array.from(message));
    return true;
  }

  close(): void {
    this.isClosed = true;
  }
}

export const LIMITS: ChannelLimits = {
  messageBytes: 1150,
  receiveBytes: 4170,
  windowBytes: 8192,
  queueBytes: 65536,
  bufferedBytesMax: 4096,
  peersMax: 3,
  openMillis: 50,
  returnMillis: 100,
  askMillis: 5,
};

export class FakeLink extends ChannelLink {
  /** The peers that the link wants to be found again. */
  readonly sought: Endpoint[] = [];

  readonly #address: Gid;

  constructor(limits: Partial<ChannelLimits> = {}, address = Gid.parse('fd00::1')) {
    super('fake', 1088, { ...LIMITS, ...limits });
    this.#address = address;
  }

  /** A connection to this address is being made. */
  add(gid: Gid, channel: DatagramChannel, accept?: () => Promise<void>): Promise<Endpoint> {
    return this.addPeer(gid, channel, accept);
  }

  /** A peer whose channel is open. */
  async connect(gid: Gid, channel = new FakeChannel()): Promise<FakeChannel> {
    const adding = this.addPeer(gid, channel);
    channel.receiver!.opened();
    await adding;
    return channel;
  }

  protected takeAddress(): Promise<Gid> {
    return Promise.resolve(this.#address);
  }

  protected releaseAddress(): void {}

  protected seekAgain(peer: Endpoint): void {
    this.sought.push(peer);
  }
}
