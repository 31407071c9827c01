/** Reliable datagrams: what applications import as `rds`. */
export * from './wire/constants.js';
export { ACCESS_FILE } from './access.js';
export type { RdsParameters } from './protocol/config.js';
export type { RdsAddress } from './socket/address.js';
export type {
  RdmaArgs,
  RdmaDest,
  ReceivedControl,
  SendControl,
  ZcopyCookie,
} from './socket/control-message.js';
export { IoctlRequest, type InterfaceRequest } from './socket/ioctl.js';
export { RdmaFlag, RdmaStatus } from './protocol/rdma.js';
export { monitorBit } from './protocol/remote-ports.js';
export { DebugLevel, TraceLevel, type LogSink } from './protocol/trace.js';
export { RdsNode, type AddDeviceOptions, type RdsNodeOptions } from './node.js';
export {
  socket,
  type HeldMessage,
  type RdsSocket,
  type ReceivedMessage,
  type SendMessage,
} from './socket/socket.js';
export type { SocketListener } from './socket/listener-queue.js';
export type { RdsStatistics } from './protocol/statistics.js';
