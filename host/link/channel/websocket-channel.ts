/**
 * A WebSocket as a datagram channel. Each side first says its address, as text:
 * ```
 * {"verbena":1,"gid":"fd12:…"}
 * ```
 */
import { LinkError } from '../../errors/errors.js';
import type { ChannelReceiver, DatagramChannel } from './datagram-channel.js';
import { Gid } from '../endpoint.js';

/** Part of WebSocket that is used; a browser's, Node's and that of ws have it. */
export interface Socket {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(data: string | Uint8Array): void;
  close(): void;
}

interface Message {
  readonly data: unknown;
}

const OPEN = 1;
const HELLO_LENGTH_MAX = 256;
/** Messages that may come before a listener is set. */
const EARLY_MAX = 64;

export class WebSocketChannel implements DatagramChannel {
  /** The other side's address. Rejects with LinkError EPROTO, ECONNRESET. */
  readonly address: Promise<Gid>;
  readonly #socket: Socket;
  #receiver: ChannelReceiver | undefined;
  readonly #early: Uint8Array[] = [];
  #isOver = false;
  /** The peer has sent its address; messages before it are dropped. */
  #isNamed = false;

  /** `local`: our address. The socket may be connecting, or be open. */
  constructor(socket: Socket, local: Gid) {
    this.#socket = socket;
    socket.binaryType = 'arraybuffer';
    const hello = JSON.stringify({ verbena: 1, gid: local.toString() });
    if (socket.readyState === OPEN) socket.send(hello);
    else socket.onopen = () => socket.send(hello);
    this.address = new Promise((resolve, reject) => {
      socket.onmessage = ({ data }: Message) => {
        if (typeof data === 'string') {
          try {
            resolve(readHello(data));
            this.#isNamed = true;
          } catch (error) {
            reject(error as LinkError);
          }
        } else if (data instanceof ArrayBuffer && this.#isNamed) {
          this.#message(new Uint8Array(data));
        }
      };
      const over = (reason: string): void => {
        reject(new LinkError('ECONNRESET', `the WebSocket: ${reason}`));
        this.#end(reason);
      };
      socket.onclose = () => over('it was closed');
      socket.onerror = () => over('it failed');
    });
    // The connecting side awaits the address; on the other side it may stay unknown.
    this.address.catch(() => undefined);
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount;
  }

  start(receiver: ChannelReceiver): void {
    queueMicrotask(() => {
      this.#receiver = receiver;
      if (this.#isOver) {
        receiver.closed('it was closed', false);
        return;
      }
      receiver.opened();
      for (const bytes of this.#early.splice(0)) receiver.message(bytes);
    });
  }

  send(message: Uint8Array): boolean {
    if (this.#socket.readyState !== OPEN) return false;
    // ws keeps the buffer until it is written.
    this.#socket.send(message.slice());
    return true;
  }

  close(): void {
    this.#isOver = true;
    this.#receiver = undefined;
    this.#socket.close();
  }

  #message(bytes: Uint8Array): void {
    if (this.#receiver) this.#receiver.message(bytes);
    else if (!this.#isOver && this.#early.length < EARLY_MAX) this.#early.push(bytes);
  }

  #end(reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#receiver?.closed(reason, false);
  }
}

function readHello(text: string): Gid {
  try {
    if (text.length <= HELLO_LENGTH_MAX) {
      const { verbena, gid } = JSON.parse(text) as { verbena?: unknown; gid?: unknown };
      if (verbena === 1 && typeof gid === 'string') return uniqueLocal(Gid.parse(gid));
    }
  } catch {
    // Said below.
  }
  throw new LinkError(
    'EPROTO',
    'connect: the peer of the WebSocket sent no address; check its version',
  );
}

function uniqueLocal(gid: Gid): Gid {
  if (gid.bytes[0] === 0xfd) return gid;
  throw new RangeError('no unique local address');
}
