/** Verbena: RDMA verbs anywhere JavaScript runs. Everything that applications import. */
export * from './errors/errors.js';
export * from './verbs/enums.js';
export { getDeviceList, type DeviceEntry } from './verbs/device-list.js';
export type { Context } from './verbs/context.js';
export { openDevice, type OpenOptions } from './verbs/open-device.js';
export type {
  AsyncEventRecord,
  CounterValues,
  DeviceAttributes,
  PortAttributes,
} from './verbs/context.js';
export type { ProtectionDomain } from './verbs/protection-domain.js';
export type { MemoryRegion, RegionCounters, RegisterOptions } from './verbs/memory-region.js';
export type { FastMemoryRegion, RegMr } from './verbs/fast-memory-region.js';
export { incRkey } from './verbs/memory-window.js';
export type { BindMw, MemoryWindow, MwBind, MwBindInfo } from './verbs/memory-window.js';
export type { NullMemoryRegion } from './verbs/null-memory-region.js';
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
export type { Link, LinkInfo, LinkMemory, LinkReceiver, PacketBatch } from './link/link.js';
export { LoopbackNetwork, createLoopbackPair } from './link/loopback.js';
export { UdpLink } from './link/udp.js';
export { UdpBatchLink } from './link/udp-batch.js';
export { faultLink } from './link/fault.js';
export { traceLink } from './link/trace.js';
export { pcapFile, pcapLink, readPcap } from './link/pcap.js';
export { RealClock, VirtualClock, type Clock } from './device/clock.js';
export * from './engine/explain.js';
