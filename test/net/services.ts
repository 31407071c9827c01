/**
 * Programs of three services over the network: each does one thing again and again.
 *
 *     node build/test/net/services.js serve KIND ADDRESS
 *     node build/test/net/services.js use KIND ADDRESS SECONDS
 *
 * KIND is rds, nvme, remote, or remote-common: remote without a device of its own. The user prints
 * a ServiceResult as its only line, after SECONDS or at SIGTERM. On standard error it says when it
 * begins, and when it goes on after a pause.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { localAddressTowards } from '../../host/link/interface.js';
import { timerMillis } from '../../host/base/timer.js';
import {
  NvmeRamStore,
  NvmeTarget,
  connect,
  connectNvme,
  openDevice,
  rds,
  share,
} from '../../host/index.js';

export interface ServiceResult {
  readonly operations: number;
  /** In the last three seconds. */
  readonly lastOperations: number;
  /** Answers that were not what had been sent or stored. */
  readonly wrong: number;
  /** Between two operations that were completed. */
  readonly longestGapSeconds: number;
  readonly errors: readonly string[];
}

export const SERVICES = ['rds', 'nvme', 'remote'] as const;
export type ServiceKind = (typeof SERVICES)[number] | 'remote-common';

const NQN = 'nqn.2026-01.dev.verbena:net';
const RDS_PORT = 4000;
const SERVER_UDP_PORTS = { rds: 4791, nvme: 4792, remote: 4793, 'remote-common': 4795 } as const;
const NVME_PORT = 4420;
const REMOTE_PORT = 7471;
const DISK_BYTES = 2 ** 20;
/** Longer than the longest outage. */
const OUTAGE_MICROS = 60_000_000;
const LAST_MILLIS = 3000;
const PAUSE_MILLIS = 10;
/** Shorter than any reconnect, longer than the machine's other work takes. */
const GAP_SECONDS = 3;

/** One operation; resolves to false when what came back is not what it should be. */
type Operation = (number: number) => Promise<boolean>;

const encode = (number: number): Uint8Array => Buffer.from(`${number}`.padStart(64));
const areSame = (one: Uint8Array, other: Uint8Array): boolean => Buffer.compare(one, other) === 0;

async function serveRds(address: string): Promise<void> {
  const context = await openDevice({ address, port: SERVER_UDP_PORTS.rds });
  rds.RdsNode.of(context, { outageMicros: OUTAGE_MICROS });
  const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
  socket.bind({ port: RDS_PORT });
  console.log('listening');
  for (let before = -1; ;) {
    const message = await socket.recv();
    if (!message) return;
    // A message that came again, or out of order, has a wrong answer.
    const number = Number(Buffer.from(message.data));
    await socket.send(message.from, number > before ? message.data : encode(Number.MAX_VALUE));
    before = number;
  }
}

async function useRds(address: string): Promise<Operation> {
  const context = await openDevice({ address: await localAddressTowards(address), port: 0 });
  rds.RdsNode.of(context, { outageMicros: OUTAGE_MICROS });
  const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
  socket.bind({ port: 0 });
  const to = { address, port: RDS_PORT, udpPort: SERVER_UDP_PORTS.rds };
  return async (number) => {
    const sent = encode(number);
    await socket.send(to, sent);
    for (;;) {
      const answer = await socket.recv();
      if (!answer) throw new Error('the socket was closed');
      // Of an earlier message, whose send had been refused.
      if (Number(Buffer.from(answer.data)) < number) continue;
      return areSame(answer.data, sent);
    }
  };
}

async function serveNvme(address: string): Promise<void> {
  const context = await openDevice({ address, port: SERVER_UDP_PORTS.nvme });
  const store = new NvmeRamStore(context, DISK_BYTES);
  await NvmeTarget.open(context, { store, nqn: NQN, port: NVME_PORT });
  console.log('listening');
}

async function useNvme(address: string): Promise<Operation> {
  const volume = await connectNvme(`${address}:${NVME_PORT}`, {
    nqn: NQN,
    device: { port: 0 },
    udpPort: SERVER_UDP_PORTS.nvme,
  });
  const block = volume.context.alloc(volume.blockBytes);
  return async (number) => {
    const sent = encode(number);
    block.fill(0).set(sent);
    await volume.write(BigInt(number) % volume.blocks, block);
    block.fill(0);
    await volume.read(BigInt(number) % volume.blocks, block);
    return areSame(block.slice(0, sent.length), sent);
  };
}

async function serveRemote(address: string, kind: 'remote' | 'remote-common' = 'remote') {
  const device = { port: SERVER_UDP_PORTS[kind] };
  await share(`rdma://${address}:${REMOTE_PORT}`, { table: DISK_BYTES }, { device });
  console.log('listening');
}

async function useRemote(
  address: string,
  kind: 'remote' | 'remote-common' = 'remote',
): Promise<Operation> {
  const url = `rdma://${address}:${REMOTE_PORT}?udp=${SERVER_UDP_PORTS[kind]}` as const;
  const own = kind === 'remote' ? { device: { port: 0 } } : {};
  const remote = await connect(url, { reconnect: { attempts: Infinity }, ...own });
  const table = remote.memory['table'] as {
    write(at: number, bytes: Uint8Array): Promise<void>;
    read(at: number, bytes: number): Promise<Uint8Array>;
  };
  return async (number) => {
    const sent = encode(number);
    const at = 64 * (number % 1024);
    await table.write(at, sent);
    return areSame(await table.read(at, sent.length), sent);
  };
}

const SERVERS = {
  ...{ rds: serveRds, nvme: serveNvme, remote: serveRemote },
  'remote-common': (address: string) => serveRemote(address, 'remote-common'),
} as const;
const USERS = {
  ...{ rds: useRds, nvme: useNvme, remote: useRemote },
  'remote-common': (address: string) => useRemote(address, 'remote-common'),
} as const;

/** The same operation again until it is done; the process ends with the time, whatever waits. */
async function use(kind: ServiceKind, address: string, seconds: number): Promise<void> {
  const began = performance.now();
  const errors = new Set<string>();
  const result = { operations: 0, lastOperations: 0, wrong: 0, longestGapSeconds: 0 };
  let before = began;
  const measureGap = (now: number): void => {
    result.longestGapSeconds = Math.max(result.longestGapSeconds, (now - before) / 1000);
    if (now - before > GAP_SECONDS * 1000) console.error('goes on');
    before = now;
  };
  const end = (): void => {
    measureGap(performance.now());
    console.log(JSON.stringify({ ...result, errors: [...errors] } satisfies ServiceResult));
    process.exit(0);
  };
  setTimeout(end, timerMillis(seconds * 1000));
  process.once('SIGTERM', end);
  const operation = await USERS[kind](address);
  console.error('begins');
  before = performance.now();
  for (let number = 0; ;) {
    try {
      if (!(await operation(number))) result.wrong++;
      number++;
      const now = performance.now();
      measureGap(now);
      result.operations++;
      if (now - began > seconds * 1000 - LAST_MILLIS) result.lastOperations++;
    } catch (error) {
      errors.add((error as Error).message);
    }
    await sleep(PAUSE_MILLIS);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]!).href) {
  const [role, kind, address = '', seconds] = process.argv.slice(2);
  if (role === 'serve') await SERVERS[kind as ServiceKind](address);
  else await use(kind as ServiceKind, address, Number(seconds));
}
