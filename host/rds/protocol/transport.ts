/** Transport as the protocol uses it. The simulation has one, the verbs are another. */
import type { Endpoint } from '../../link/endpoint.js';
import type { RdsHeader } from '../wire/header.js';
import type { Bare } from '../wire/header-elision.js';
import type { OutgoingMessage, ReceivedPacket, SendBuffer } from './message.js';

export type { ReceivedPacket, SendBuffer };

/** A way to a peer: from which of the node's addresses (0: its first), to which of the peer's. */
export interface Route {
  readonly from: number;
  readonly to: Endpoint;
}

/** A connection keeps order and loses nothing until it breaks. Nothing comes of a closed one. */
export interface TransportConnection {
  /** SENDs that it takes at present; grows with `sent`. */
  readonly room: number;
  /** Headers are marked, since there are messages without. Set before anything is posted. */
  marksHeaders: boolean;
  /** The peer's transport has no receive request at present (RNR NAK). */
  readonly isPeerBusy?: boolean;
  /**
   * Has the message in memory that it can be sent from here, or brings it there; false: no
   * such memory is free at present.
   */
  hold(message: OutgoingMessage): boolean;
  /**
   * One fragment of a message: `length` bytes from `from` on. When its memory is no longer needed,
   * because it was sent or the connection is closed, `message.letGo()` is called; maybe not before
   * others were sent, too. `bare`: it goes without its header, or with its ports alone.
   */
  post(
    message: OutgoingMessage,
    header: RdsHeader,
    from: number,
    length: number,
    bare?: Bare,
  ): void;
  /**
   * A header, and few bytes that are copied: acknowledgements, control messages. `done` is called
   * when the peer has it, or the connection is closed.
   */
  postCopy(header: RdsHeader, payload: Uint8Array, done?: () => void): void;
  close(): void;
}

/** Receives the events of a connection. */
export interface TransportOwner {
  /** It can be sent to. `privateData`: what the peer's answer said; undefined: it asked. */
  up(now: number, connection: TransportConnection, answer: Uint8Array | undefined): void;
  received(now: number, connection: TransportConnection, packet: ReceivedPacket): void;
  /** The peer acknowledged messages: others can be sent. */
  sent(now: number, connection: TransportConnection): void;
  /** The connection ended or failed to connect. `isAbsent`: no node is at that address. */
  down(now: number, connection: TransportConnection, isAbsent: boolean): void;
}

export interface Transport {
  /** Asks for a connection: `up` or `down` is heard later, never before this returns. */
  connect(
    route: Route,
    connectionIndex: number,
    privateData: Uint8Array,
    owner: TransportOwner,
  ): TransportConnection;
  /**
   * Allocates memory for a message that is sent in fragments of `fragmentBytes` from that address;
   * undefined if none is free. `isUrgent` exempts the allocation from the limit.
   */
  allocate(
    length: number,
    fragmentBytes: number,
    from: number,
    isUrgent?: boolean,
  ): SendBuffer | undefined;
  /** By which of the node's addresses a peer is reached that was never met, where that is known. */
  homeOf?(peer: Endpoint): number | undefined;
  /** Reason if `auth` denied the last connection to that peer; else undefined. */
  denialOf?(peer: Endpoint): string | undefined;
  /** Bytes of receives that there may be; less when the device has no more. */
  readonly receiveBytesMax: number;
  /** 32 unpredictable bits. */
  random(): number;
}
