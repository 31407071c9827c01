/** Facts about this machine that `verbena doctor` checks. */
import { readFileSync, statfsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism, networkInterfaces } from 'node:os';
import type { LinkInfo } from '../../index.js';
import { openDevice } from '../../verbs/open-device.js';
import { SHARED_MEMORY } from '../../device/sharing/device-directory.js';
import { Gid } from '../../link/endpoint.js';
import { interfaceMtu } from '../../link/interface.js';
import { ROCE_PORT } from '../../link/link.js';
import { loadPosix } from '../../link/posix.js';
import { describeHolder, isPortTaken } from '../../link/udp/port-holder.js';

export interface Facts {
  readonly node: string;
  readonly platform: string;
  /** Package that calls the C library: `koffi` or `node:ffi`; undefined: neither. */
  readonly nativeCalls: string | undefined;
  /** Of the optional packages: undefined if the package loads, else why it does not. */
  readonly packages: Readonly<Record<string, string | undefined>>;
  readonly cores: number;
  /** Processors that a container's quota permits; undefined: no quota. */
  readonly coresQuota: number | undefined;
  readonly link: Pick<LinkInfo, 'name' | 'receiveBufferBytes' | 'socketOptions'>;
  /** net.core.rmem_max; undefined: unknown on this system. */
  readonly receiveBufferMax: number | undefined;
  /** Process that holds UDP port 4791 of 127.0.0.1; undefined: the port is free, or unknown. */
  readonly portHolder: string | undefined;
  /** Size of /dev/shm and what is free; undefined: this system has none. */
  readonly sharedMemory: { readonly bytes: number; readonly freeBytes: number } | undefined;
  readonly interfaces: readonly { readonly name: string; readonly mtu: number }[];
  /** `ulimit -n`; undefined: no limit, or unknown on this system. */
  readonly openFilesMax: number | undefined;
  /** Capability CAP_NET_RAW; undefined: unknown on this system. */
  readonly canSniff: boolean | undefined;
}

const LOOPBACK = '127.0.0.1';
const CAP_NET_RAW = 13n;

/** Rejects with LinkError or RefusalError if no device opens at 127.0.0.1. */
export async function gatherFacts(): Promise<Facts> {
  const { posix, reason } = await loadPosix();
  return {
    node: process.version,
    platform: process.platform,
    nativeCalls: posix?.by,
    packages: {
      koffi: reason,
      'node-datachannel': missing('node-datachannel'),
      ws: missing('ws'),
    },
    cores: availableParallelism(),
    coresQuota: quotaOf(read('/sys/fs/cgroup/cpu.max')),
    link: await linkInfo(),
    receiveBufferMax: numberIn(read('/proc/sys/net/core/rmem_max')),
    portHolder: await portHolder(),
    sharedMemory: sharedMemory(),
    interfaces: await listInterfaces(),
    openFilesMax: numberIn(/^Max open files\s+(\d+)/m.exec(read('/proc/self/limits'))?.[1]),
    canSniff: hasCapability(read('/proc/self/status')),
  };
}

async function linkInfo(): Promise<Facts['link']> {
  const context = await openDevice({ address: LOOPBACK, port: 0 });
  const { name, receiveBufferBytes, socketOptions = [] } = context.device.info;
  await context.close();
  return { name, receiveBufferBytes, socketOptions };
}

async function portHolder(): Promise<string | undefined> {
  const gid = Gid.parse(LOOPBACK);
  return (await isPortTaken(gid, ROCE_PORT)) ? describeHolder(gid, ROCE_PORT) : undefined;
}

function sharedMemory(): Facts['sharedMemory'] {
  try {
    const { bsize, blocks, bavail } = statfsSync(SHARED_MEMORY);
    return { bytes: bsize * blocks, freeBytes: bsize * bavail };
  } catch {
    return undefined;
  }
}

/** Interfaces other than loopback ones, each once. */
async function listInterfaces(): Promise<{ name: string; mtu: number }[]> {
  const found: { name: string; mtu: number }[] = [];
  for (const [name, addresses = []] of Object.entries(networkInterfaces())) {
    const first = addresses.find(({ internal }) => !internal);
    if (first) found.push({ name, mtu: await interfaceMtu(Gid.parse(first.address)) });
  }
  return found;
}

function missing(name: string): string | undefined {
  try {
    createRequire(import.meta.url).resolve(name);
    return undefined;
  } catch {
    return `${name} is not installed: npm install ${name}`;
  }
}

/** cpu.max of cgroup 2: quota and period in microseconds, or `max`. */
export function quotaOf(text: string): number | undefined {
  const [, quota, period] = /^(\d+) (\d+)/.exec(text) ?? [];
  return quota === undefined ? undefined : Number(quota) / Number(period);
}

/** CapEff of /proc/self/status. */
function hasCapability(status: string): boolean | undefined {
  const [, mask] = /^CapEff:\s*([0-9a-f]+)/m.exec(status) ?? [];
  return mask === undefined ? undefined : ((BigInt(`0x${mask}`) >> CAP_NET_RAW) & 1n) === 1n;
}

function numberIn(text: string | undefined): number | undefined {
  const value = Number.parseInt(text ?? '', 10);
  return Number.isNaN(value) ? undefined : value;
}

/** A file of the system that other systems do not have: empty there. */
function read(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
}
