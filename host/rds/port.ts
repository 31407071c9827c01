/** A bound port: what waits for its reader, and what it has on its way. */
import type { RdsParameters } from './config.js';
import type { IncomingMessage, MessageOwner, OutgoingMessage } from './message.js';

/** Who reads and writes at a port. */
export interface PortUser {
  /** Something waits that did not. */
  readable(): void;
  /** What was refused may be worth another try. */
  writable(): void;
  /** A message was received by the other node, or is lost. */
  released(message: OutgoingMessage, isLost: boolean): void;
}

export interface PortNode {
  readonly parameters: RdsParameters;
  /** The reader is slow, or no longer: senders are told. */
  stalled(port: Port, isStalled: boolean): void;
  /** Memory of a message came back. */
  released(): void;
}

/** Bytes on their way, where nobody said otherwise (SO_SNDBUF). */
const SEND_BYTES_DEFAULT = 8 << 20;

export class Port implements MessageOwner {
  readonly number: number;
  readonly user: PortUser;
  isStalled = false;
  /** SO_RCVBUF raises it: messages that may wait. */
  receiveLimit: number;
  sendBytesLimit = SEND_BYTES_DEFAULT;
  /** Messages on their way, and their bytes. */
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

  /** Is there a send buffer for so many bytes? Any message goes when there is no other. */
  hasRoomFor(bytes: number): boolean {
    if (this.sending === 0) return true;
    const { MaxDataSendBuffers } = this.#node.parameters;
    return this.sending < MaxDataSendBuffers && this.sendingBytes + bytes <= this.sendBytesLimit;
  }

  /** A message came in. It is taken whatever the threshold: its sender was told that it went. */
  push(message: IncomingMessage): void {
    this.#waiting.push(message);
    const stallAt = (this.receiveLimit * this.#node.parameters.PendingRxPktsHWM) / 100;
    if (!this.isStalled && this.#waiting.length >= stallAt) this.#stall(true);
    this.user.readable();
  }

  /** The oldest message, which stays. */
  peek(): IncomingMessage | undefined {
    return this.#waiting[0];
  }

  /** The oldest message, which is the caller's to release. */
  shift(): IncomingMessage | undefined {
    const message = this.#waiting.shift();
    const unstallAt = (this.receiveLimit * this.#node.parameters.DataRecvBufferLVM) / 100;
    if (this.isStalled && this.#waiting.length <= unstallAt) this.#stall(false);
    return message;
  }

  /** The port is no longer bound: what nobody read is gone. Returns how many messages. */
  clear(): number {
    const count = this.#waiting.length;
    for (const message of this.#waiting.splice(0)) message.release();
    if (this.isStalled) this.#stall(false);
    return count;
  }

  sent(bytes: number): void {
    this.sending++;
    this.sendingBytes += bytes;
  }

  released(message: OutgoingMessage, isLost: boolean): void {
    this.sending--;
    this.sendingBytes -= message.length;
    this.user.released(message, isLost);
    this.#node.released();
  }

  #stall(isStalled: boolean): void {
    this.isStalled = isStalled;
    this.#node.stalled(this, isStalled);
  }
}
