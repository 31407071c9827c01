/** Memory of a peer by name: what Node and pages export. */
export { connect } from './connect.js';
export type { CommonOptions, ReconnectOptions, RemoteOptions } from './connect.js';
export { share } from './share.js';
export type { RemoteServer, ServerOptions } from './share.js';
export type { Remote } from './remote.js';
export type { RemoteRegion, RequestOptions } from './remote-region.js';
export { RemoteError } from './remote-error.js';
export type { DeviceChoice } from './devices.js';
export type {
  MemoryByName,
  RegionOptions,
  RegionSource,
  Regions,
  RegisteredRegion,
  Right,
  TypedArray,
} from './local-regions.js';
