/** Whose connections a link has that brings none: here node-datachannel's. */
import type { RtcConnector, RtcOptions } from './connection.js';
import { NodeConnector } from './node.js';

export function defaultConnector(options: RtcOptions): RtcConnector {
  return new NodeConnector(options);
}
