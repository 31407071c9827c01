/// <reference lib="esnext.disposable" preserve="true" />
/**
 * `verbena/browser`: the verbs in a Worker of a page, or in the page itself, over data channels and
 * WebSockets. The exports of the public index that need no Node.
 */
import { fetchModule } from '../engine/module-bytes.js';

export * from './shared-index.js';
export * from '../remote/index.js';
// By name, as there is a `connect` of verbs, too.
export { connect } from '../remote/index.js';
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
