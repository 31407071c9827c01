/**
 * The wording of sources and pages: a sentence names its subject. The table has the number of
 * banned phrases that are left. A change that removes some lowers it, until the row goes.
 */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';

/** Pronouns in place of a subject, and passives that hide one. */
const BANNED = new RegExp(
  [
    String.raw`\b(?:who|whoever|whom|nobody|somebody)\b`,
    String.raw`\b(?:is|are|was|were|be) (?:told|asked|given|none)\b`,
    String.raw`\b(?:so many|what comes|of it)\b`,
  ].join('|'),
  'gi',
);
const FOLDERS = ['assembly', 'host', 'test'];
const PAGES = ['README.md', 'CHANGELOG.md'];
const OWN = 'test/unit/wording.test.ts';

/** Phrases that are left, by folder or page. */
const LEFT: Readonly<Record<string, number>> = {};

function counts(): Map<string, number> {
  const found = new Map<string, number>();
  for (const folder of FOLDERS) {
    const names = readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' });
    for (const name of names.map((each) => each.replaceAll('\\', '/'))) {
      const file = `${folder}/${name}`;
      if (!/\.(ts|cts|md|mjs|html)$/.test(name) || file === OWN) continue;
      count(found, folder, file);
    }
  }
  for (const page of PAGES) count(found, page, page);
  return found;
}

function count(found: Map<string, number>, place: string, file: string): void {
  const text = readFileSync(fileURLToPath(new URL(file, root)), 'utf8');
  const matches = text.match(BANNED)?.length ?? 0;
  if (matches > 0) found.set(place, (found.get(place) ?? 0) + matches);
}

test('no folder has more of the banned phrases than the table says', () => {
  for (const [place, matches] of counts()) {
    assert.ok(matches <= (LEFT[place] ?? 0), `${place}: ${matches}, at most ${LEFT[place] ?? 0}`);
  }
});

test('the table has no row for a folder that is clean', () => {
  const found = counts();
  const clean = Object.keys(LEFT).filter((place) => !found.has(place));
  assert.equal(clean, []);
});

test.run();
