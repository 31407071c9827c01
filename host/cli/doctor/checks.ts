/**
 * Checks of the facts about a machine: their meaning for Verbena, and the remedy for what is slow
 * or missing.
 */
import { formatBytes } from '../base/format.js';
import type { Facts } from './facts.js';

/**
 * - `fast`: nothing to do.
 * - `slow`: it works; the remedy makes it faster.
 * - `missing`: a feature is unavailable until the remedy is applied.
 * - `failed`: Verbena does not work here.
 */
export type State = 'fast' | 'slow' | 'missing' | 'failed';

export interface Check {
  readonly name: string;
  readonly state: State;
  /** The fact, and its consequence. */
  readonly finding: string;
  /** Remedy; absent if the check has passed. */
  readonly remedy?: string;
}

const MIB = 2 ** 20;
const NODE_MIN = [20, 15] as const;
/** Values that the links request (host/link/udp/udp-options.ts). */
const RECEIVE_BUFFER_WANTED = 4 * MIB;
const SHARED_MEMORY_WANTED = 256 * MIB;
const OPEN_FILES_WANTED = 1024;
/** Interface MTU that carries a path MTU of 4096. */
const MTU_WANTED = 4200;

export function checksOf(facts: Facts): readonly Check[] {
  return [
    nodeVersion(facts),
    koffi(facts),
    cores(facts),
    receiveBuffer(facts),
    ...batching(facts),
    port(facts),
    sharedMemory(facts),
    interfaces(facts),
    openFiles(facts),
    optional(facts, 'node-datachannel', 'data channels with pages'),
    optional(facts, 'ws', 'WebSocket links, and verbena demo over them'),
    sniffing(facts),
  ].filter((check): check is Check => check !== undefined);
}

function nodeVersion({ node }: Facts): Check {
  const [major = 0, minor = 0] = node.slice(1).split('.').map(Number);
  const isOld = major < NODE_MIN[0] || (major === NODE_MIN[0] && minor < NODE_MIN[1]);
  const finding = `Node ${node}`;
  if (!isOld) return { name: 'node', state: 'fast', finding };
  return { name: 'node', state: 'failed', finding, remedy: 'install Node 20.15 or later' };
}

function koffi({ packages, nativeCalls, link, platform }: Facts): Check {
  const name = 'koffi';
  const { koffi: reason } = packages;
  if (reason === undefined) {
    const finding = `link ${link.name} by ${nativeCalls ?? name}: many packets per system call`;
    return { name, state: 'fast', finding };
  }
  const cost = `link ${link.name}: one system call per packet, no thread of its own`;
  if (platform !== 'linux') return { name, state: 'slow', finding: `${cost} (koffi: ${reason})` };
  const finding = `${cost}, no packets that Linux accepts over IPv4, no shared devices`;
  return { name, state: 'slow', finding: `${finding} (${reason})`, remedy: 'npm install koffi' };
}

function cores({ cores: count, coresQuota }: Facts): Check {
  const name = 'processors';
  const available = Math.min(count, coresQuota ?? Infinity);
  const finding =
    available < count ? `${count}, limited by a quota to ${available}` : `${count} processors`;
  if (available >= 2) return { name, state: 'fast', finding };
  const why = 'the thread of a device and the application share one';
  const remedy = 'give the container or machine two processors (docker run --cpus 2)';
  return { name, state: 'slow', finding: `${finding}: ${why}`, remedy };
}

function receiveBuffer({ link, receiveBufferMax, platform }: Facts): Check {
  const name = 'socket buffer';
  const { receiveBufferBytes: reported } = link;
  // socket(7): the kernel doubles the requested value, for its own structures, and reports that.
  const granted = platform === 'linux' ? reported / 2 : reported;
  const doubled = platform === 'linux' ? ' (the kernel reports twice that)' : '';
  const isWhole = granted >= RECEIVE_BUFFER_WANTED;
  const whole = isWhole ? '' : ` of the requested ${formatBytes(RECEIVE_BUFFER_WANTED)}`;
  const got = `${formatBytes(granted)}${whole}${doubled}`;
  if (isWhole) return { name, state: 'fast', finding: `receive buffer ${got}` };
  const finding = `receive buffer ${got}: fewer bytes in flight per peer`;
  if (receiveBufferMax === undefined) return { name, state: 'slow', finding };
  const remedy = `sysctl -w net.core.rmem_max=${RECEIVE_BUFFER_WANTED} net.core.wmem_max=${RECEIVE_BUFFER_WANTED}`;
  return { name, state: 'slow', finding, remedy: `as root: ${remedy}` };
}

