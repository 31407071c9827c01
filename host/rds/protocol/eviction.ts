/** Room for another peer, where there are as many as there may be. */
import type { Path } from './path.js';

/** Paths examined for each eviction: a refused peer costs its sender more than this node. */
const LOOKS_MAX = 32;

/**
 * Evicts a path that was requested but never established. Returns false if there is no such path.
 */
export function makeRoom(paths: Map<string, Path>, now: number): boolean {
  let looks = 0;
  for (const [key, path] of paths) {
    paths.delete(key);
    if (path.isUnused) {
      path.close(now);
      return true;
    }
    // The others come first next time.
    paths.set(key, path);
    if (++looks === LOOKS_MAX) break;
  }
  return false;
}
