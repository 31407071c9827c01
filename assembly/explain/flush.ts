/** Phrases for the placement of a FLUSH. */
import { PlacementType } from '../wire/headers';

export { PlacementType, SelectivityLevel, placementOf, selectivityOf } from '../wire/headers';

/** `globally visible and persistent`. */
export function placementPhrase(placement: u32): string {
  const known = placement & (PlacementType.GLOBAL | PlacementType.PERSISTENT);
  if (known == (PlacementType.GLOBAL | PlacementType.PERSISTENT)) {
    return 'globally visible and persistent';
  }
  if (known == PlacementType.GLOBAL) return 'globally visible';
  if (known == PlacementType.PERSISTENT) return 'persistent';
  return '';
}
