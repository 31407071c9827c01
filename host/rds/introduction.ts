/** What a node tells a peer of its own kind about itself, over lane 0. */
import { CONTROL_PORTS_MAX, ControlKind, buildControl } from './control.js';
import { buildHandshake } from './handshake.js';
import type { Lane } from './lane.js';
import type { Path } from './path.js';
import type { PathNode } from './path-node.js';

/** Private data of the connection manager's messages for a lane. */
export function handshakeOf(path: Path, { index, arrivals }: Lane): Uint8Array {
  const { node, peer, home, life, incarnation } = path;
  return buildHandshake({
    source: node.addresses[home]!.gid,
    target: peer.gid,
    ack: path.acknowledgeable(index, arrivals.safe),
    own: { lane: index, incarnation, generation: life.generation },
  });
}

/** Who it runs as, where it knows. */
export function sayIdentity(lane: Lane, { identity }: PathNode): void {
  if (!identity) return;
  const kind = ControlKind.IDENTITY;
  lane.say(buildControl({ kind, isSet: true, isReset: true, ports: [], identity }));
}

/** Its addresses but for the one that the peer knows. */
export function sayAddresses(lane: Lane, node: PathNode, home: number): void {
  const addresses = node.addresses.filter((_, index) => index !== home);
  const kind = ControlKind.ADDRESSES;
  lane.say(buildControl({ kind, isSet: true, isReset: true, ports: [], addresses }));
}

/** All ports of a kind, anew. */
function sayPorts(lane: Lane, kind: number, ports: readonly number[]): void {
  for (let from = 0; from === 0 || from < ports.length; from += CONTROL_PORTS_MAX) {
    const some = ports.slice(from, from + CONTROL_PORTS_MAX);
    lane.say(buildControl({ kind, isSet: true, isReset: from === 0, ports: some }));
  }
}

/** What there is, to a peer that may be here. */
export function introduce(lane: Lane, node: PathNode, home: number): void {
  if (node.addresses.length > 1) sayAddresses(lane, node, home);
  sayPorts(lane, ControlKind.PORTS, node.boundPorts());
  sayPorts(lane, ControlKind.STALLS, node.stalledPorts());
}

/** It lives. */
export function sayHeartbeat(lane: Lane, now: number): void {
  lane.say(buildControl({ kind: ControlKind.HEARTBEAT, isSet: false, isReset: false, ports: [] }));
  lane.pump(now);
}
