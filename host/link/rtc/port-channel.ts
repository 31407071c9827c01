/**
 * A channel that stays in the page, which passes messages on: for browsers that hand no
 * RTCDataChannel over to a Worker. It works only as well as the page has time.
 */
import type { ChannelReceiver, DatagramChannel } from '../channel/datagram-channel.js';

/** Part of MessagePort that is used. */
export interface Port {
  onmessage: ((event: { readonly data: unknown }) => void) | null;
  postMessage(message: unknown, transfer?: readonly unknown[]): void;
  close(): void;
}

/** The two ends of a new message channel. */
export function portPair(): [Port, Port] {
  const { port1, port2 } = new MessageChannel() as unknown as Record<'port1' | 'port2', Port>;
  return [port1, port2];
}

/** Message of the page: bytes, or that the channel is open, or the reason why it is closed. */
export type PortMessage = ArrayBuffer | { readonly kind: 'opened' | 'closed' };

export class PortChannel implements DatagramChannel {
  readonly #port: Port;
  readonly #closeConnection: () => void;
  readonly #early: PortMessage[] = [];
  #receiver: ChannelReceiver | undefined;
  #isOver = false;

  constructor(port: Port, closeConnection: () => void) {
    this.#port = port;
    this.#closeConnection = closeConnection;
    port.onmessage = ({ data }) => {
      if (this.#receiver) this.#take(data as PortMessage);
      else this.#early.push(data as PortMessage);
    };
  }

  /** Not known here: the page looks at its own. */
  get bufferedBytes(): number {
    return 0;
  }

  start(receiver: ChannelReceiver): void {
    queueMicrotask(() => {
      this.#receiver = receiver;
      for (const message of this.#early.splice(0)) this.#take(message);
    });
  }

  send(message: Uint8Array): boolean {
    if (this.#isOver) return false;
    const { buffer } = message.slice();
    this.#port.postMessage(buffer, [buffer]);
    return true;
  }

  interrupted(isInterrupted: boolean): void {
    if (!this.#isOver) this.#receiver?.interrupted(isInterrupted);
  }

  end(reason: string, isLost: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#receiver?.closed(reason, isLost);
  }

  close(): void {
    this.#isOver = true;
    this.#port.onmessage = null;
    this.#port.close();
    this.#closeConnection();
  }

  #take(message: PortMessage): void {
    if (this.#isOver) return;
    if (message instanceof ArrayBuffer) this.#receiver!.message(new Uint8Array(message));
    else if (message.kind === 'opened') this.#receiver!.opened();
    else this.end('the other side closed it', false);
  }
}
