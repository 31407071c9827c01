/** Whose connections a link has that brings none: here node-datachannel's. */
import type { RtcConnector, RtcOptions } from './connection.js';
import { NodeConnector } from './node.js';

/** How this thread makes RTCPeerConnections: its own, or those that a page lends its Worker. */
export function defaultConnector(options: RtcOptions): RtcConnector {
  return new NodeConnector(options);
}
