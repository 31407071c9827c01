/** The wording of sources and pages: a sentence names its subject. */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';
import { test } from '../support/suite.js';

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

test('no source and no page has a banned phrase', () => {
  const folders = FOLDERS.flatMap((folder) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
      .map((name) => `${folder}/${name.replaceAll('\\', '/')}`)
      .filter((file) => /\.(ts|cts|md|mjs|html)$/.test(file) && file !== OWN),
  );
  for (const file of [...PAGES, ...folders]) {
    const text = readFileSync(fileURLToPath(new URL(file, root)), 'utf8');
    assert.equal(text.match(BANNED) ?? [], [], file);
  }
});
