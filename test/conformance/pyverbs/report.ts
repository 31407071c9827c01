/** After a whole run: did every test that the table names come through all its worlds? */
import { existsSync, readFileSync } from 'node:fs';
import { count, readTable } from './table.js';
import { RAN_FOLDER, WORLD_NAMES, type Ran } from './ran.js';

export interface Report {
  /** `N of 231 covered, M exceptions`. */
  readonly sentence: string;
  readonly complaints: readonly string[];
}

export function report(): Report {
  const table = readTable();
  const complaints: string[] = [];
  let through = 0;
  for (const [file, rows] of Object.entries(table)) {
    const ran = readRan(file);
    for (const [upstream, { test }] of Object.entries(rows)) {
      if (test === undefined) continue;
      const record = ran[upstream];
      const everywhere = WORLD_NAMES.every((world) => record?.worlds.includes(world));
      if (record?.name === test && everywhere) through++;
      else complaints.push(`${file}: "${test}" did not come through ${WORLD_NAMES.join(', ')}`);
    }
  }
  const { exceptions, later, all } = count(table);
  const sentence = `pyverbs: ${through} of ${all} covered, ${exceptions} exceptions, ${later} later`;
  return { sentence, complaints };
}

function readRan(file: string): { readonly [upstream: string]: Ran } {
  const record = new URL(`${file}.json`, RAN_FOLDER);
  if (!existsSync(record)) return {};
  return JSON.parse(readFileSync(record, 'utf8')) as { [upstream: string]: Ran };
}
