/** How many connections the offers of each source have made, or may be making. */
import { sourceOf } from '../source-shares.js';

/** An answered offer is connected by then, or has failed. */
const ATTEMPT_MILLIS = 15_000;
/** Sources that are looked through when there are many: those without a connection are left out. */
const SOURCES_KEPT = 1024;

export class SessionCount {
  /** By source and address of the peer: when its latest attempt is over. */
  readonly #sources = new Map<string, Map<string, number[]>>();
  readonly #now: () => number;

  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /**
   * Counts one more offer of the peer `gid` from this remote address. False: its source has `most`
   * already. `isPresent`: is the peer of that address connected?
   */
  enter(
    remoteAddress: string | undefined,
    gid: string,
    most: number,
    isPresent: (gid: string) => boolean,
  ): boolean {
    const source = sourceOf(remoteAddress);
    if (this.#sources.size >= SOURCES_KEPT) {
      for (const other of this.#sources.keys()) this.#count(other, isPresent);
    }
    if (this.#count(source, isPresent) >= most) return false;
    const peers = this.#sources.get(source) ?? new Map<string, number[]>();
    this.#sources.set(source, peers);
    peers.set(gid, [...(peers.get(gid) ?? []), this.#now() + ATTEMPT_MILLIS]);
    return true;
  }

  #count(source: string, isPresent: (gid: string) => boolean): number {
    const peers = this.#sources.get(source);
    if (!peers) return 0;
    const now = this.#now();
    let count = 0;
    for (const [gid, ends] of peers) {
      const open = ends.filter((end) => end > now);
      const isThere = isPresent(gid);
      if (open.length === 0 && !isThere) peers.delete(gid);
      else peers.set(gid, open);
      count += Math.max(open.length, isThere ? 1 : 0);
    }
    if (peers.size === 0) this.#sources.delete(source);
    return count;
  }
}
