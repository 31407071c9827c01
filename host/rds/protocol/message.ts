/** Outgoing and incoming messages. */
import { giveBuffer, takeBuffer } from '../../base/buffer-pool.js';
import { checkArray } from '../../base/options.js';
import { checkBytes } from '../../errors/check-bytes.js';
import { copyBytes, copyPieces } from '../../link/copy-bytes.js';
import type { Endpoint } from '../../link/endpoint.js';
import { HEADER_BYTES, HeaderFlag } from '../wire/constants.js';
import { noExtensions, type Extensions, type RdsHeader } from '../wire/header.js';
import { RdmaStatus, type RdmaOperation } from './rdma.js';

/** Memory of an outgoing message, with room for its headers. */
export interface SendBuffer {
  /** The message. */
  readonly payload: Uint8Array;
  free(): void;
}

/** A received SEND in its receive buffer. */
export interface ReceivedPacket {
  readonly bytes: Uint8Array;
  /** Payload behind the header, if the caller has one already. */
  readonly behind?: Uint8Array;
  /** Immediate data of the SEND. */
  readonly immData?: number | undefined;
  /** View of `bytes`, if the caller has one already. */
  readonly view?: DataView;
  /** Bytes of the receive buffer. */
  readonly memoryBytes: number;
  /** Returns the receive to its pool. Call it once. */
  release(): void;
}

const NO_MEMORY: SendBuffer = { payload: new Uint8Array(0), free: () => {} };

export interface MessageOwner {
  /** The message got its number on a connection, and is about to be sent. */
  numbered?(message: OutgoingMessage, connectionIndex: number): void;
  /** The message's memory is free: the peer received the message, or it is lost. */
  released(message: OutgoingMessage, isLost: boolean): void;
}

export class OutgoingMessage {
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly length: number;
  extensions: Extensions = noExtensions();
  /** RDMA operation that precedes the message once. */
  operation: RdmaOperation | undefined;
  /** 0 until the first transmission. */
  sequence = 0;
  isRetransmitted = false;
  /** Fragments posted to a connection, and fragments that it still needs. */
  posted = 0;
  held = 0;
  /** Canceled by its sender: `released` reports it as lost. */
  isCanceled = false;
  /** The canceled message whose number this one has. */
  #replaced: OutgoingMessage | undefined;
  #isDone = false;
  #isLost = false;

  constructor(
    readonly owner: MessageOwner | undefined,
    ports: { readonly source: number; readonly destination: number },
    public buffer: SendBuffer,
    readonly flags: number = 0,
  ) {
    this.sourcePort = ports.source;
    this.destinationPort = ports.destination;
    this.length = buffer.payload.length;
  }

  /** False for a canceled message. */
  get isThere(): boolean {
    return (this.flags & HeaderFlag.CANCELED) === 0;
  }

  /** Number of SENDs of `fragmentBytes` each. */
  fragments(fragmentBytes: number): number {
    return Math.max(1, Math.ceil(this.length / fragmentBytes));
  }

  /** Header in front of each fragment. */
  header(flags: number, ack: number): RdsHeader {
    const { sequence, length, sourcePort, destinationPort, extensions } = this;
    return { sequence, ack, length, sourcePort, destinationPort, flags, credit: 0, extensions };
  }

  /** A sequence number without a message: the process that sent it has died. */
  static gap(sequence: number): OutgoingMessage {
    const ports = { source: 0, destination: 0 };
    const gap = new OutgoingMessage(undefined, ports, NO_MEMORY, HeaderFlag.CANCELED);
    gap.sequence = sequence;
    gap.isRetransmitted = true;
    return gap;
  }

  /** The gap that replaces a canceled message: the same number without bytes. */
  withdrawn(): OutgoingMessage {
    const ports = { source: this.sourcePort, destination: this.destinationPort };
    const gap = new OutgoingMessage(undefined, ports, NO_MEMORY, HeaderFlag.CANCELED);
    gap.sequence = this.sequence;
    gap.extensions = this.extensions;
    gap.isRetransmitted = this.isRetransmitted;
    gap.posted = this.posted > 0 ? 1 : 0;
    gap.#replaced = this;
    return gap;
  }

  /**
   * The peer has acknowledged the message, so it has received each of its SENDs. The peer drops
   * duplicates. Completions are not awaited, since most SENDs are unsignalled. Exception:
   * a retransmission can still be unsent here if the peer received the first transmission.
   */
  acknowledged(): void {
    if (!this.isRetransmitted) this.held = 0;
    this.done(false);
    this.#replaced?.acknowledgedAsAnother();
  }

  /** The peer acknowledged the gap that replaced this message. */
  acknowledgedAsAnother(): void {
    if (!this.isRetransmitted) this.held = 0;
    this.#release();
  }

