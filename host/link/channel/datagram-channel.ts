/**
 * A channel carries messages to one peer and back, complete or not at all, in any order: an
 * RTCDataChannel, its equivalent in Node, a MessagePort to a page that has one, a WebSocket.
 */

/** Events of a channel for its owner. The first one occurs after `start` has returned. */
export interface ChannelReceiver {
  /** It can send now. */
  opened(): void;
  /** `bytes` is only valid during the call, and hostile. `connection`: by which one of a bundle. */
  message(bytes: Uint8Array, connection?: DatagramChannel): void;
  /** Nothing travels at the moment; or it does again. */
  interrupted(isInterrupted: boolean): void;
  /**
   * The channel has ended; no event follows. Not called after `close`. `isLost`: the network
   * failed, the peer did not close; another connection may reach the same peer.
   */
  closed(reason: string, isLost: boolean): void;
}

/** A way for datagrams to one peer. */
export interface DatagramChannel {
  /** Bytes that were sent and still wait in this process. */
  readonly bufferedBytes: number;
  /** Of a bundle: its channels that carry now, another list after each change, and never empty. */
  readonly connections?: readonly DatagramChannel[];
  /** To be called once. What came before waits until then. */
  start(receiver: ChannelReceiver): void;
  /** Copies. False: it was not taken, and is lost. Never throws. `message`: not shared memory. */
  send(message: Uint8Array): boolean;
  /** Does nothing the second time. */
  close(): void;
}
