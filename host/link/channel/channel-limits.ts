/** Limits and counters of a link over messages. */

/** How much, of one peer unless it says otherwise. */
export interface ChannelLimits {
  /** Longest message that is sent; packets share one up to here. */
  readonly messageBytes: number;
  /** Longest message that is accepted. */
  readonly receiveBytes: number;
  /** Bytes of messages under way. */
  readonly windowBytes: number;
  /** Bytes of packets that wait for the window; what is beyond is dropped. */
  readonly queueBytes: number;
  /** If a channel buffers more than this, the link sends it nothing more. */
  readonly bufferedBytesMax: number;
  /** Peers of a link, those included that are still being connected. */
  readonly peersMax: number;
  /** How long a channel may take to open. */
  readonly openMillis: number;
  /** How long a peer whose connection got lost may take to come back by another one. */
  readonly returnMillis: number;
  /** While there are several connections to a peer: interval of the probes of each. */
  readonly askMillis: number;
}

/** Counters of a link over messages: packets, and where the name says so, messages. */
export interface ChannelCounters {
  sent: number;
  received: number;
  messagesSent: number;
  messagesReceived: number;
  /** Too long, or too many waited for the window or the rate of the peer. */
  dropped: number;
  /** Packets for an unknown address. */
  unroutable: number;
  /** Messages that waited for `peerBytesPerSecond`. */
  paced: number;
  /** Messages that the channel did not take. */
  refused: number;
  /** Invalid messages, and messages with incomplete packets. */
  malformed: number;
  /** How often nothing was seen for so long that all under way was taken for lost. */
  silences: number;
}
