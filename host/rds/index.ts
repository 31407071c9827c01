/** Reliable datagrams: what applications import as `rds`. */
export * from './constants.js';
export type { RdsParameters } from './config.js';
export { RdsNode, type RdsNodeOptions } from './node.js';
export {
  socket,
  type RdsAddress,
  type RdsSocket,
  type ReceivedMessage,
  type SendMessage,
  type SocketListener,
} from './socket.js';
export type { RdsStatistics } from './statistics.js';
