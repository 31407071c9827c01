/** Objects that a context or domain created and that have not been destroyed. */
import { RefusalError } from '../errors/errors.js';

/**
 * Destroys all of them, the newest first, and those with dependents later. Throws RefusalError
 * EBUSY if an object that is not in the list depends on one; the rest is destroyed then.
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
