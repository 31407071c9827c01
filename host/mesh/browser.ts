/** `verbena/mesh` in a page: what Node has, without the servers. */
export { joinMesh } from './mesh.js';
export type { Mesh, MeshEvent, MeshOptions, MeshSelf } from './mesh.js';
export type { MeshPeer, PeerMemory } from './mesh-peer.js';
export { MeshError } from './mesh-error.js';
export type { CollectiveOptions } from './collectives.js';
export type { ReduceOperation, ReducibleArray } from './reduce.js';
export { RoomSignalling, type RoomOptions } from '../link/signalling/room.js';
export type { RoomEvents } from '../link/signalling/signalling.js';
export {
  connectFrames,
  listenFrames,
  type FrameChannel,
  type FrameDeviceOptions,
  type FrameListenOptions,
  type FrameListener,
  type FrameOptions,
  type SendFrameOptions,
} from './frames/frame-channel.js';
export type { ReceivedFrame, ReceiverCounters } from './frames/frame-receiver.js';
export type { SenderCounters } from './frames/frame-sender.js';
