/// <reference types="node" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />
/** Verbena: RDMA verbs anywhere JavaScript runs. Everything that applications import. */
export * from './errors/errors.js';
export * from './verbs/enums.js';
export * from './verbs/constants.js';
export { flowLabelToUdpSport } from './verbs/flow.js';
export * from './verbs/strings.js';
export { forkInit, isForkInitialized } from './verbs/fork.js';
export { importDevice } from './verbs/import.js';
export { getDeviceList, type DeviceEntry } from './verbs/device-list.js';
export type { AsyncEventRecord, Context, CounterValues } from './verbs/context.js';
export { openDevice, type OpenOptions, type UdpOpenOptions } from './verbs/open-device.js';
export type { PortAttributes } from './verbs/queries.js';
export type { GidEntry } from './verbs/query-tables.js';
export type { DeviceAttributes, DeviceAttributesEx, MrLayoutCaps } from './verbs/query-device.js';
export type { PersistentMemory, PmemOptions } from './pmem/persistent-memory.js';
export type { Durability } from './pmem/place.js';
export type { DurableRange, DurableStore } from './device/durable-store.js';
export { CrashStore, type CrashStoreOptions } from './pmem/crash-store.js';
export type { ProtectionDomain } from './verbs/protection-domain.js';
export type { ImportedMemoryRegion } from './verbs/imported-memory-region.js';
export type { MemoryRegion, RegionCounters, RegisterOptions } from './verbs/memory-region.js';
export type { FastMemoryRegion, RegMr } from './verbs/fast-memory-region.js';
export type { LayoutMemoryRegion, MrSetLayout } from './verbs/layout-memory-region.js';
export type {
  MrLayoutInterleaved,
  MrLayoutInterleavedDimension,
  StencilOptions,
} from './verbs/layout-list.js';
export { explainLayout, type KeyNames } from './verbs/explain-layout.js';
export * from './verbs/layouts.js';
export { incRkey } from './verbs/key.js';
export type { BindMw, MemoryWindow, MwBind, MwBindInfo } from './verbs/memory-window.js';
export type { NullMemoryRegion } from './verbs/null-memory-region.js';
export type {
  CompCntrCaps,
  CompCntrInitAttributes,
  CompletionCounter,
} from './verbs/completion-counter.js';
export type { CompletionQueue, WorkCompletion } from './verbs/completion-queue.js';
export type { CompletionQueueEx, CqInitAttributesEx } from './verbs/completion-queue-ex.js';
export type { AllocDmAttributes, DeviceMemory } from './verbs/device-memory.js';
export type { DmaHandle, DmahInitAttributes } from './verbs/dma-handle.js';
export type { ResourceType } from './verbs/queue-memory.js';
export type { ParentDomain, ParentDomainInitAttributes } from './verbs/parent-domain.js';
export type { ThreadDomain } from './verbs/thread-domain.js';
export type { QpAttributes } from './verbs/queue-pair-attributes.js';
export type { QpInitAttributesEx, QueuePairEx } from './verbs/queue-pair-ex.js';
export type { MrInitAttributes, RegistrableBuffer } from './verbs/registrable-buffer.js';
export type { AddressAttributes, AddressHandle } from './verbs/address-handle.js';
export type { CompletionChannel } from './verbs/completion-channel.js';
export type { QpInitAttributes, QueuePair } from './verbs/queue-pair.js';
export type { QpCapabilities } from './verbs/queue-pair-capabilities.js';
export type { PacketKeys } from './verbs/packet-keys.js';
export type { AuthOptions } from './cm/auth-option.js';
export type { SharedReceiveQueue, SrqInitAttributes } from './verbs/shared-receive-queue.js';
export type { ReceiveWorkRequest, SendWorkRequest, Sge } from './verbs/work-request.js';
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
export { DataChannelLink, type DataChannelOptions } from './link/data-channel.js';
export type { ChannelCounters } from './link/channel-limits.js';
export type { PeerEvent, PeerEventKind } from './link/channel-link.js';
export { BroadcastSignalling } from './link/signalling/broadcast.js';
export { HttpSignalling } from './link/signalling/http.js';
export {
  answerRequest,
  type AnswerOptions,
  type AnsweringLink,
} from './link/signalling/http-server.js';
export type { CandidateRule } from './link/signalling/candidates.js';
export type { SiteOptions } from './link/http-site.js';
export type {
  Answerer,
  Signalling,
  SignallingListener,
  SignallingRoom,
} from './link/signalling/signalling.js';
export { WebSocketLink, type WebSocketOptions } from './link/websocket.js';
export { acceptUpgrades, type UpgradeOptions } from './link/websocket-server.js';
export { UdpLink, type UdpCounters } from './link/udp.js';
export { UdpBatchLink, type UdpBatchCounters } from './link/udp-batch.js';
export type { UdpOptions } from './link/udp-options.js';
export { faultLink } from './link/fault.js';
export type {
  FaultChances,
  FaultCounters,
  FaultLink,
  FaultOptions,
  Scheduler,
} from './link/fault.js';
export { traceLink, type TraceOptions } from './link/trace.js';
export { pcapFile, pcapLink, readPcap } from './link/pcap.js';
export type { PcapCounters, PcapLink, PcapOptions, PcapSink } from './link/pcap.js';
export type { Capture, ReadPcapOptions, SkipReason } from './link/pcap-reader.js';
export { RealClock, VirtualClock, type CancelTimer, type Clock } from './device/clock.js';
export type { CacheCounters, CacheModelOptions } from './engine/cache-model.js';
export type { DeviceShare, ShareOptions } from './device/thread-share.js';
export * from './engine/explain.js';
export { createFmrPool, fmrPools } from './pool/create-fmr-pool.js';
export type { FmrPool, FmrPoolStats } from './pool/fmr-pool.js';
export type { FmrPoolUser, FmrPoolUserOptions, FmrPoolUserStats } from './pool/fmr-pool-user.js';
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
