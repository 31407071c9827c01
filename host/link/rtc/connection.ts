/**
 * A WebRTC connection as a link needs it: one data channel that neither orders nor repeats. Both
 * sides make the channel themselves (negotiated, number 0), so that each has it before there is a
 * connection: a page can hand it to a Worker only in the task that made it.
 */
import type { DatagramChannel } from '../channel/datagram-channel.js';
import type { Gid } from '../endpoint.js';

/** Between two links. */
export const CONNECTIONS_MAX = 8;

/** Session description of one side with all its candidates: one exchange, no trickle ICE. */
export interface Description {
  readonly type: 'offer' | 'answer';
  readonly sdp: string;
  /** The same of other connections between the two, at most CONNECTIONS_MAX with this one. */
  readonly more?: readonly string[];
}

/** ICE restart: a connection is led over another way, and its channel lives on. */
export interface RtcRestart {
  /** An offer for the peer; `accept` takes its answer. May be called again at any time. */
  offer(): Promise<Description>;
  /**
   * The answer to a peer's offer; a pending local offer is withdrawn. Rejects with LinkError
   * EPROTO.
   */
  answer(offer: Description): Promise<Description>;
}

/** A connection that is being made. */
export interface RtcConnection {
  /** For the other side. */
  readonly description: Description;
  /** Closing it ends the connection as well. */
  readonly channel: DatagramChannel;
  /** Accepts the peer's answer to the local offer. Rejects with LinkError EPROTO. */
  accept(answer: Description): Promise<void>;
  /** Absent where the library has none: then a new connection takes the place of this one. */
  readonly restart?: RtcRestart;
}

/** A STUN or TURN server with credentials, as RTCIceServer has it. */
export interface IceServer {
  /** `stun:host:port`, `turn:host:port`, `turns:host:port?transport=tcp`. */
  readonly urls: string | readonly string[];
  readonly username?: string;
  readonly credential?: string;
}

/** Options of an RTCPeerConnection. */
export interface RtcOptions {
  /**
   * STUN and TURN servers, `stun:host:port`, or with credentials. Default none: peers of one network
   * need none.
   */
  readonly iceServers?: readonly (string | IceServer)[];
  /** `relay`: only by a TURN server of `iceServers`; peers see its address alone. Default `all`. */
  readonly iceTransportPolicy?: 'all' | 'relay';
  /**
   * The channel orders and repeats by itself, on both sides. A bulk transfer costs a third less
   * processor time, since packets share messages of 16 to 32 KiB; a lost datagram holds up all
   * packets behind it. Default false.
   */
  readonly reliable?: boolean;
}

/** Keys of RtcOptions. */
export const RTC_OPTIONS = 'iceServers iceTransportPolicy reliable';

/** Makes connections that all have one certificate, which is the link's address. */
export interface RtcConnector {
  /** Rejects with LinkError EOPNOTSUPP where there is no WebRTC, and says what is missing. */
  address(): Promise<Gid>;
  offer(): Promise<RtcConnection>;
  /** Rejects with LinkError EPROTO for an invalid offer. */
  answer(offer: Description): Promise<RtcConnection>;
}

export const NETWORK_GONE = 'the network between the two is gone (ICE failed)';
export const CHANNEL_LABEL = 'verbena';
const NEGOTIATED = { negotiated: true, id: 0 } as const;

/** In W3C's names. */
export function channelOptions({ reliable = false }: RtcOptions): {
  readonly negotiated: true;
  readonly id: number;
  readonly ordered: boolean;
  readonly maxRetransmits?: number;
} {
  return reliable
    ? { ...NEGOTIATED, ordered: true }
    : { ...NEGOTIATED, ordered: false, maxRetransmits: 0 };
}
/** Candidates that have not been found by then are done without. */
export const ICE_GATHERING_MILLIS_MAX = 2000;
