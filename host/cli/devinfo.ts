/** `verbena devinfo`: what a device on this machine would offer. */
import { statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism, networkInterfaces } from 'node:os';
import type { DeviceAttributes, Durability } from '../index.js';
import { DeviceCapFlag } from '../verbs/constants.js';
import { openDevice } from '../verbs/open-device.js';
import { reportDevice, type DeviceReport } from '../device/sharing/device-report.js';
import { engineFile } from '../engine/load.js';
import { fileRefusal } from '../errors/file-refusal.js';
import { Gid } from '../link/endpoint.js';
import { IPV4_UDP_OVERHEAD, IPV6_UDP_OVERHEAD, interfaceMtu } from '../link/interface.js';
import { PACKET_SIZE_LIMIT, ROCE_PORT, type LinkInfo, type SocketOption } from '../link/link.js';
import { otherPortSentence } from '../link/udp/other-port.js';
import { isPortTaken } from '../link/udp/port-holder.js';
import { placeOfPath, type Place } from '../pmem/place.js';
import { MTUS } from './base/options.js';
import { formatBytes } from './base/format.js';
import { Exit, printLine } from './base/report.js';
import { describeStorage } from './base/storage.js';

/** BTH, RETH, immediate data, ICRC: the most that is around the payload. */
const PACKET_HEADER_BYTES = 64;

export interface DevinfoOptions {
  readonly bind: string;
  /** Name of a shared device: reports its members and their resources. */
  readonly name?: string;
  readonly directory?: string;
  /** Durability of a flushed file in that directory. */
  readonly storage: string;
  readonly json?: boolean;
}

interface AddressInfo {
  readonly address: string;
  readonly interface: string;
  /** Bytes of the largest IP packet. */
  readonly interfaceMtu: number;
  /** Bytes of payload in the largest RoCE packet. */
  readonly pathMtu: number;
}

/** Purpose of each optional package. */
const OPTIONAL: Readonly<Record<string, string>> = {
  koffi: 'socket options, without which Linux peers drop what we send over IPv4',
  'node-datachannel': 'WebRTC data channels in Node',
  ws: 'WebSocket links',
};

/** Meaning of the integrity of a link. */
const INTEGRITY: Readonly<Record<NonNullable<LinkInfo['integrity']>, string>> = {
  link: 'Verbena peers exchange packets without an ICRC',
  host: 'Verbena peers of this host exchange packets without an ICRC',
};

export async function devinfo(options: DevinfoOptions): Promise<number> {
  const { bind, name, directory, storage, json } = options;
  if (name !== undefined) return shareInfo(await reportDevice(name, directory), json);
  const place = placeThere(storage);
  const context = await openDevice({ address: bind, port: 0 });
  const attributes = context.queryDevice();
  const { info } = context.device;
  await context.close();
  const report = {
    link: {
      name: info.name,
      address: `${info.local.gid}`,
      packetSizeMax: info.packetSizeMax,
      receiveBufferBytes: info.receiveBufferBytes,
      socketOptions: info.socketOptions ?? [],
      localPath: info.localPath ?? true,
      integrity: info.integrity,
    },
    rocePort: await rocePort(info.local.gid),
    addresses: await listAddresses(),
    storage: { path: storage, durability: place.durability, reason: place.reason },
    limits: attributes,
    engine: {
      bytes: statSync(engineFile(false)).size,
      sharedMemoryBytes: statSync(engineFile(true)).size,
    },
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    cores: availableParallelism(),
    optionalPackages: Object.fromEntries(
      Object.keys(OPTIONAL).map((name) => [name, isInstalled(name)]),
    ),
  };
  if (json) await printLine(JSON.stringify(report));
  else for (const line of describe(report)) await printLine(line);
  return Exit.OK;
}

/** Reports whether another process holds port 4791, to which Linux and RoCE cards send. */
async function rocePort(gid: Gid): Promise<RocePort> {
  const isTaken = await isPortTaken(gid, ROCE_PORT);
  if (!isTaken) return { isTaken };
  return { isTaken, consequence: await otherPortSentence(gid) };
}

function placeThere(path: string): Place {
  try {
    statSync(path);
  } catch (error) {
    throw fileRefusal(`cannot read ${path}`, error);
  }
  return placeOfPath(path);
}

async function shareInfo(report: DeviceReport, json: boolean | undefined): Promise<number> {
  if (json) await printLine(JSON.stringify(report));
  else for (const line of describeShare(report)) await printLine(line);
  return Exit.OK;
}

