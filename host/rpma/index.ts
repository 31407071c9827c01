/** Remote persistent memory access: librpma's API, as the namespace `rpma` of the package. */
export * from './constants.js';
export { RpmaError, RpmaErrorCode, err2str, errorOf } from './errors.js';
export * from './gpspm.js';
export {
  LogLevel,
  LogThreshold,
  logGetThreshold,
  logSetFunction,
  logSetThreshold,
  type LogFunction,
} from './log.js';
export { ConnCfg, connCfgNew } from './conn-cfg.js';
export type { ConnReq } from './conn-req.js';
export type { Conn } from './conn.js';
export type { Cq } from './cq.js';
export type { Ep, EpOptions } from './ep.js';
export type { FlushMethod } from './flush.js';
export { mrRemoteFromDescriptor, type MrLocal, type MrRemote } from './mr.js';
export { PeerCfg, peerCfgFromDescriptor, peerCfgNew } from './peer-cfg.js';
export { peerNew, type Peer } from './peer.js';
export {
  LOG_HEADER_BYTES,
  ReplicatedLog,
  logEnd,
  logQueueSize,
  logRecordSize,
  newestLog,
  recoverLog,
  type LogOptions,
  type LogReplica,
  type RecoveredLog,
} from './replicated-log.js';
export { SrqCfg, srqCfgNew, type Srq } from './srq.js';
export { utilsGetIbvContext, utilsIbvContextIsOdpCapable, type Port } from './utils.js';
