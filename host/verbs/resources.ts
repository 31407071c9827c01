/** What somebody has made and has not ended yet. */
import { RefusalError } from '../errors/errors.js';

/**
 * Ends all of them, the newest first, and those later that others stood on. Throws RefusalError
 * EBUSY when something stands on them that is none of them; the rest is ended then.
 */
export function disposeAll(resources: readonly Disposable[]): void {
  let left = [...resources].reverse();
  for (let before = Infinity; left.length < before;) {
    before = left.length;
    let refusal: RefusalError | undefined;
    left = left.filter((resource) => {
      try {
        resource[Symbol.dispose]();
        return false;
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
        // Whatever else it says: another one has ended it already.
        if (error.code !== 'EBUSY') return false;
        refusal = error;
        return true;
      }
    });
    if (left.length === 0) return;
    if (left.length === before && refusal) throw refusal;
  }
}
