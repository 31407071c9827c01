/**
 * The bench `mesh`, in processes: `mesh-hub.js hub URL PEERS` is a Node program with many peers,
 * `mesh-hub.js spokes URL PEERS` has those peers, each with a link of its own, as a browser has. They
 * meet the hub and not each other.
 */
import { DataChannelLink, connect, openDevice, share } from '../../host/index.js';
import { RoomSignalling } from '../../host/mesh/index.js';

const [role, url, count] = process.argv.slice(2);
const peers = Number(count);
const ROOM = 'hub';
const HUB = 'hub';
/** Peers that connect at once: each connection costs some milliseconds of processor time. */
const AT_ONCE = 4;
const IDLE_SECONDS = 5;
const JOIN_SECONDS = 150;

function residentKib(): number {
  return process.memoryUsage().rss / 1024;
}

function cpuMillis(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

async function runHub(): Promise<void> {
  const link = new DataChannelLink({ peersMax: 2 * peers });
  const context = await openDevice({ link, memoryBytes: 2 ** 30 });
  const at = `rdma://[${context.local.gid}]:7471` as const;
  const server = await share(at, { sum: new BigInt64Array(1) }, { context, clientsMax: 2 * peers });
  const empty = residentKib();
  const room = new RoomSignalling(url!, ROOM);
  room.join(HUB, link.answer, () => undefined);
  for (let second = 0; second < JOIN_SECONDS && server.clients.size < peers; second++) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  const full = residentKib();
  const before = cpuMillis();
  await new Promise((resolve) => setTimeout(resolve, 1000 * IDLE_SECONDS));
  const idle = cpuMillis() - before;
  const said = {
    peers: server.clients.size,
    kib_per_peer: (full - empty) / Math.max(1, server.clients.size),
    idle_cpu_ms_per_peer_second: idle / IDLE_SECONDS / Math.max(1, server.clients.size),
    sum: Number(server.memory.sum[0]),
  };
  process.stdout.write(`${JSON.stringify(said)}\n`);
}

async function runSpoke(index: number): Promise<void> {
  const link = new DataChannelLink();
  const context = await openDevice({ link, memoryBytes: 2 ** 24 });
  const way = await new Promise<Parameters<DataChannelLink['connect']>[0]>((resolve) => {
    const meet = (signalling: never, name?: string): void => {
      if (name === HUB) resolve(signalling);
    };
    new RoomSignalling(url!, ROOM).join(`spoke ${index}`, link.answer, meet as never, {
      present: meet as never,
    });
  });
  for (;;) {
    try {
      const peer = await link.connect(way);
      const remote = await connect(`rdma://[${peer.gid}]:7471`, { context, timeout: 20_000 });
      await remote.memory['sum']!.fetchAdd(0, 1n);
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

if (role === 'hub') await runHub();
else {
  let next = 0;
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (next < peers) await runSpoke(next++);
    }),
  );
}
