/** Routes to a peer: pairs of a local address and an address of the peer; one of them is in use. */
import type { Endpoint } from '../../link/endpoint.js';
import type { Route } from './transport.js';

/**
 * Local address for a peer: of its family, with the longest common prefix. So the address selects
 * the device if there are several. `reserves`: indices that no peer knows the node by.
 */
export function homeTowards(
  addresses: readonly Endpoint[],
  { gid }: Endpoint,
  reserves: ReadonlySet<number>,
): number {
  let [best, most] = [0, -1];
  for (const [index, own] of addresses.entries()) {
    if (reserves.has(index)) continue;
    const bits = own.gid.isIpv4 === gid.isIpv4 ? commonBits(own.gid.bytes, gid.bytes) : -1;
    if (bits > most) [best, most] = [index, bits];
  }
  return best;
}

function commonBits(one: Uint8Array, other: Uint8Array): number {
  for (let index = 0; index < one.length; index++) {
    const difference = one[index]! ^ other[index]!;
    if (difference !== 0) return index * 8 + Math.clz32(difference) - 24;
  }
  return one.length * 8;
}

/** Limit of a node's addresses. */
export const ADDRESSES_MAX = 8;

export class Routes {
  current: Route;
  /** Index of the local address by which the peer knows this node. */
  readonly home: number;
  readonly #ours: () => readonly Endpoint[];
  readonly #mayLeave: (from: number) => boolean;
  #theirs: readonly Endpoint[];
  /** Routes that failed in a row since one worked. */
  #failures = 0;
  readonly #tried = new Set<string>();

  /** `ours`: the node's addresses, which can grow; `mayLeave`: those that this peer may see. */
  constructor(
    ours: () => readonly Endpoint[],
    home: number,
    peer: Endpoint,
    mayLeave: (from: number) => boolean = () => true,
  ) {
    this.#ours = ours;
    this.#mayLeave = mayLeave;
    this.home = home;
    this.#theirs = [peer];
    this.current = { from: home, to: peer };
  }

  /** Addresses besides its first from which the peer may connect. */
  get alternates(): readonly Endpoint[] {
    return this.#theirs.slice(1);
  }

  /** The addresses by which both sides know each other. */
  get #named(): Route {
    return { from: this.home, to: this.#theirs[0]! };
  }

  get count(): number {
    return this.#all().length;
  }

  get areAllTried(): boolean {
    return this.#failures >= this.count;
  }

  /** Replaces the peer's alternate addresses. */
  teach(alternates: readonly Endpoint[]): void {
    const [first] = this.#theirs;
    const others = alternates.filter((other) => !other.equals(first!));
    this.#theirs = [first!, ...others.slice(0, ADDRESSES_MAX - 1)];
    const isKnown = this.#all().some((route) => isSameRoute(route, this.current));
    if (!isKnown) this.current = { from: this.home, to: first! };
  }

  worked(route: Route): void {
    this.current = route;
    this.#failures = 0;
    this.#tried.clear();
  }

  /**
   * Selects another route unless a connection has already left this one. Behind the named route an
   * untried one follows, at first one that shares no end with it; behind each other one the named
   * route follows again, since the peer may have restarted: then it has that address only.
   */
  failed(route: Route): void {
    if (!isSameRoute(route, this.current)) return;
    // The named route is tried several times in a round, and counts once.
    if (!isSameRoute(route, this.#named) || !this.#tried.has(keyOf(route))) this.#failures++;
    this.skip(route);
  }

  /** The peer rejected the request: another route is tried; this one has not failed. */
  skip(route: Route): void {
    if (!isSameRoute(route, this.current)) return;
    const others = this.#all().filter((other) => !isSameRoute(other, route));
    let untried = others.filter((other) => !this.#tried.has(keyOf(other)));
    if (untried.length === 0) {
      this.#tried.clear();
      untried = others;
    }
    this.#tried.add(keyOf(route));
    const named = this.#named;
    if (others.some((other) => isSameRoute(other, named))) {
      this.current = named;
      return;
    }
    untried.sort((one, other) => endsShared(one, route) - endsShared(other, route));
    this.current = untried[0] ?? route;
  }

  /** Prefers pairs with the same position in both lists: they are most likely on one wire. */
  #all(): Route[] {
    const ours = this.#ours();
    const all: { route: Route; rank: number }[] = [];
    for (const [from, own] of ours.entries()) {
      if (!this.#mayLeave(from)) continue;
      for (const [index, to] of this.#theirs.entries()) {
        if (own.gid.isIpv4 !== to.gid.isIpv4) continue;
        // The addresses behind the one that is known, in order.
        const place = from === this.home ? 0 : from < this.home ? from + 1 : from;
        const rank = (place === index ? 0 : 2 * ADDRESSES_MAX) + place + index;
        all.push({ route: { from, to }, rank });
      }
    }
    return all.sort((one, other) => one.rank - other.rank).map(({ route }) => route);
  }
}

/** Maps alternate addresses to the peers that may connect from them. */
export class Alternates<Peer extends { readonly routes: Routes }> {
  readonly #peers = new Map<string, Set<Peer>>();

  at(address: Endpoint): Iterable<Peer> {
    return this.#peers.get(address.toString()) ?? [];
  }

  /** A peer has named its addresses; `before`: its former ones. */
  taught(peer: Peer, before: readonly Endpoint[]): void {
    for (const address of before) {
      const peers = this.#peers.get(address.toString());
      peers?.delete(peer);
      if (peers?.size === 0) this.#peers.delete(address.toString());
    }
    for (const address of peer.routes.alternates) {
      const key = address.toString();
      const peers = this.#peers.get(key) ?? new Set();
      this.#peers.set(key, peers.add(peer));
    }
  }
}

function keyOf({ from, to }: Route): string {
  return `${from} ${to}`;
}

function endsShared(one: Route, other: Route): number {
  return Number(one.from === other.from) + Number(one.to.equals(other.to));
}

export function isSameRoute(one: Route, other: Route): boolean {
  return one.from === other.from && one.to.equals(other.to);
}

/** Orders by address, then by UDP port. */
export function isBelow(one: Endpoint, other: Endpoint): boolean {
  for (let index = 0; index < 16; index++) {
    const difference = one.gid.bytes[index]! - other.gid.bytes[index]!;
    if (difference !== 0) return difference < 0;
  }
  return one.port < other.port;
}
