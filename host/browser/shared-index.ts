/** Common exports of the public index and `verbena/browser`. */
export * from '../errors/errors.js';
export * from '../verbs/enums.js';
export * from '../verbs/constants.js';
export { flowLabelToUdpSport } from '../verbs/queues/flow.js';
export * from '../verbs/queries/strings.js';
export type { AsyncEventRecord, Context, CounterValues } from '../verbs/context.js';
export { openDevice } from '../verbs/open-device.js';
export type { PortAttributes } from '../verbs/queries/query-port.js';
export type { GidEntry } from '../verbs/queries/query-tables.js';
export type {
  DeviceAttributes,
  DeviceAttributesEx,
  MrLayoutCaps,
} from '../verbs/queries/query-device.js';
export type { PersistentMemory, PmemOptions } from '../pmem/persistent-memory.js';
export type { Durability } from '../pmem/place.js';
export type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
export type {
  MemoryRegion,
  RegionCounters,
  RegisterOptions,
} from '../verbs/regions/memory-region.js';
export type { FastMemoryRegion, RegMr } from '../verbs/regions/fast-memory-region.js';
export type { LayoutMemoryRegion, MrSetLayout } from '../verbs/layouts/layout-memory-region.js';
export { explainLayout, type KeyNames } from '../verbs/layouts/explain-layout.js';
export * from '../verbs/layouts/layouts.js';
export { incRkey } from '../verbs/regions/key.js';
export type { BindMw, MemoryWindow, MwBind, MwBindInfo } from '../verbs/regions/memory-window.js';
export type { CompletionQueue } from '../verbs/queues/completion-queue.js';
export type { WorkCompletion } from '../verbs/queues/work-completion.js';
export type { QpAttributes } from '../verbs/queues/queue-pair-attributes.js';
export type { AddressHandle } from '../verbs/queues/address-handle.js';
export type { AddressAttributes } from '../verbs/queues/address-attributes.js';
export type { CompletionChannel } from '../verbs/queues/completion-channel.js';
export type { PathState } from '../verbs/queues/path-state.js';
export type { QpInitAttributes, QueuePair } from '../verbs/queues/queue-pair.js';
export type { QpCapabilities } from '../verbs/queues/queue-pair-capabilities.js';
export type { PacketKeys } from '../verbs/queues/packet-keys.js';
export type { AuthOptions } from '../cm/auth-option.js';
export type {
  SharedReceiveQueue,
  SrqInitAttributes,
} from '../verbs/queues/shared-receive-queue.js';
export type {
  AtomicWriteRequest,
  BindMrRequest,
  BindMwRequest,
  CompareAndSwapRequest,
  FetchAndAddRequest,
  FlushRequest,
  LocalInvRequest,
  Opcode,
  ReadRequest,
  ReceiveWorkRequest,
  RegMrRequest,
  RemoteMemory,
  SendRequest,
  SendWithImmRequest,
  SendWithInvRequest,
  SendWorkRequest,
  WriteRequest,
  WriteWithImmRequest,
} from '../verbs/queues/work-request.js';
export type { Sge } from '../verbs/queues/sge.js';
export { Endpoint, Gid } from '../link/endpoint.js';
export type { Link, LinkInfo, LinkMemory, LinkReceiver, PacketBatch } from '../link/link.js';
export { LoopbackNetwork, createLoopbackPair } from '../link/loopback.js';
export { DataChannelLink, type DataChannelOptions } from '../link/channel/data-channel.js';
export type { IceServer } from '../link/rtc/connection.js';
export type { ChannelCounters } from '../link/channel/channel-limits.js';
export type { PeerEvent, PeerEventKind } from '../link/channel/channel-link.js';
export { BroadcastSignalling } from '../link/signalling/broadcast.js';
export { HttpSignalling } from '../link/signalling/http.js';
export type {
  Answerer,
  RoomEvents,
  Signalling,
  SignallingListener,
  SignallingRoom,
} from '../link/signalling/signalling.js';
export { WebSocketLink, type WebSocketOptions } from '../link/channel/websocket.js';
export { faultLink } from '../link/faults/fault.js';
export { traceLink } from '../link/capture/trace.js';
export { RealClock, VirtualClock, type Clock } from '../device/clock.js';
export type { CacheCounters, CacheModelOptions } from '../engine/cache-model.js';
export type { DeviceShare, ShareOptions } from '../device/sharing/thread-share.js';
export * from '../engine/explain.js';
export * from '../cm/enums.js';
export { createEventChannel } from '../cm/event-channel.js';
export type { CmEvent, EventChannel } from '../cm/event-channel.js';
export type { ConnParam } from '../cm/event-details.js';
export type { CmId } from '../cm/cm-id.js';
export { ConnectError } from '../cm/connect-error.js';
export { connect, listen } from '../cm/connect.js';
export type { RdmaUrl } from '../cm/url.js';
export type { WaitLimits } from '../base/wait-limits.js';
export type {
  AcceptOptions,
  ConnectOptions,
  ConnectionsOptions,
  Prepare,
  EndOptions,
  ListenOptions,
  RdmaConnection,
  RdmaListener,
  RdmaRequest,
  Target,
} from '../cm/connect.js';
