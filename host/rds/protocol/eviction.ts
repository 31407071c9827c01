/** Room for another peer, where there are as many as there may be. */
import type { Path } from './path.js';

/** So many are looked at: a peer that is refused costs its sender more than us. */
const LOOKS_MAX = 32;

/** Of peers that were asked for, or asked, and never came to be one goes. False: there is none. */
export function makeRoom(paths: Map<string, Path>, now: number): boolean {
  let looks = 0;
  for (const [key, path] of paths) {
    paths.delete(key);
    if (path.isNobody) {
      path.close(now);
      return true;
    }
    // The others come first next time.
    paths.set(key, path);
    if (++looks === LOOKS_MAX) break;
  }
  return false;
}
