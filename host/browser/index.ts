/// <reference lib="esnext.disposable" preserve="true" />
/**
 * `verbena/browser`: the verbs in a Worker of a page, or in the page itself, over data channels and
 * WebSockets. What the public index has, without what only Node has.
 */
import { fetchModule } from '../engine/module-bytes.js';

export * from './shared-index.js';
export { connect } from '../remote/connect.js';
export type { CommonOptions, ReconnectOptions, RemoteOptions } from '../remote/connect.js';
export { share } from '../remote/share.js';
export type { RemoteServer, ServerOptions } from '../remote/share.js';
export type { Remote } from '../remote/remote.js';
export type { RemoteRegion, RequestOptions } from '../remote/remote-region.js';
export { RemoteError } from '../remote/remote-error.js';
export type { DeviceChoice } from '../remote/devices.js';
export type {
  MemoryByName,
  RegionOptions,
  RegionSource,
  Regions,
  RegisteredRegion,
  Right,
  TypedArray,
} from '../remote/local-regions.js';
export type { LinkOpenOptions } from '../verbs/open-device.js';
export type { LinkOpenOptions as OpenOptions } from '../verbs/open-device.js';
export { defaultConnector } from '../link/rtc/default.js';
export type {
  Description,
  RtcConnection,
  RtcConnector,
  RtcOptions,
} from '../link/rtc/connection.js';
export type { ChannelReceiver, DatagramChannel } from '../link/channel/datagram-channel.js';
export { provideRtc, type ProvideOptions } from '../link/rtc/provide.js';

/** To be awaited before the first explain function: their text module is fetched. */
export function fetchExplain(): Promise<void> {
  return fetchModule('explain');
}
