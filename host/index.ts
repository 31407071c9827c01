/** Verbena: RDMA verbs anywhere JavaScript runs. Everything that applications import. */
export * from './errors/errors.js';
export * from './verbs/enums.js';
export { getDeviceList, type DeviceEntry } from './verbs/device-list.js';
export { openDevice, type Context } from './verbs/context.js';
export type {
  AsyncEventRecord,
  CounterValues,
  DeviceAttributes,
  OpenOptions,
  PortAttributes,
} from './verbs/context.js';
export type { ProtectionDomain } from './verbs/protection-domain.js';
export type { MemoryRegion, RegionCounters, RegisterOptions } from './verbs/memory-region.js';
export type { CompletionQueue, WorkCompletion } from './verbs/completion-queue.js';
export type { AddressAttributes, AddressHandle } from './verbs/address-handle.js';
export type { CompletionChannel } from './verbs/completion-channel.js';
export type {
  QpAttributes,
  QpCapabilities,
  QpInitAttributes,
  QueuePair,
} from './verbs/queue-pair.js';
export type { SharedReceiveQueue, SrqInitAttributes } from './verbs/shared-receive-queue.js';
export type { ReceiveWorkRequest, SendWorkRequest, Sge } from './verbs/work-request.js';
export { Endpoint, Gid } from './link/endpoint.js';
export type { Link, LinkInfo, LinkReceiver, PacketBatch } from './link/link.js';
export { LoopbackNetwork, createLoopbackPair } from './link/loopback.js';
export { UdpLink } from './link/udp.js';
export { faultLink } from './link/fault.js';
export { traceLink } from './link/trace.js';
export { pcapFile, pcapLink, readPcap } from './link/pcap.js';
export { RealClock, VirtualClock, type Clock } from './device/clock.js';
export * from './engine/explain.js';
export * from './cm/enums.js';
export { createEventChannel } from './cm/event-channel.js';
export type { CmEvent, ConnParam, EventChannel, UdParam } from './cm/event-channel.js';
export type { CmId } from './cm/cm-id.js';
export type { CmAddress } from './cm/address.js';
export type { CmOptions } from './cm/agreement.js';
export { ConnectError, connect, listen } from './cm/connect.js';
export type {
  ConnectOptions,
  EndOptions,
  ListenOptions,
  RdmaConnection,
  RdmaListener,
  RdmaRequest,
  Target,
} from './cm/connect.js';
