/** `verbena/dgram`: what `node:dgram` exports, with reliable datagrams below it (README). */
import { Socket, createSocket } from './socket.js';

export { Socket, createSocket };
export type { RdpSettings } from './settings.js';
export type { RdpSocketOptions } from './socket.js';
export type { Counters } from './totals.js';
export default { Socket, createSocket };
