/** Stands in for default.ts in a browser: a page's own connections; in a Worker, its page's. */
import type { RtcConnector, RtcOptions } from './connection.js';
import { PageConnector } from './page.js';
import { WorkerConnector } from './worker.js';

export function defaultConnector(options: RtcOptions): RtcConnector {
  const isPage = 'document' in globalThis;
  return isPage ? new PageConnector(options) : new WorkerConnector(options);
}
