/** Writes pyverbs.md. */
import { writeFileSync } from 'node:fs';
import { RENDERED, readTable, render } from './table.js';

writeFileSync(RENDERED, render(readTable()));
