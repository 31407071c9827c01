/**
 * Which folder of host/ imports which, drawn from the sources. `node build/test/support/import-graph.js`
 * writes it into host/README.md.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { root } from './paths.js';

const host = fileURLToPath(new URL('host/', root));
const BEGIN = '<!-- graph: npm run graph -->';
const END = '<!-- end of graph -->';

function folderOf(file: string): string {
  const parts = file.split('/');
  return parts.length > 1 ? parts[0]! : 'index.ts';
}

/** Folders, and those that each imports; a file at the top is its own folder. */
function edges(): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  const names = readdirSync(host, { recursive: true, encoding: 'utf8' });
  for (const file of names.filter((name) => name.endsWith('.ts')).sort()) {
    const from = folderOf(file);
    const to = found.get(from) ?? new Set<string>();
    found.set(from, to);
    const text = readFileSync(host + file, 'utf8');
    for (const [, target] of text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)) {
      const folder = folderOf(relative(host, resolve(host, dirname(file), target!)));
      if (folder !== from) to.add(folder);
    }
  }
  return found;
}

/** Is there a way of two steps or more? There are no circles: a test sees to that. */
function leads(graph: ReadonlyMap<string, ReadonlySet<string>>, from: string, to: string): boolean {
  for (const next of graph.get(from) ?? []) {
    if (next !== to && (graph.get(next)?.has(to) || leads(graph, next, to))) return true;
  }
  return false;
}

/** As Mermaid draws it. */
export function importGraph(): string {
  const graph = edges();
  const lines = [...graph].flatMap(([from, targets]) =>
    [...targets]
      .filter((to) => !leads(graph, from, to))
      .sort()
      .map((to) => `  ${from} --> ${to}`),
  );
  return ['```mermaid', 'graph TD', ...lines.sort(), '```'].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const file = `${host}README.md`;
  const text = readFileSync(file, 'utf8');
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error('host/README.md has no place for the graph');
  const head = text.slice(0, begin + BEGIN.length);
  writeFileSync(file, `${head}\n\n${importGraph()}\n\n${text.slice(end)}`);
}
