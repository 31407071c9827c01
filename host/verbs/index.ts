/// <reference types="node" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />
/**
 * `verbena/verbs`: devices and verbs alone. `verbena` exports the same objects, and the libraries
 * above them; a process without them starts in less time.
 */
export * from '../errors/errors.js';
export * from './enums.js';
export * from './constants.js';
export * from './layouts/layouts.js';
export * from './queries/strings.js';
export { importDevice } from './domains/import.js';
export { explainLayout } from './layouts/explain-layout.js';
export { openDevice, type OpenOptions, type UdpOpenOptions } from './open-device.js';
export { getDeviceList } from './queries/device-list.js';
export { flowLabelToUdpSport } from './queues/flow.js';
export { incRkey } from './regions/key.js';
export type { WaitLimits } from '../base/wait-limits.js';
export type { Context } from './context.js';
export type { NamedDomain, PublishOptions } from './domains/named-domain.js';
export type { ProtectionDomain } from './domains/protection-domain.js';
export type { Root, RootOptions } from './domains/roots.js';
export type { DomainHeap, HeapOptions } from './heap/domain-heap.js';
export type { HeapUsage } from './heap/heap-usage.js';
export type { CompletionQueue } from './queues/completion-queue.js';
export type { WorkCompletion } from './queues/work-completion.js';
export type { QueuePair } from './queues/queue-pair.js';
export type { MemoryRegion } from './regions/memory-region.js';
