/** An RTCDataChannel as a datagram channel: in a page, or handed to a Worker. */
import type { ChannelReceiver, DatagramChannel } from '../channel/datagram-channel.js';

/** Part of RTCDataChannel that is used; the DOM's types are not here. */
export interface RtcDataChannel {
  binaryType: string;
  readonly readyState: string;
  readonly bufferedAmount: number;
  onopen: (() => void) | null;
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  onclose: (() => void) | null;
  send(data: Uint8Array): void;
  close(): void;
}

export class RtcChannel implements DatagramChannel {
  readonly #channel: RtcDataChannel;
  readonly #closeConnection: () => void;
  #receiver: ChannelReceiver | undefined;
  #isOpen = false;
  #isClosed = false;
  readonly #early: Uint8Array[] = [];
  #end: { readonly reason: string; readonly isLost: boolean } | undefined;

  /** `closeConnection`: ends the connection that the channel belongs to. */
  constructor(channel: RtcDataChannel, closeConnection: () => void) {
    this.#channel = channel;
    this.#closeConnection = closeConnection;
    channel.binaryType = 'arraybuffer';
    // From now on: a channel that was handed over may open before its link starts it.
    channel.onopen = () => this.#opened();
    channel.onclose = () => this.end('the other side closed it', false);
    channel.onmessage = ({ data }) => {
      // Verbena sends no text messages.
      if (!(data instanceof ArrayBuffer)) return;
      if (this.#receiver) this.#receiver.message(new Uint8Array(data));
      else this.#early.push(new Uint8Array(data));
    };
  }

  get bufferedBytes(): number {
    return this.#channel.bufferedAmount;
  }

  start(receiver: ChannelReceiver): void {
    queueMicrotask(() => {
      if (this.#isClosed) return;
      this.#receiver = receiver;
      if (this.#channel.readyState === 'open') this.#opened();
      for (const bytes of this.#early.splice(0)) receiver.message(bytes);
      if (this.#end) receiver.closed(this.#end.reason, this.#end.isLost);
      else if (this.#channel.readyState === 'closed') this.end('it is closed', false);
    });
  }

  send(message: Uint8Array): boolean {
    if (this.#channel.readyState !== 'open') return false;
    try {
      this.#channel.send(message);
      return true;
    } catch {
      // Its own queue is full.
      return false;
    }
  }

  /** The connection stands still, or goes on. */
  interrupted(isInterrupted: boolean): void {
    if (!this.#isClosed) this.#receiver?.interrupted(isInterrupted);
  }

  /** The connection is over. */
  end(reason: string, isLost: boolean): void {
    if (this.#isClosed || this.#end) return;
    this.#end = { reason, isLost };
    this.#receiver?.closed(reason, isLost);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#channel.onopen = null;
    this.#channel.onmessage = null;
    this.#channel.onclose = null;
    this.#channel.close();
    this.#closeConnection();
  }

  #opened(): void {
    if (this.#isOpen || !this.#receiver) return;
    this.#isOpen = true;
    this.#receiver.opened();
  }
}
