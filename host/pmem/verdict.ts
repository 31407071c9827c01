/** Durability of a storage, with the reason. */

/**
 * `dax`: a file system that maps persistent memory itself (fsdax): a flush writes processor caches
 * back. `disk`: a flush ends when the drive (of a virtual machine: its host) reports success.
 * `unknown`: another machine, a program, or a device that the system does not show decides what a
 * flush does. `none`: data survive the end of processes, but no power cut: memory of the kernel, or
 * a file system that omits syncs or flushes. `browser`: the origin's own files; as `disk` if the
 * browser passes a flush on. The browser may remove all of them when storage gets scarce, unless
 * `navigator.storage.persist()` was granted.
 */
export type Durability = 'dax' | 'disk' | 'unknown' | 'none' | 'browser';

export interface Verdict {
  readonly durability: Durability;
  /** The storage: `ext4 on vda (write cache is flushed)`. */
  readonly reason: string;
}

const ORDER: readonly Durability[] = ['none', 'unknown', 'browser', 'disk', 'dax'];

/** The least durable of several parts that are all needed. `all`: not empty. */
export function worst(all: readonly Verdict[]): Verdict {
  return all.reduce((a, b) => (ORDER.indexOf(b.durability) < ORDER.indexOf(a.durability) ? b : a));
}
