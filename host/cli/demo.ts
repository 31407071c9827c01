/** `verbena demo`: a page whose memory other tabs, and this process, reach. */
import { DemoServer } from '../demo/server.js';
import { Exit, complain, printLine } from './base/report.js';

export interface DemoOptions {
  readonly bind: string;
  readonly port: number;
  readonly hostName?: readonly string[];
  readonly json?: boolean;
}

export async function demo(options: DemoOptions): Promise<number> {
  const { bind, port, hostName = [] } = options;
  const server = await DemoServer.open({ bind, port, hosts: hostName });
  const stopped = new Promise<void>((resolve) => {
    process.once('SIGINT', () => resolve()).once('SIGTERM', () => resolve());
  });
  for (const sentence of server.missing) complain('demo', sentence);
  const { url, gzipBytes } = server;
  await printLine(
    options.json
      ? JSON.stringify({ event: 'serving', url, gzipBytes, pid: process.pid })
      : `open ${url} in two tabs, and paint; ctrl-C ends`,
  );
  await stopped;
  await server.close();
  return Exit.OK;
}
