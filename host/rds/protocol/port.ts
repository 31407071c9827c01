/** A bound port: unread messages, and messages in flight. */
import type { RdsParameters } from './config.js';
import type { IncomingMessage, MessageOwner, OutgoingMessage } from './message.js';

/** The socket that reads and writes at a port. */
export interface PortUser {
  /** A message has arrived for an empty port. */
  readable(): void;
  /** A refused send may be retried. */
  writable(): void;
  /** The peer received the message, or it is lost. */
  released(message: OutgoingMessage, isLost: boolean): void;
  numbered?(message: OutgoingMessage, connectionIndex: number): void;
  /** It says itself when a message is kept; it is another process's. */
  readonly keeps?: boolean;
  /** Messages taken from the port and not read yet. */
  readonly backlog?: number;
  /** Is its message memory nearly full? */
  readonly isCrowded?: boolean;
  /** A peer has used this key, by RDMA in front of a message. */
  accessed?(rkey: number): void;
}

export interface PortNode {
  readonly parameters: RdsParameters;
  /** Receive bytes that hold no unread message. */
  readonly receiveBytesFree: number;
  /** Changes the count of unread messages, and of the bytes that they hold. */
  holds(bytes: number, messages: number): void;
  /** The reader has become slow, or has caught up: senders are notified. */
  stalled(port: Port, isStalled: boolean): void;
  /** Memory of a message was released. */
  released(): void;
}

/** Default limit of bytes in flight from a socket (SO_SNDBUF). */
export const SEND_BYTES_DEFAULT = 8 << 20;

export class Port implements MessageOwner {
  readonly number: number;
  readonly user: PortUser;
  isStalled = false;
  /** Limit of unread messages. */
  receiveLimit: number;
  /** SO_RCVBUF: unread messages at which the port becomes slow; 0: not set. */
  #hint = 0;
  /** Bytes of the unread messages. */
  #heldBytes = 0;
  sendBytesLimit = SEND_BYTES_DEFAULT;
  /** Messages in flight, and their bytes. */
  sending = 0;
  sendingBytes = 0;
  readonly #node: PortNode;
  readonly #waiting: IncomingMessage[] = [];

  constructor(node: PortNode, number: number, user: PortUser) {
    this.#node = node;
    this.number = number;
    this.user = user;
    this.receiveLimit = node.parameters.MaxDataRecvBuffers;
  }

  get pending(): number {
    return this.#waiting.length;
  }

  /** Does the send buffer have `bytes` free? An empty buffer takes a message of any length. */
  hasRoomFor(bytes: number): boolean {
    if (this.sending === 0) return true;
    const { MaxDataSendBuffers } = this.#node.parameters;
    return this.sending < MaxDataSendBuffers && this.sendingBytes + bytes <= this.sendBytesLimit;
  }

  /** SO_RCVBUF: raises the limit, never lowers it; may end a stall. */
  raiseReceiveLimit(messages: number): void {
    this.#hint = Math.max(this.#hint, messages);
    this.receiveLimit = Math.max(this.receiveLimit, messages);
    if (this.isStalled && !this.#isSlow) this.#stall(false);
  }

  /** Queues a message, even above the limit: its sender has been acknowledged already. */
  push(message: IncomingMessage): void {
    this.#waiting.push(message);
    this.#hold(message, 1);
    if (!this.isStalled && this.#isSlow) this.#stall(true);
    this.user.readable();
  }

  /** The oldest message, without removing it. */
  peek(): IncomingMessage | undefined {
    return this.#waiting[0];
  }

  /** Removes the oldest message; the caller releases it, and its memory counts until then. */
  take(): IncomingMessage | undefined {
    return this.#waiting.shift();
  }

  giveBack(message: IncomingMessage): void {
    this.#hold(message, -1);
    message.release();
    this.recheck();
  }

  /** The reader has read: ends the stall below the low threshold. */
  recheck(): void {
    if (this.isStalled && this.#isQuick) this.#stall(false);
    else if (!this.isStalled && this.user.keeps && this.#isSlow) this.#stall(true);
  }

  /** Empties the port when it is unbound; returns the unread messages. */
  clear(): readonly IncomingMessage[] {
    const unread = this.#waiting.splice(0);
    for (const message of unread) {
      this.#hold(message, -1);
      message.release();
    }
    if (this.isStalled) this.#stall(false);
    return unread;
  }

  sent(bytes: number): void {
    this.sending++;
    this.sendingBytes += bytes;
  }

  numbered(message: OutgoingMessage, connectionIndex: number): void {
    this.user.numbered?.(message, connectionIndex);
  }

  released(message: OutgoingMessage, isLost: boolean): void {
    this.sending--;
    this.sendingBytes -= message.length;
    this.user.released(message, isLost);
    this.#node.released();
  }

  /**
   * Are there too many unread messages, or bytes? One socket may hold as many bytes as are free for
   * all, so that any number of slow readers leave some.
   */
  get #isSlow(): boolean {
    const { parameters, receiveBytesFree } = this.#node;
    const percent = parameters.PendingRxPktsHWM;
    if (this.user.isCrowded) return true;
    const length = this.#waiting.length + (this.user.backlog ?? 0);
    const isMany = length >= (this.receiveLimit * percent) / 100 && length > this.#hint;
    return isMany || (length > 1 && this.#heldBytes >= (receiveBytesFree * percent) / 100);
  }

  /** Is the port below the threshold that ends a stall? */
  get #isQuick(): boolean {
    const { parameters, receiveBytesFree } = this.#node;
    const percent = parameters.DataRecvBufferLVM;
    if (this.user.isCrowded) return false;
    const length = this.#waiting.length + (this.user.backlog ?? 0);
    if (length === 0) return true;
    const isFew = length <= (this.receiveLimit * percent) / 100;
    return isFew && this.#heldBytes <= (receiveBytesFree * percent) / 100;
  }

  #hold({ memoryBytes }: IncomingMessage, sign: 1 | -1): void {
    const bytes = sign * memoryBytes;
    this.#heldBytes += bytes;
    this.#node.holds(bytes, sign);
  }

  #stall(isStalled: boolean): void {
    this.isStalled = isStalled;
    this.#node.stalled(this, isStalled);
  }
}
