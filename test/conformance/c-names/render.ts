/** Writes c-names.md. */
import { writeFileSync } from 'node:fs';
import { RENDERED, readHeaders, readMapping, render } from './names.js';

writeFileSync(RENDERED, render(readHeaders(), readMapping()));