function* describeShare(report: DeviceReport): Generator<string> {
  yield `device     ${report.path}, at ${report.address}`;
  const held = formatBytes(report.memoryHeldBytes);
  yield `memory     ${held} of ${formatBytes(report.memoryBytes)} held`;
  yield `keys       ${report.keys} of ${report.keysMax}`;
  yield `processes  ${report.processes.length}`;
  for (const one of report.processes) {
    const since = new Date(one.since * 1000).toISOString();
    yield (
      `  slot ${one.slot}: process ${one.pid}${one.alive ? '' : ' (dead)'}, since ${since}, ` +
      `${one.regions} regions, ${one.windows} windows, ${one.layouts} layouts, ` +
      `${formatBytes(one.heldBytes)}; ` +
      `${one.mail} packets handed on to it, ${one.mailDropped} dropped; ` +
      `${one.localRequests} requests without packets, ${one.localEndpoints} queue pairs open to them`
    );
  }
  yield `domains    ${report.domains.length}`;
  for (const { handle, shared, instances, keys } of report.domains) {
    const users = instances.map(({ slot, uses }) => `slot ${slot} (${uses} in use)`).join(', ');
    yield `  ${handle}${shared ? ' (shared)' : ''}: ${keys} keys; ${users}`;
  }
}

/** UDP port 4791 of the device's address. */
interface RocePort {
  /** Undefined: unknown on this system. */
  readonly isTaken: boolean | undefined;
  readonly consequence?: string;
}

interface Report {
  readonly link: {
    name: string;
    address: string;
    receiveBufferBytes: number;
    socketOptions: readonly SocketOption[];
    localPath: boolean;
    integrity: LinkInfo['integrity'];
  };
  readonly rocePort: RocePort;
  readonly addresses: readonly AddressInfo[];
  readonly storage: { path: string; durability: Durability; reason: string };
  readonly limits: DeviceAttributes;
  readonly engine: { bytes: number; sharedMemoryBytes: number };
  readonly node: string;
  readonly platform: string;
  readonly cores: number;
  readonly optionalPackages: Readonly<Record<string, boolean>>;
}

function* describe(report: Report): Generator<string> {
  const { link, limits, engine } = report;
  yield (
    `link       ${link.name}, RoCEv2 at ${link.address}, ` +
    `receive buffer ${formatBytes(link.receiveBufferBytes)} as the kernel counts`
  );
  for (const { name, effect, granted, reason } of link.socketOptions) {
    yield `  ${name}: ${effect}${granted ? '' : ` [not granted: ${reason}]`}`;
  }
  if (link.localPath) {
    yield '  local path: requests between queue pairs of one device need no packets';
  }
  if (link.integrity) yield `  integrity: ${INTEGRITY[link.integrity]}`;
  const { isTaken, consequence } = report.rocePort;
  const state = isTaken === undefined ? 'unknown on this system' : 'free';
  yield `port ${ROCE_PORT}  ${consequence ?? state}`;
  yield 'addresses';
  for (const { address, interface: name, interfaceMtu, pathMtu } of report.addresses) {
    yield `  ${address} (${name}): MTU ${interfaceMtu}, path MTU ${pathMtu}`;
  }
  yield `storage    ${report.storage.path}: ${describeStorage(report.storage)}`;
  yield 'limits';
  const { deviceCapFlags, ...numbers } = limits;
  for (const [name, value] of Object.entries(numbers)) {
    const parts = typeof value === 'object' ? Object.entries(value) : [['', value]];
    for (const [part, number] of parts) {
      yield `  ${(part === '' ? name : `${name}.${part}`).padEnd(14)} ${number}`;
    }
  }
  const caps = Object.entries(DeviceCapFlag).filter(([, flag]) => (deviceCapFlags & flag) !== 0);
  yield `can        ${caps.map(([name]) => name).join(', ')}`;
  yield `engine     ${engine.bytes} bytes of WebAssembly (${engine.sharedMemoryBytes} for shared memory)`;
  yield `runtime    Node ${report.node} on ${report.platform}, ${report.cores} cores`;
  yield 'optional packages';
  for (const [name, present] of Object.entries(report.optionalPackages)) {
    yield `  ${name.padEnd(16)} ${present ? 'present' : 'missing'}: ${OPTIONAL[name]}`;
  }
}

async function listAddresses(): Promise<AddressInfo[]> {
  const found: AddressInfo[] = [];
  for (const [name, addresses] of Object.entries(networkInterfaces())) {
    for (const { address, scopeid } of addresses ?? []) {
      const gid = Gid.parse(address);
      const mtu = await interfaceMtu(gid);
      const overhead = gid.isIpv4 ? IPV4_UDP_OVERHEAD : IPV6_UDP_OVERHEAD;
      found.push({
        address: scopeid ? `${address}%${name}` : address,
        interface: name,
        interfaceMtu: mtu,
        pathMtu: pathMtuFor(Math.min(mtu - overhead, PACKET_SIZE_LIMIT)),
      });
    }
  }
  return found;
}

function isInstalled(name: string): boolean {
  try {
    createRequire(import.meta.url).resolve(name);
    return true;
  } catch {
    return false;
  }
}

/** The largest path MTU in bytes whose packets fit; `packetSizeMax` counts BTH to ICRC. */
function pathMtuFor(packetSizeMax: number): number {
  return Math.max(256, ...MTUS.filter((bytes) => bytes + PACKET_HEADER_BYTES <= packetSizeMax));
}
