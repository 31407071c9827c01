/// <reference types="node" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />
/** Verbena: RDMA verbs anywhere JavaScript runs. Everything that applications import. */
export * from './browser/shared-index.js';
export { forkInit, isForkInitialized } from './verbs/fork.js';
export { importDevice } from './verbs/domains/import.js';
export { getDeviceList, type DeviceEntry } from './verbs/queries/device-list.js';
export type { OpenOptions, UdpOpenOptions } from './verbs/open-device.js';
export type { DurableRange, DurableStore } from './device/durable/durable-store.js';
export { CrashStore, type CrashStoreOptions } from './pmem/crash-store.js';
export type { ImportedMemoryRegion } from './verbs/regions/imported-memory-region.js';
export type {
  MrLayoutInterleaved,
  MrLayoutInterleavedDimension,
  LayoutOptions,
} from './verbs/layouts/layout-list.js';
export type { NullMemoryRegion } from './verbs/regions/null-memory-region.js';
export type {
  CompCntrCaps,
  CompCntrInitAttributes,
  CompletionCounter,
} from './verbs/queues/completion-counter.js';
export type { CompletionQueueEx, CqInitAttributesEx } from './verbs/queues/completion-queue-ex.js';
export type { AllocDmAttributes, DeviceMemory } from './verbs/regions/device-memory.js';
export type { DmaHandle, DmahInitAttributes } from './verbs/regions/dma-handle.js';
export type { ResourceType } from './verbs/queues/queue-memory.js';
export type { DomainUser, NamedDomain, PublishOptions } from './verbs/domains/named-domain.js';
export type { ParentDomain, ParentDomainInitAttributes } from './verbs/domains/parent-domain.js';
export type { ThreadDomain } from './verbs/domains/thread-domain.js';
export type { QpInitAttributesEx, QueuePairEx } from './verbs/queues/queue-pair-ex.js';
export type {
  DomainHeap,
  HeapAllocOptions,
  HeapLack,
  HeapOptions,
} from './verbs/heap/domain-heap.js';
export type { HeapProcessUsage, HeapUsage } from './verbs/heap/heap-usage.js';
export type { Root, RootOptions, Roots } from './verbs/domains/roots.js';
export type { MrInitAttributes, RegistrableBuffer } from './verbs/regions/registrable-buffer.js';
export type { SocketOption } from './link/link.js';
export type { LoopbackCounters, LoopbackOptions } from './link/loopback.js';
export {
  answerRequest,
  type AnswerOptions,
  type AnsweringLink,
} from './link/signalling/http-server.js';
export type { CandidateRule } from './link/signalling/candidates.js';
export type { SiteOptions } from './link/channel/http-site.js';
export { acceptUpgrades, type UpgradeOptions } from './link/channel/websocket-server.js';
export { UdpLink, type UdpCounters } from './link/udp/udp.js';
export { UdpBatchLink, type UdpBatchCounters } from './link/udp/udp-batch.js';
export type { UdpOptions } from './link/udp/udp-options.js';
export type {
  FaultChances,
  FaultCounters,
  FaultLink,
  FaultOptions,
  Scheduler,
} from './link/faults/fault.js';
export type { TraceOptions } from './link/capture/trace.js';
export { pcapFile, pcapLink, readPcap } from './link/capture/pcap.js';
export type {
  PacketComment,
  PcapCounters,
  PcapLink,
  PcapOptions,
  PcapSink,
} from './link/capture/pcap.js';
export type { Capture, ReadPcapOptions, SkipReason } from './link/capture/pcap-reader.js';
export type { CancelTimer } from './device/clock.js';
export { createFmrPool, fmrPools } from './pool/create-fmr-pool.js';
export type { FmrPool } from './pool/fmr-pool.js';
export type { FmrPoolUser, FmrPoolUserOptions, FmrPoolUserStats } from './pool/fmr-pool.js';
export type { FmrDesc } from './pool/fmr-desc.js';
export { measureLink } from './pool/measure-link.js';
export type { LinkProbe, LinkSpeed } from './pool/measure-link.js';
export { regionsFor } from './pool/params.js';
export type {
  CheckedParams,
  FmrPoolEvent,
  FmrPoolParams,
  FmrPoolStats,
  Workload,
} from './pool/params.js';
export type { CmEventFields } from './cm/event-channel.js';
export type { UdParam } from './cm/event-details.js';
export { RaiFlag, getaddrinfo } from './cm/address-info.js';
export type { AddressHints, AddressInfo } from './cm/address-info.js';
export { createEp } from './cm/create-ep.js';
export type { EndPoint, EpInitAttributes, JoinMcAttributes } from './cm/end-point.js';
export type { CmAddress } from './cm/address.js';
export type { CmOptions } from './cm/agreement.js';
export * from './remote/index.js';
// By name, as there is a `connect` of verbs, too.
export { connect } from './remote/index.js';
export * as rpma from './rpma/index.js';
export { NvmeTarget } from './nvme/target.js';
export type { IoCounters as NvmeIoCounters } from './nvme/io.js';
export type { NvmeTargetEvent, NvmeTargetOptions, NvmeTargetStats } from './nvme/target-options.js';
export { RamStore as NvmeRamStore, type NvmeStore, type StoreRequest } from './nvme/store.js';
export { nvmeResponseTimes, type NvmeMedium } from './nvme/response-times.js';
export { FileStore as NvmeFileStore } from './nvme/file-store.js';
export { PmemStore as NvmePmemStore } from './nvme/pmem-store.js';
export { NvmeStatus, nvmeStatusName } from './nvme/constants.js';
export { connectNvme, discoverNvme } from './nvme/connect-nvme.js';
export type { ConnectNvmeOptions, NvmeDiscovered, NvmeHostOptions } from './nvme/connect-nvme.js';
export type { NvmeVolume, NvmeVolumeEvent, NvmeVolumeStats } from './nvme/volume.js';
export { NvmeError } from './nvme/nvme-error.js';
export { makeDhchapSecret, type DhchapHash } from './nvme/dhchap-secret.js';
export type { DhchapGroup } from './nvme/dhchap-group.js';
export type { DhchapSecrets, NvmeHostDhchap, NvmeTargetDhchap } from './nvme/dhchap-options.js';
export * as rds from './rds/index.js';
