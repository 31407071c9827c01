/** A target and a host on a wire inside this process, and raw queues for what no host would say. */
import {
  NvmeRamStore,
  NvmeTarget,
  Endpoint,
  connect,
  connectNvme,
  faultLink,
  openDevice,
  type ConnectNvmeOptions,
  type Context,
  type NvmeStore,
  type NvmeTargetEvent,
  type NvmeTargetOptions,
  type NvmeVolume,
  type OpenOptions,
  type RdmaConnection,
} from '../../host/index.js';
import type { ProtectionDomain } from '../../host/verbs/domains/protection-domain.js';
import { LoopbackNetwork } from '../../host/link/loopback.js';
import { Completions } from '../../host/nvme/completions.js';
import type { Completion } from '../../host/nvme/command.js';
import { HostQueue } from '../../host/nvme/host-queue.js';
import { RdmaRequestData } from '../../host/nvme/structures.js';

export const NQN = 'nqn.2026-01.test:disk';
export const TARGET = '127.0.0.1';
export const HOST = '127.0.0.2';
const MEBIBYTE = 2 ** 20;
const UDP_PORT = 4791;

export interface NvmeWorld {
  readonly network: LoopbackNetwork;
  readonly target: NvmeTarget;
  readonly host: Context;
  readonly events: NvmeTargetEvent[];
  connect(options?: Partial<ConnectNvmeOptions>): Promise<NvmeVolume>;
  /** While `isDown` no packet arrives. */
  cut(isDown: boolean): void;
}

export interface NvmeWorldOptions {
  readonly bytes?: number;
  readonly store?: (context: Context) => NvmeStore | Promise<NvmeStore>;
  readonly target?: Partial<NvmeTargetOptions>;
  readonly host?: Partial<OpenOptions>;
  /** Of the packets, each way: 0 to 1. */
  readonly loss?: number;
}

export async function inNvmeWorld(
  options: NvmeWorldOptions,
  work: (world: NvmeWorld) => Promise<void>,
): Promise<void> {
  const network = new LoopbackNetwork();
  const { loss = 0 } = options;
  let isDown = false;
  const open = (address: string, more: Partial<OpenOptions> = {}): Promise<Context> => {
    const link = network.link(Endpoint.parse(address, UDP_PORT));
    const send = link.send.bind(link);
    link.send = (batch) => (isDown ? batch.release() : send(batch));
    const wire = loss === 0 ? link : faultLink(link, { loss, seed: 11 });
    return openDevice({ memoryBytes: 64 * MEBIBYTE, ...more, link: wire } as OpenOptions);
  };
  const context = await open(TARGET);
  const host = await open(HOST, options.host);
  const events: NvmeTargetEvent[] = [];
  const make = options.store ?? ((at: Context) => new NvmeRamStore(at, options.bytes ?? MEBIBYTE));
  const target = await NvmeTarget.open(context, {
    store: await make(context),
    nqn: NQN,
    onEvent: (event) => void events.push(event),
    ...options.target,
  });
  try {
    await work({
      network,
      target,
      host,
      events,
      connect: (more = {}) => connectNvme(TARGET, { nqn: NQN, context: host, ...more }),
      cut: (now) => {
        isDown = now;
      },
    });
  } finally {
    await target.close();
    await host.close();
    await context.close();
  }
}

/** A queue of ours that has not said Connect yet: whatever is put into it goes out. */
export async function rawQueue(
  host: Context,
  qid: number,
  privateData?: Uint8Array,
  depth = 7,
  address = TARGET,
): Promise<{
  queue: HostQueue;
  pd: ProtectionDomain;
  connection: RdmaConnection;
  ask: Ask;
  ended: Promise<string>;
}> {
  const pd = host.allocPd();
  const completions = new Completions(host);
  let told: (reason: string) => void = () => {};
  const ended = new Promise<string>((resolve) => (told = resolve));
  const nothing = { submitted: 0, completed: 0, depthWaits: 0, regionWaits: 0, inCapsule: 0 };
  const counters = { ...nothing, registrations: 0, remoteInvalidations: 0, localInvalidations: 0 };
  const queue = new HostQueue({
    ...{ pd, completions, qid, depth, inCapsuleBytes: 8192, user: undefined, counters },
    ended: (reason, unfinished) => {
      for (const { reject } of unfinished) reject(new Error(reason));
      told(reason);
    },
  });
  const sizes = { hrqsize: depth + 1, hsqsize: depth, cntlid: 0 };
  const connection = await connect(
    { address, port: 4420 },
    {
      ...{
        context: host,
        pd,
        privateData: privateData ?? RdmaRequestData.build({ qid, ...sizes }),
      },
      qp: { sendCq: completions.cq, recvCq: completions.cq, cap: queue.cap },
    },
    (qp) => queue.prepare(qp),
  ).catch((error: unknown) => {
    queue.close('it was never connected');
    completions.close();
    throw error;
  });
  queue.connected(connection);
  const ask: Ask = (name, fields, more = {}) =>
    new Promise((resolve, reject) => queue.submit({ name, fields, resolve, reject, ...more }));
  return { queue, pd, connection, ask, ended };
}

export type Ask = (
  name: Parameters<HostQueue['submit']>[0]['name'],
  fields: Readonly<Record<string, number | bigint>>,
  more?: Partial<Parameters<HostQueue['submit']>[0]>,
) => Promise<Completion>;
