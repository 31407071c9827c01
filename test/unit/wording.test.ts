/** The wording of sources and pages: a sentence names its subject; a README stays short. */
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
    String.raw`\b(?:been|being) (?:told|asked|given)\b`,
    String.raw`\b(?:takes|needs|wants|gives|finds) none\b`,
    String.raw`\bthere (?:is|are|was|were) none\b`,
    String.raw`\b(?:knows?|tells) nothing\b`,
    String.raw`\b(?:believes?|minds|cares)\b`,
  ].join('|'),
  'gi',
);
/** Pronouns for a process, a peer or a thread with a name, and verbs that make it a person. */
const PERSONS = /\b(?:everybody|everyone|anybody|anyone|no one|hears|tells)\b/gi;
/** The begin of a comment that leaves its subject open. */
const RIDDLE = /^\s*(?:\/\*\*?|\*|\/{2,3}|#)\s+What\b/gm;
const FOLDERS = ['assembly', 'host', 'test'];
const PAGES = ['README.md', 'CHANGELOG.md'];
const OWN = 'test/unit/wording.test.ts';

/** The end of a line with the mark of a comment or a quotation that begins the next one. */
const LINE_BREAK = /\s*\n\s*(?:\*(?!\/)|\/{2,3}|#|>)?\s*/g;
const SOURCES = /\.(?:ts|cts|md|mjs|html|c|h|sh|json)$|\/guest\/init$/;
/** Written by npm or by other implementations. */
const RECORDED = /(?:^|\/)package-lock\.json$|^test\/vectors\/.*\.json$/;

const README_WORDS_MAX = 650;

function filesOf(folders: readonly string[]): string[] {
  return folders.flatMap((folder) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
      .map((name) => `${folder}/${name.replaceAll('\\', '/')}`)
      .filter((file) => !file.includes('/node_modules/')),
  );
}

const read = (file: string) => readFileSync(fileURLToPath(new URL(file, root)), 'utf8');

const found = (text: string, banned: RegExp): readonly string[] =>
  text.replace(LINE_BREAK, ' ').match(banned) ?? [];

test('a banned phrase across the lines of a comment is found', () => {
  for (const mark of [' * ', '  // ', '# ', '> ', '  ']) {
    assert.equal(found(`the peer is\n${mark}told`, BANNED), ['is told']);
  }
});

test('no source and no page has a banned phrase', () => {
  const sources = filesOf(FOLDERS).filter(
    (file) => SOURCES.test(file) && !RECORDED.test(file) && file !== OWN,
  );
  for (const file of [...PAGES, ...sources]) {
    assert.equal(found(read(file), BANNED), [], file);
  }
});

test('no comment begins with "What"', () => {
  const sources = filesOf(FOLDERS).filter((file) => /\.(?:ts|cts|mjs|c|h|sh)$/.test(file));
  for (const file of sources) assert.equal(read(file).match(RIDDLE) ?? [], [], file);
});

test('no source of the host and no test makes a person of a process, peer or thread', () => {
  const sources = filesOf(['host', 'test']).filter(
    (file) => SOURCES.test(file) && !RECORDED.test(file) && file !== OWN,
  );
  for (const file of [...PAGES, ...sources]) {
    assert.equal(found(read(file), PERSONS), [], file);
  }
});

test('the README of a folder has at most 650 words', () => {
  for (const file of filesOf(FOLDERS).filter((name) => name.endsWith('/README.md'))) {
    const words = read(file).split(/\s+/).filter(Boolean).length;
    assert.ok(words <= README_WORDS_MAX, `${file}: ${words} words`);
  }
});

test.run();
