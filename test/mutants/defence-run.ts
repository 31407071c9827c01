/** Takes defences of the host out, one at a time: the test that a row names must fail. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { root } from '../support/paths.js';
import { runToEnd } from '../support/run-to-end.js';
import { HOST_DEFENCES, type HostDefence } from './defences.js';

/** A test that hangs has noticed. */
const TEST_SECONDS_MAX = 120;

/** The compiled text of the file without the defence. */
function without({ name, file, find, replace }: HostDefence): string {
  const source = readFileSync(new URL(file, root), 'utf8');
  const changed = source.replace(find, () => replace);
  if (changed === source) throw new Error(`${name}: its text is not in ${file}`);
  const { outputText } = ts.transpileModule(changed, {
    compilerOptions: {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      verbatimModuleSyntax: true,
    },
  });
  return outputText;
}

async function isNoticed(defence: HostDefence, test: string): Promise<boolean> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-defence-'));
  try {
    const text = join(folder, 'module.mjs');
    writeFileSync(text, without(defence));
    const hook = new URL('host-hook.js', import.meta.url).href;
    const env = {
      ...process.env,
      NODE_OPTIONS: `--import ${hook}`,
      VERBENA_DEFENCE_MODULE: new URL(`build/${defence.file.replace(/\.ts$/, '.js')}`, root).href,
      VERBENA_DEFENCE_TEXT: text,
    };
    const path = fileURLToPath(new URL(`build/test/${test}.test.js`, root));
    const { code } = await runToEnd([path], TEST_SECONDS_MAX, { env });
    return code !== 0;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Runs the rows that have one of `parts` in their name; no parts: all of the host. */
export async function judgeHostDefences(
  wanted: (name: string) => boolean,
): Promise<{ passed: number; failed: number }> {
  let [passed, failed] = [0, 0];
  for (const defence of HOST_DEFENCES.filter(({ name }) => wanted(name))) {
    const noticed = await isNoticed(defence, defence.test);
    if (noticed) passed++;
    else failed++;
    console.log(`${noticed ? 'noticed ' : 'SURVIVED'}  ${defence.name}  ${defence.test}`);
  }
  return { passed, failed };
}
