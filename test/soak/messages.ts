/** Messages between the coordinator and the members of a soak. */
export interface PeerPlace {
  readonly member: number;
  readonly incarnation: number;
  readonly port: number;
  readonly udpPort: number;
  /** Of its datagram queue pair. */
  readonly qpn: number;
}

export type Order =
  | { readonly kind: 'peers'; readonly peers: readonly PeerPlace[] }
  | { readonly kind: 'loss'; readonly loss: number }
  | { readonly kind: 'stop' };

/** Bytes. */
export interface MemoryUse {
  readonly rss: number;
  readonly heap: number;
  /** Of the engine's memory, what is taken, but for the receives. */
  readonly engine: number;
  /** Of reliable datagrams, which keep what a burst once needed; their node has a limit for it. */
  readonly receives: number;
}

export type Counts = Readonly<Record<string, number>>;

export type Report =
  | ({ readonly kind: 'up' } & PeerPlace)
  /** `count` records are in the ring of `writer` at `owner`, and were flushed. */
  | { readonly kind: 'ring'; readonly owner: number; readonly count: number }
  /** State of the ring when the writer came back. */
  | { readonly kind: 'found'; readonly owner: number; readonly count: number }
  | {
      readonly kind: 'beat';
      readonly memory: MemoryUse;
      readonly counts: Counts;
      /** Operations that it waits for, before it can end. */
      readonly pending: readonly string[];
    }
  | { readonly kind: 'violation'; readonly sentence: string }
  /** An extra file: was there room? */
  | { readonly kind: 'disk'; readonly code: string };

export interface Start {
  readonly member: number;
  readonly incarnation: number;
  readonly members: number;
  readonly directory: string;
  /** A thread of its own, or this thread and a link that can lose packets. */
  readonly isLossy: boolean;
  readonly seed: number;
}

export function ledgerPath(directory: string, member: number): string {
  return `${directory}/ring-${member}`;
}
