/** Stands in for paced.ts: a page serves no others. */
import type { RtcConnector } from './connection.js';

export const PROGRAM_OPTIONS = 'connector';

export function pacedConnector(connector: RtcConnector): RtcConnector {
  return connector;
}
