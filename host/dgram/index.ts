/** `verbena/dgram`: what `node:dgram` exports, with reliable datagrams below it (README). */
import type { Socket as DgramSocket, SocketType } from 'node:dgram';
import * as made from './socket.js';
import type { MessageListener, RdpEvent, RdpSocketOptions } from './socket.js';
import type { Counters } from './totals.js';

export type { MessageListener } from './socket.js';

/** A socket of `node:dgram`, and how many of its datagrams went which way. */
export interface RdpSocket extends DgramSocket {
  readonly counters: Readonly<Counters>;
}

/** As `dgram.Socket`: use `createSocket`. */
export const Socket = made.Socket as unknown as new (
  options: RdpSocketOptions | SocketType,
  listener?: MessageListener,
) => RdpSocket;
export type Socket = RdpSocket;

/**
 * As `dgram.createSocket`, with `rdp` among the options. Throws what Node throws; MisuseError for
 * `rdp` and `VERBENA_DGRAM`.
 */
export function createSocket(
  options: RdpSocketOptions | SocketType,
  listener?: MessageListener,
): RdpSocket {
  return new Socket(options, listener);
}

export type { RdpOptions, RdpSettings } from './settings.js';
export type { Counters, RdpEvent, RdpSocketOptions };
export default { Socket, createSocket };
