/**
 * Opens an RDS node at a local address. Only `local-node.ts` imports this file, and when it needs
 * it: most of the package, the engine and its memory load with it.
 */
import { debuglog } from 'node:util';
import { RealClock } from '../device/clock.js';
import { fetchEngine } from '../engine/load.js';
import { LinkError, VerbenaError } from '../errors/errors.js';
import { faultLink } from '../link/faults/fault.js';
import { Gid } from '../link/endpoint.js';
import { ROCE_PORT, type Link } from '../link/link.js';
import { createSocket } from '../link/plain-dgram.js';
import { loadPosix } from '../link/posix.js';
import { UdpLink } from '../link/udp/udp.js';
import { publishNode } from '../rds/info-server.js';
import { RdsNode } from '../rds/node.js';
import { socket, type RdsSocket } from '../rds/socket/socket.js';
import { AF_INET_OFFLOAD, SOCK_DGRAM } from '../rds/wire/constants.js';
import type { Context } from '../verbs/context.js';
import { openDevice } from '../verbs/open-device.js';
import { RESERVES_MAX, reserveAddresses } from './addresses.js';
import { processEnvironment } from './settings.js';

const MICROS = 1000;
const log = debuglog('verbena');

/** A node and its device. */
export interface OpenedNode {
  readonly context: Context;
  readonly node: RdsNode;
  /** Its devices run in threads of their own. */
  readonly isThreaded: boolean;
  /** Devices at other addresses. */
  readonly reserves: Context[];
}

/** Loads what takes long, before the doorbell leaves port 4791 to the device. */
export async function prepareNode(): Promise<void> {
  const { posix } = await loadPosix();
  await fetchEngine(runsInThread(posix !== undefined));
}

/** Undefined: this address cannot have a node (for example, it is gone). */
export async function openNode(address: string): Promise<OpenedNode | undefined> {
  const { heartbeatMillis, outageMillis } = processEnvironment();
  // If another process has the RoCE port, any port serves: peers learn it from the request.
  for (const port of [ROCE_PORT, 0]) {
    try {
      const context = await openAt(address, port);
      const node = RdsNode.of(context, {
        heartbeatMicros: heartbeatMillis * MICROS,
        outageMicros: outageMillis * MICROS,
      });
      // The reserves of this node are chosen here (addReserves).
      node.stays = true;
      publishNode(node);
      const { posix } = await loadPosix();
      return { context, node, isThreaded: runsInThread(posix !== undefined), reserves: [] };
    } catch (error) {
      if (!(error instanceof VerbenaError)) throw error;
      if (!(error instanceof LinkError) || error.code !== 'EADDRINUSE') return undefined;
    }
  }
  return undefined;
}

/**
 * Opens devices at other local addresses, for messages that the node's own address cannot carry.
 * They have any UDP port: peers learn it. An address that cannot be opened is left out.
 */
export async function addReserves(opened: OpenedNode, address: string): Promise<void> {
  const { node, reserves } = opened;
  for (const other of reserveAddresses(address, processEnvironment().failover)) {
    const isOpen = reserves.some(({ local }) => local.gid.equals(Gid.parse(other)));
    if (isOpen || reserves.length >= RESERVES_MAX) continue;
    try {
      const context = await openAt(other, 0);
      if (node.isClosed) return void context.close();
      reserves.push(context);
      node.addDevice(context, { isReserve: true });
    } catch (error) {
      if (!(error instanceof VerbenaError)) throw error;
      log(`no failover of ${address} to ${other}: ${error.message}`);
    }
  }
}

/** An RDS socket at a port; undefined: the port is in use, or this user may have none. */
export function bindRds({ context }: OpenedNode, port: number): RdsSocket | undefined {
  let made: RdsSocket | undefined;
  try {
    made = socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
    made.bind({ port });
    return made;
  } catch (error) {
    if (!(error instanceof VerbenaError)) throw error;
    made?.close();
    return undefined;
  }
}

function runsInThread(hasPosix: boolean): boolean {
  const { loss, progress } = processEnvironment();
  return hasPosix && loss === 0 && progress === 'thread';
}

async function openAt(address: string, port: number): Promise<Context> {
  const { loss, seed } = processEnvironment();
  const { posix } = await loadPosix();
  // The node must not keep the process alive: only messages in flight do (LocalNode).
  const clock = new RealClock({ keepsAlive: false });
  if (runsInThread(posix !== undefined)) {
    return openDevice({
      address,
      port,
      progress: 'thread',
      clock,
      keepsAlive: false,
    });
  }
  const makeSocket = (...words: Parameters<typeof createSocket>) => createSocket(...words).unref();
  let link: Link = new UdpLink({ address, port }, makeSocket as typeof createSocket);
  if (loss > 0) link = faultLink(link, { loss: loss / 100, seed });
  return openDevice({ link, clock });
}