  /** Ends the message; its memory is released after its last SEND completes. */
  done(isLost: boolean): void {
    this.#isDone = true;
    this.#isLost = isLost;
    if (isLost && this.operation && !this.operation.isPosted) {
      this.operation.end(this.isCanceled ? RdmaStatus.CANCELED : RdmaStatus.DROPPED);
    }
    this.#release();
  }

  /** Moves the message to other memory; no connection uses the old one. */
  moveTo(buffer: SendBuffer): void {
    buffer.payload.set(this.buffer.payload);
    this.buffer.free();
    this.buffer = buffer;
  }

  /** A connection has released one fragment. */
  letGo(_isSent?: boolean): void {
    this.held--;
    this.#release();
  }

  #release(): void {
    if (!this.#isDone || this.held > 0) return;
    this.#isDone = false;
    this.buffer.free();
    this.owner?.released(this, this.#isLost);
  }
}

/** Messages of an ended transport connection, for the next one, in order. */
export function toSendAgain(messages: readonly OutgoingMessage[]): OutgoingMessage[] {
  return messages.filter((message) => {
    if (message.posted > 0) message.isRetransmitted = true;
    message.posted = 0;
    // A new connection begins with a new map.
    const isMap = (message.flags & HeaderFlag.CONG_BITMAP) !== 0;
    if (isMap) message.done(false);
    return !isMap;
  });
}

/** Called when the reorder buffer keeps the message with that sequence number. */
type Kept = (now: number, sequence: number) => void;
const ignoreKept: Kept = () => {};

/** A received message in its receive buffers; its reader must release it. */
export class IncomingMessage {
  /** Bytes of the receives that the message occupies. */
  readonly memoryBytes: number;
  readonly #packets: readonly ReceivedPacket[];
  /** Bytes in front of the payload in each receive. */
  readonly #start: number;
  readonly #kept: Kept;
  /** Connection of the message; undefined for a message within the node. */
  readonly connectionIndex: number | undefined;

  constructor(
    readonly from: Endpoint,
    readonly header: RdsHeader,
    packets: readonly ReceivedPacket[],
    kept: Kept = ignoreKept,
    connectionIndex?: number,
    start = HEADER_BYTES,
  ) {
    this.#packets = packets;
    this.#kept = kept;
    this.connectionIndex = connectionIndex;
    this.#start = start;
    let bytes = 0;
    for (const { memoryBytes } of packets) bytes += memoryBytes;
    this.memoryBytes = bytes;
  }

  get length(): number {
    return this.header.length;
  }

  /** The message survives a death of this process, or is dropped; called once. */
  kept(now: number): void {
    this.#kept(now, this.header.sequence);
  }

  /** Copies as much as fits into `target`; returns the number of bytes. */
  copy(target: Uint8Array): number {
    let at = 0;
    for (const { bytes, behind } of this.#packets) {
      const isBehind = this.#start === HEADER_BYTES && behind !== undefined;
      let part = isBehind ? behind : bytes.subarray(this.#start);
      if (part.length > target.length - at) part = part.subarray(0, target.length - at);
      copyBytes(target, part, at);
      at += part.length;
    }
    return at;
  }

  /** Views of the payload, in order. */
  pieces(): Uint8Array[] {
    return this.#packets.map(({ bytes }) => bytes.subarray(this.#start));
  }

  /** Returns a copy of the whole message. */
  bytes(): Uint8Array {
    const bytes = new Uint8Array(this.length);
    this.copy(bytes);
    return bytes;
  }

  release(): void {
    for (const packet of this.#packets) packet.release();
  }
}

/** A message from one socket of a node to another. */
export function localMessage(
  local: Endpoint,
  [sourcePort, destinationPort]: [number, number],
  pieces: readonly Uint8Array[],
  sequence: number,
  kept: () => void,
  extensions: Extensions = noExtensions(),
): IncomingMessage {
  const length = lengthOf(pieces);
  const bytes = takeBuffer(HEADER_BYTES + length);
  copyPieces(pieces, bytes.subarray(HEADER_BYTES));
  const header = { sequence, ack: 0, length, sourcePort, destinationPort, flags: 0, credit: 0 };
  let isHeld = true;
  const release = (): void => {
    if (isHeld) giveBuffer(bytes);
    isHeld = false;
  };
  const packet = { bytes, memoryBytes: bytes.buffer.byteLength, release };
  return new IncomingMessage(local, { ...header, extensions }, [packet], kept);
}

/** Total length of the pieces. Throws MisuseError for what is no bytes. */
export function lengthOf(pieces: readonly Uint8Array[]): number {
  checkArray('iov', pieces, 'Uint8Array');
  let length = 0;
  for (const piece of pieces) {
    checkBytes('iov', piece);
    length += piece.length;
  }
  return length;
}

/** A pair of ports as one number. */
export function flowOf({ sourcePort, destinationPort }: OutgoingMessage | RdsHeader): number {
  return sourcePort * 65536 + destinationPort;
}
