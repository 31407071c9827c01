/** Acts of the buttons of the page itself, beside painting. `inside.ts` has the others. */
import type { MainAct } from './act.js';
import { plug } from './plug.js';
import { race } from './race.js';

export const mainActs: readonly MainAct[] = [race, plug];
