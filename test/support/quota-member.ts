/**
 * A member of a mesh in a process of its own, for tests of quotas. Arguments: URL, room, and
 * `server` with bytes per second (0: no limit), or `write` or `read` with the identifier of the
 * server: such a member moves a block again and again. Last the bytes of the block. The parent is
 * sent the identifier, and for each message the figures.
 */
import { joinMesh } from '../../host/mesh/index.js';

const IN_FLIGHT = 4;

export interface QuotaFigures {
  /** Bytes of completed calls of this member. */
  readonly bytes: number;
  readonly paced: number;
  readonly dropped: number;
  readonly peers: number;
  /** The block that greedy members write has ones in all bytes. */
  readonly isWhole: boolean;
}

const [url = '', room = '', role = '', detail = '', block] = process.argv.slice(2);
const blockBytes = Number(block);
const rate = role === 'server' ? Number(detail) : 0;
const mesh = await joinMesh({
  url,
  room,
  memory: { table: 2 * blockBytes },
  link: rate > 0 ? { peerBytesPerSecond: rate } : {},
});
let bytes = 0;
process.on('message', () => {
  const { paced, dropped } = mesh.link.counters;
  const { table } = mesh.self.memory;
  const isWhole = table.subarray(0, blockBytes).every((byte) => byte === 1);
  const figures: QuotaFigures = { bytes, paced, dropped, peers: mesh.peers.size, isWhole };
  process.send!(figures);
});

/** Calls one behind the other until the parent ends this process. */
async function take(): Promise<void> {
  const { memory } = mesh.peers.get(detail)!;
  const ones = new Uint8Array(blockBytes).fill(1);
  for (;;) {
    if (role === 'read') await memory['table']!.read(0, blockBytes);
    else await memory['table']!.write(0, ones);
    bytes += blockBytes;
  }
}

if (role !== 'server') {
  while (!mesh.peers.has(detail)) await new Promise((resolve) => setTimeout(resolve, 20));
  for (let count = 0; count < IN_FLIGHT; count++) void take();
}
process.send!(mesh.self.id);
