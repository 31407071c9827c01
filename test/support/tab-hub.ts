/**
 * A process that shares memory with tabs: one device over data channels, beside the site of their
 * page. Its parent is sent the URLs, and for each message the figures of this process.
 */
import { answerRequest } from '../../host/link/signalling/http-server.js';
import { DataChannelLink, openDevice, share } from '../../host/index.js';
import { Site } from './browser.js';

export interface HubPlace {
  readonly page: string;
  readonly memory: string;
}

export interface HubFigures {
  readonly peers: number;
  readonly residentBytes: number;
  readonly cpuMicros: number;
  /** The first word: each WRITE of a tab is counted by an atomic. */
  readonly counted: number;
  /** First byte of each slot, if all of its bytes are equal. */
  readonly slots: (number | string)[];
}

/** Arguments: tabs, and the bytes of the memory that each of them writes. */
async function main(tabs: number, slotBytes: number): Promise<void> {
  const link = new DataChannelLink();
  const context = await openDevice({ link, memoryBytes: 2 ** 26 });
  const site = await Site.open({
    post: (request, response) => answerRequest(link, request, response),
  });
  const table = (1 + tabs) * slotBytes;
  const shared = await share(`rdma://[${context.local.gid}]:7471`, { table }, { context });
  const { memory } = shared;
  process.on('message', () => {
    const { user, system } = process.cpuUsage();
    const slots = Array.from({ length: tabs }, (_, index) => {
      const slot = memory.table.subarray((1 + index) * slotBytes, (2 + index) * slotBytes);
      return slot.every((byte) => byte === slot[0]) ? slot[0]! : 'bytes differ';
    });
    const figures: HubFigures = {
      peers: link.peers.length,
      residentBytes: process.memoryUsage().rss,
      cpuMicros: user + system,
      counted: new DataView(memory.table.buffer, memory.table.byteOffset).getUint32(0, true),
      slots,
    };
    process.send!(figures);
  });
  const place: HubPlace = {
    page: site.url('/test/browser/pages/tab.html'),
    memory: `${shared.url}`,
  };
  process.send!(place);
}

await main(Number(process.argv[2]), Number(process.argv[3]));
