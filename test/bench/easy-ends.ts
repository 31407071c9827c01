/** Two processes over `share` and `connect`: the other one is this module once more (partner.ts). */
import { connect, share, type RdmaUrl, type Remote, type RemoteRegion } from '../../host/index.js';
import { Partner, partnerTask, tell } from './partner.js';

const ADDRESS = '127.0.0.1';

export interface EasyEnds {
  readonly remote: Remote;
  readonly table: RemoteRegion;
  close(): Promise<void>;
}

/** Connects to a process that shares `bytes` as `table`. Each side has a device of its own. */
export async function openEasy(bytes: number): Promise<EasyEnds> {
  const partner = await Partner.start<RdmaUrl>(import.meta.url, bytes);
  const device = { address: ADDRESS, port: 0, progress: 'thread' as const };
  const remote = await connect(partner.ready, { device, timeout: 20_000 });
  const close = async (): Promise<void> => {
    await remote.close();
    await partner.ended();
  };
  return { remote, table: remote.memory['table']!, close };
}

/** Shares until its client has left. */
async function serve(bytes: number): Promise<void> {
  const device = { port: 0, progress: 'thread' as const };
  const server = await share(`rdma://${ADDRESS}:0`, { table: bytes }, { device });
  tell(server.url);
  for await (const client of server) {
    await client.closed;
    break;
  }
  await server.close();
  process.disconnect();
}

const task = partnerTask<number>(import.meta.url);
if (task !== undefined) await serve(task);
