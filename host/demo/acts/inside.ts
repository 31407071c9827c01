/** Experiments behind "look inside", in the order of the page. One more: a file, a line here. */
import type { Act } from './act.js';
import { burst } from './burst.js';
import { column } from './column.js';
import { compareAndSwap } from './compare-and-swap.js';
import { loss } from './loss.js';
import { sharedDomain } from './shared-domain.js';
import { slowReceiver } from './slow-receiver.js';
import { wrongKey } from './wrong-key.js';

export const insideActs: readonly Act[] = [
  loss,
  column,
  compareAndSwap,
  slowReceiver,
  wrongKey,
  sharedDomain,
  burst,
];
