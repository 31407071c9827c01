/** Reliable datagrams: what applications import as `rds`. */
export * from './constants.js';
export { ACCESS_FILE } from './access.js';
export type { RdsParameters } from './config.js';
export type { RdsAddress } from './address.js';
export type {
  RdmaArgs,
  RdmaDest,
  ReceivedControl,
  SendControl,
  ZcopyCookie,
} from './control-message.js';
export { IoctlRequest, type InterfaceRequest } from './ioctl.js';
export { RdmaFlag, RdmaStatus } from './rdma.js';
export { monitorBit } from './remote-ports.js';
export { DebugLevel, TraceLevel, type LogSink } from './trace.js';
export { RdsNode, type RdsNodeOptions } from './node.js';
export {
  socket,
  type HeldMessage,
  type RdsSocket,
  type ReceivedMessage,
  type SendMessage,
} from './socket.js';
export type { SocketListener } from './herald.js';
export type { RdsStatistics } from './statistics.js';
