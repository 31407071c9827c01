/// <reference types="node" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />
/** `verbena/mesh`: members of a room with each other's memory, and the server of rooms. */
export * from './browser.js';
export {
  createSignallingServer,
  type SignallingCounters,
  type SignallingServer,
  type SignallingServerOptions,
} from '../link/signalling/room-server.js';
export { redisBus, type RedisOptions } from '../link/signalling/redis-bus.js';
export type { SignallingBus } from '../link/signalling/signalling-bus.js';
