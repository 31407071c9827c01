/** Verbena: RDMA verbs anywhere JavaScript runs. Everything that applications import. */
export * from './errors/errors.js';
export * from './verbs/enums.js';
export { openDevice, type Context } from './verbs/context.js';
export type {
  AsyncEventRecord,
  CounterValues,
  DeviceAttributes,
  OpenOptions,
} from './verbs/context.js';
export type { ProtectionDomain } from './verbs/protection-domain.js';
export type { MemoryRegion, RegisterOptions } from './verbs/memory-region.js';
export type { CompletionQueue, WorkCompletion } from './verbs/completion-queue.js';
export type {
  AddressAttributes,
  QpAttributes,
  QpCapabilities,
  QpInitAttributes,
  QueuePair,
  ReceiveWorkRequest,
  SendWorkRequest,
  Sge,
} from './verbs/queue-pair.js';
export { Endpoint, Gid } from './link/endpoint.js';
export type { Link, LinkInfo, LinkReceiver, PacketBatch } from './link/link.js';
export { LoopbackNetwork, createLoopbackPair } from './link/loopback.js';
export { UdpLink } from './link/udp.js';
export { faultLink } from './link/fault.js';
export { traceLink } from './link/trace.js';
export { pcapFile, pcapLink, readPcap } from './link/pcap.js';
export { RealClock, VirtualClock, type Clock } from './device/clock.js';
export * from './engine/explain.js';