/** UDP_SEGMENT and UDP_GRO, of the link with koffi. */
function batching({ link }: Facts): readonly Check[] {
  const options = (link.socketOptions ?? []).filter(({ name }) => /^UDP_(SEGMENT|GRO)$/.test(name));
  return options.map(({ name, effect, granted, reason }) =>
    granted
      ? { name, state: 'fast' as const, finding: effect }
      : { name, state: 'slow' as const, finding: `not granted: ${reason}`, remedy: 'Linux 5.0' },
  );
}

function port({ portHolder }: Facts): Check {
  const name = 'port 4791';
  if (portHolder === undefined) return { name, state: 'fast', finding: 'free at 127.0.0.1' };
  const finding = `at 127.0.0.1 it is ${portHolder}: a device of this address gets another port`;
  return { name, state: 'missing', finding, remedy: 'end that process, or use another address' };
}

function sharedMemory({ sharedMemory: found, platform }: Facts): Check {
  const name = 'shared memory';
  if (!found) {
    const finding = `${platform} has no /dev/shm: no devices that processes share`;
    return { name, state: 'missing', finding, remedy: 'openDevice({ name, directory }) on Linux' };
  }
  const sizes = `/dev/shm has ${formatBytes(found.freeBytes)} of ${formatBytes(found.bytes)} free`;
  if (found.freeBytes >= SHARED_MEMORY_WANTED) return { name, state: 'fast', finding: sizes };
  const remedy = 'docker run --shm-size 1g; mount -o remount,size=1g /dev/shm';
  return { name, state: 'missing', finding: `${sizes}: no large shared device`, remedy };
}

function interfaces({ interfaces: found }: Facts): Check | undefined {
  if (found.length === 0) return undefined;
  const finding = found.map(({ name, mtu }) => `${name} MTU ${mtu}`).join(', ');
  const small = found.filter(({ mtu }) => mtu < MTU_WANTED);
  if (small.length === 0) return { name: 'interfaces', state: 'fast', finding };
  const remedy = 'ip link set INTERFACE mtu 9000, on both sides and the switches between them';
  const why = 'path MTU 1024 at most, so more packets per byte';
  return { name: 'interfaces', state: 'slow', finding: `${finding}: ${why}`, remedy };
}

function openFiles({ openFilesMax }: Facts): Check | undefined {
  if (openFilesMax === undefined) return undefined;
  const finding = `${openFilesMax} open files per process`;
  if (openFilesMax >= OPEN_FILES_WANTED) return { name: 'files', state: 'fast', finding };
  return { name: 'files', state: 'slow', finding, remedy: `ulimit -n ${OPEN_FILES_WANTED}` };
}

function optional({ packages }: Facts, name: string, purpose: string): Check {
  const reason = packages[name];
  if (reason === undefined) return { name, state: 'fast', finding: `installed: ${purpose}` };
  return { name, state: 'missing', finding: `no ${purpose}`, remedy: `npm install ${name}` };
}

function sniffing({ canSniff, packages }: Facts): Check {
  const name = 'verbena sniff';
  if (canSniff && packages['koffi'] === undefined) {
    return { name, state: 'fast', finding: 'this process may read the packets of interfaces' };
  }
  const finding = 'it needs Linux, koffi and the capability CAP_NET_RAW';
  const remedy = 'sudo; or tcpdump -w - udp port 4791 | verbena decode -';
  return { name, state: 'missing', finding, remedy };
}
