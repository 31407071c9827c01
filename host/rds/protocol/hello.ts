/** Messages about itself that a node sends to a Verbena peer, over connection 0. */
import { CONTROL_PORTS_MAX, ControlKind, buildControl } from '../wire/peer-control.js';
import type { Connection } from './connection.js';
import type { PathNode } from './path-node.js';

/** Sends the identity of this node, if it is known. */
export function sendIdentity(connection: Connection, { identity }: PathNode): void {
  if (!identity) return;
  const kind = ControlKind.IDENTITY;
  connection.say(buildControl({ kind, isSet: true, isReset: true, ports: [], identity }));
}

/** Its addresses but for the one that the peer knows. */
export function sendAddresses(connection: Connection, node: PathNode, home: number): void {
  const addresses = node.addresses.filter((_, index) => index !== home);
  const kind = ControlKind.ADDRESSES;
  connection.say(buildControl({ kind, isSet: true, isReset: true, ports: [], addresses }));
}

/** All ports of a kind, anew. */
function sendPorts(connection: Connection, kind: number, ports: readonly number[]): void {
  for (let from = 0; from === 0 || from < ports.length; from += CONTROL_PORTS_MAX) {
    const some = ports.slice(from, from + CONTROL_PORTS_MAX);
    connection.say(buildControl({ kind, isSet: true, isReset: from === 0, ports: some }));
  }
}

/** Token that the peer presents after its machine has changed its address. */
export function sendToken(connection: Connection, token: number): void {
  const kind = ControlKind.TOKEN;
  connection.say(buildControl({ kind, isSet: true, isReset: true, ports: [], token }));
}

/** Addresses, bound ports and stalled ports, for a peer that may be alive. */
export function sendHello(connection: Connection, node: PathNode, home: number): void {
  if (node.addresses.length > 1) sendAddresses(connection, node, home);
  sendPorts(connection, ControlKind.PORTS, node.boundPorts());
  sendPorts(connection, ControlKind.STALLS, node.stalledPorts());
}

/** It lives. */
export function sendHeartbeat(connection: Connection, now: number): void {
  connection.say(
    buildControl({ kind: ControlKind.HEARTBEAT, isSet: false, isReset: false, ports: [] }),
  );
  connection.pump(now);
}
