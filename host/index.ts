/// <reference types="node" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />
/** Verbena: RDMA verbs anywhere JavaScript runs. Everything that applications import. */
export * from './errors/errors.js';
export * from './verbs/enums.js';
export * from './verbs/constants.js';
export { flowLabelToUdpSport } from './verbs/queues/flow.js';
export * from './verbs/queries/strings.js';
export { forkInit, isForkInitialized } from './verbs/fork.js';
export { importDevice } from './verbs/domains/import.js';
export { getDeviceList, type DeviceEntry } from './verbs/queries/device-list.js';
export type { AsyncEventRecord, Context, CounterValues } from './verbs/context.js';
export { openDevice, type OpenOptions, type UdpOpenOptions } from './verbs/open-device.js';
export type { PortAttributes } from './verbs/queries/query-port.js';
export type { GidEntry } from './verbs/queries/query-tables.js';
export type {
  DeviceAttributes,
  DeviceAttributesEx,
  MrLayoutCaps,
} from './verbs/queries/query-device.js';
export type { PersistentMemory, PmemOptions } from './pmem/persistent-memory.js';
export type { Durability } from './pmem/place.js';
export type { DurableRange, DurableStore } from './device/durable/durable-store.js';
export { CrashStore, type CrashStoreOptions } from './pmem/crash-store.js';
export type { ProtectionDomain } from './verbs/domains/protection-domain.js';
export type { ImportedMemoryRegion } from './verbs/regions/imported-memory-region.js';
export type {
  MemoryRegion,
  RegionCounters,
  RegisterOptions,
} from './verbs/regions/memory-region.js';
export type { FastMemoryRegion, RegMr } from './verbs/regions/fast-memory-region.js';
export type { LayoutMemoryRegion, MrSetLayout } from './verbs/layouts/layout-memory-region.js';
export type {
  MrLayoutInterleaved,
  MrLayoutInterleavedDimension,
  StencilOptions,
} from './verbs/layouts/layout-list.js';
export { explainLayout, type KeyNames } from './verbs/layouts/explain-layout.js';
export * from './verbs/layouts/layouts.js';
export { incRkey } from './verbs/regions/key.js';
export type { BindMw, MemoryWindow, MwBind, MwBindInfo } from './verbs/regions/memory-window.js';
export type { NullMemoryRegion } from './verbs/regions/null-memory-region.js';
export type {
  CompCntrCaps,
  CompCntrInitAttributes,
  CompletionCounter,
} from './verbs/queues/completion-counter.js';
export type { CompletionQueue, WorkCompletion } from './verbs/queues/completion-queue.js';
export type { CompletionQueueEx, CqInitAttributesEx } from './verbs/queues/completion-queue-ex.js';
export type { AllocDmAttributes, DeviceMemory } from './verbs/regions/device-memory.js';
export type { DmaHandle, DmahInitAttributes } from './verbs/regions/dma-handle.js';
export type { ResourceType } from './verbs/queues/queue-memory.js';
export type { ParentDomain, ParentDomainInitAttributes } from './verbs/domains/parent-domain.js';
export type { ThreadDomain } from './verbs/domains/thread-domain.js';
export type { QpAttributes } from './verbs/queues/queue-pair-attributes.js';
export type { QpInitAttributesEx, QueuePairEx } from './verbs/queues/queue-pair-ex.js';
export type { MrInitAttributes, RegistrableBuffer } from './verbs/regions/registrable-buffer.js';
export type { AddressAttributes, AddressHandle } from './verbs/queues/address-handle.js';
export type { CompletionChannel } from './verbs/queues/completion-channel.js';
export type { QpInitAttributes, QueuePair } from './verbs/queues/queue-pair.js';
export type { QpCapabilities } from './verbs/queues/queue-pair-capabilities.js';
export type { PacketKeys } from './verbs/queues/packet-keys.js';
export type { AuthOptions } from './cm/auth-option.js';
export type { SharedReceiveQueue, SrqInitAttributes } from './verbs/queues/shared-receive-queue.js';
export type { ReceiveWorkRequest, SendWorkRequest, Sge } from './verbs/queues/work-request.js';
export { Endpoint, Gid } from './link/endpoint.js';
export type {
  Link,
  LinkInfo,
  LinkMemory,
  LinkReceiver,
  PacketBatch,
  SocketOption,
} from './link/link.js';
export { LoopbackNetwork, createLoopbackPair } from './link/loopback.js';
export type { LoopbackCounters, LoopbackOptions } from './link/loopback.js';
export { DataChannelLink, type DataChannelOptions } from './link/channel/data-channel.js';
export type { ChannelCounters } from './link/channel/channel-limits.js';
export type { PeerEvent, PeerEventKind } from './link/channel/channel-link.js';
export { BroadcastSignalling } from './link/signalling/broadcast.js';
export { HttpSignalling } from './link/signalling/http.js';
export {
  answerRequest,
  type AnswerOptions,
  type AnsweringLink,
} from './link/signalling/http-server.js';
export type { CandidateRule } from './link/signalling/candidates.js';
export type { SiteOptions } from './link/channel/http-site.js';
export type {
  Answerer,
  Signalling,
  SignallingListener,
  SignallingRoom,
} from './link/signalling/signalling.js';
export { WebSocketLink, type WebSocketOptions } from './link/channel/websocket.js';
export { acceptUpgrades, type UpgradeOptions } from './link/channel/websocket-server.js';
export { UdpLink, type UdpCounters } from './link/udp/udp.js';
export { UdpBatchLink, type UdpBatchCounters } from './link/udp/udp-batch.js';
export type { UdpOptions } from './link/udp/udp-options.js';
export { faultLink } from './link/faults/fault.js';
export type {
  FaultChances,
  FaultCounters,
  FaultLink,
  FaultOptions,
  Scheduler,
} from './link/faults/fault.js';
export { traceLink, type TraceOptions } from './link/capture/trace.js';
export { pcapFile, pcapLink, readPcap } from './link/capture/pcap.js';
export type { PcapCounters, PcapLink, PcapOptions, PcapSink } from './link/capture/pcap.js';
export type { Capture, ReadPcapOptions, SkipReason } from './link/capture/pcap-reader.js';
export { RealClock, VirtualClock, type CancelTimer, type Clock } from './device/clock.js';
export type { CacheCounters, CacheModelOptions } from './engine/cache-model.js';
export type { DeviceShare, ShareOptions } from './device/sharing/thread-share.js';
export * from './engine/explain.js';
export { createFmrPool, fmrPools } from './pool/create-fmr-pool.js';
export type { FmrPool, FmrPoolStats } from './pool/fmr-pool.js';
export type { FmrPoolUser, FmrPoolUserOptions, FmrPoolUserStats } from './pool/fmr-pool.js';
export type { FmrDesc } from './pool/fmr-desc.js';
export { regionsFor } from './pool/params.js';
export type { CheckedParams, FmrPoolEvent, FmrPoolParams, Workload } from './pool/params.js';
export * from './cm/enums.js';
export { createEventChannel } from './cm/event-channel.js';
export type {
  CmEvent,
  CmEventFields,
  ConnParam,
  EventChannel,
  UdParam,
} from './cm/event-channel.js';
export type { CmId } from './cm/cm-id.js';
export { RaiFlag, getaddrinfo } from './cm/address-info.js';
export type { AddressHints, AddressInfo } from './cm/address-info.js';
export { createEp } from './cm/create-ep.js';
export type { EndPoint, EpInitAttributes, JoinMcAttributes } from './cm/end-point.js';
export type { CmAddress } from './cm/address.js';
export type { CmOptions } from './cm/agreement.js';
export { ConnectError } from './cm/connect-error.js';
export { connect, listen } from './cm/connect.js';
export type {
  ConnectOptions,
  ConnectionsOptions,
  EndOptions,
  ListenOptions,
  RdmaConnection,
  RdmaListener,
  RdmaRequest,
  Target,
} from './cm/connect.js';
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
