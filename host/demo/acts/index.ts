/** The buttons, in the order of the page. One more: a file beside this one, and a line below. */
import type { Act } from './act.js';
import { burst } from './burst.js';
import { column } from './column.js';
import { compareAndSwap } from './compare-and-swap.js';
import { crash } from './crash.js';
import { loss } from './loss.js';
import { sharedDomain } from './shared-domain.js';
import { slowReceiver } from './slow-receiver.js';
import { wrongKey } from './wrong-key.js';

export const acts: readonly Act[] = [
  column,
  compareAndSwap,
  slowReceiver,
  wrongKey,
  sharedDomain,
  burst,
  crash,
  loss,
];
