/** The plugin that writes enums in fewer bytes: equal values, or an error with the line. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { build, type Plugin } from 'esbuild';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../../support/paths.js';

const { compactAbi } = (await import(`${root.href}host/browser/compact-abi.mjs`)) as {
  compactAbi: Plugin;
};
const folder = mkdtempSync(join(tmpdir(), 'verbena-compact-abi-'));
test.after(() => rmSync(folder, { recursive: true, force: true }));

const ABI = `export const Fence = /* @__PURE__ */ Object.freeze({
  OPEN: 4,
  SHUT: 6,
  NONE: 0,
});
export const FenceName = /* @__PURE__ */ Object.freeze({
  4: 'OPEN',
  6: 'SHUT',
  0: 'NONE',
});
export const HeadLayout = /* @__PURE__ */ Object.freeze({
  size: 4,
  fields: {
    kind: [0, 'u32'],
  },
});
`;
const ENTRY = 'export * from "#build/abi.js"; export const text = "kind";';

/** The exports of a bundle of these files. */
async function bundled(files: Readonly<Record<string, string>>): Promise<Record<string, unknown>> {
  const imports = '{ "imports": { "#build/*": "./build/*" } }';
  const all = { 'package.json': imports, 'build/abi.js': ABI, 'entry.ts': ENTRY, ...files };
  for (const [name, text] of Object.entries(all)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  const { outputFiles } = await build({
    entryPoints: [join(folder, 'entry.ts')],
    bundle: true,
    format: 'esm',
    write: false,
    logLevel: 'silent',
    plugins: [compactAbi],
  });
  const url = `data:text/javascript;base64,${Buffer.from(outputFiles[0]!.contents).toString('base64')}`;
  return (await import(url)) as Record<string, unknown>;
}

async function refusal(files: Readonly<Record<string, string>>): Promise<string> {
  return bundled(files).then(
    () => 'no error',
    (error: unknown) => (error as Error).message.replaceAll(folder, '').split('compact-abi: ')[1]!,
  );
}

const from = (file: string): string => `export * from "./${file.replace('.ts', '.js')}";`;

test('values that a bundle computes are those of the sources, 0 behind others as well', async () => {
  const file = 'host/verbs/constants.ts';
  const { Fence, FenceName, Bit } = await bundled({
    'entry.ts': `${ENTRY} ${from(file)}`,
    [file]: `export const Bit = {
  /** The last that is positive. */
  HIGH: 1 << 30,
  HEX: 0x1f,
  LOW: 1 << 0,
  NEXT: 1 << 1,
  THIRD: 1 << 2,
} as const;
`,
  });
  assert.equal(Fence, { OPEN: 4, SHUT: 6, NONE: 0 });
  assert.equal(FenceName, { 4: 'OPEN', 6: 'SHUT', 0: 'NONE' });
  assert.equal(Bit, { HIGH: 2 ** 30, HEX: 31, LOW: 1, NEXT: 2, THIRD: 4 });
});

test('a value that is no whole number, or a bit beyond 30, is an error with its line', async () => {
  const file = 'host/cm/enums.ts';
  const rule = 'write a whole number, or 1 << BIT with a BIT of at most 30';
  for (const value of ['1 << 31', '1 << 32', '1 << OTHER', 'OTHER', '1_000', '7n']) {
    const text = `/** Two lines before. */

export const Way = Object.freeze({
  /** A comment. */
  FIRST: 1,
  SECOND: ${value},
});
`;
    const says = await refusal({ 'entry.ts': `${ENTRY} ${from(file)}`, [file]: text });
    assert.is(says.trim(), `/host/cm/enums.ts:6: Way has "SECOND: ${value}"; ${rule}`);
  }
});

test('an enum that no application sees has whole numbers as well', async () => {
  const file = 'host/mesh/control.ts';
  for (const value of ['OTHER', "'a'", '1 << 2', '-0.5']) {
    const text = `export const ControlKind = {
  /** Its kind: of the first. */
  FIRST: 1,
  SECOND: ${value},
} as const;
`;
    const says = await refusal({ 'entry.ts': `${ENTRY} ${from(file)}`, [file]: text });
    assert.match(says, `/host/mesh/control.ts:4: ControlKind has "SECOND: ${value}"; write`);
  }
});

test('a file in which nothing is written in fewer bytes is an error', async () => {
  const other = 'export const Other = {\n  A: [1],\n};\n';
  for (const file of ['host/cm/enums.ts', 'host/mesh/control.ts', 'host/remote/hello.ts']) {
    const says = await refusal({ 'entry.ts': `${ENTRY} ${from(file)}`, [file]: other });
    assert.match(says, `/${file}:1: no enum is found`);
  }
  const names = ABI.replace('FenceName', 'Names');
  const layout = ABI.replace('HeadLayout', 'Head');
  assert.match(await refusal({ 'build/abi.js': names }), '/build/abi.js:1: no table of names');
  assert.match(await refusal({ 'build/abi.js': layout }), '/build/abi.js:1: no layout is found');
});

test.run();
