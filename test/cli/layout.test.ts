/** `verbena layout`: drawings, and what is wrong with a description. */
import { readFileSync, writeFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { explainLayout, mpiIndexed } from '../../host/index.js';
import { Workspace } from '../support/processes.js';

const COLUMN = {
  areas: { matrix: 512 },
  interleaved: [
    {
      firstDatum: { area: 'matrix', addr: 8, length: 8 },
      numRepeated: 1,
      dims: [{ offsetStride: 64, datumCount: 8 }],
    },
  ],
};

async function layout(workspace: Workspace, description: unknown, ...options: string[]) {
  const file = workspace.path('layout.json');
  const text = typeof description === 'string' ? description : JSON.stringify(description);
  writeFileSync(file, text);
  return workspace.start('layout', file, ...options).ended;
}

test('a column: a sentence, a rectangle for each byte, the row below', () =>
  Workspace.use(async (workspace) => {
    const output = workspace.path('column.svg');
    const { code, stdout } = await layout(workspace, COLUMN, '-o', output);
    assert.is(code, 0);
    const sentence = '64 bytes in a row: 8 data of 8 bytes, 64 bytes apart, from 8 of matrix.';
    assert.is(stdout.trim(), sentence);
    const svg = readFileSync(output, 'utf8');
    assert.match(svg, /^<svg xmlns="http:\/\/www.w3.org\/2000\/svg"[^]*<\/svg>\n$/);
    assert.is(svg.match(/<rect /g)!.length, 512 + 64);
    assert.match(svg, '<title>byte 72 of matrix: 8 in the row</title>');
    assert.match(svg, '<title>8 in the row: byte 72 of matrix</title>');
    assert.match(svg, '<title>byte 0 of matrix</title>');
  }));

test('--json: where each byte comes from', () =>
  Workspace.use(async (workspace) => {
    const sg = [
      { area: 'b', addr: 300, length: 2 },
      { area: 'a', addr: 0, length: 1 },
    ];
    const { stdout } = await layout(workspace, { areas: { a: 1, b: 400 }, sg }, '--json');
    const { sentence, bytes, from } = JSON.parse(stdout) as { [name: string]: unknown };
    assert.is(sentence, '3 bytes in a row: 2 bytes from 300 of b; 1 byte from 0 of a.');
    assert.equal(
      [bytes, from],
      [
        3,
        [
          ['b', 300],
          ['b', 301],
          ['a', 0],
        ],
      ],
    );
  }));

test('what is wrong is one line, and exit code 1', () =>
  Workspace.use(async (workspace) => {
    const cases: readonly [unknown, RegExp][] = [
      ['{', /not JSON/],
      [{}, /areas must be an object/],
      [{ areas: { a: 0 }, sg: [] }, /areas.a must be 1 to 65536/],
      [{ areas: { a: 1 } }, /one list is required: sg or interleaved/],
      [
        { areas: { a: 8 }, sg: [{ area: 'b', addr: 0, length: 1 }] },
        /sg\[0\].area must be one of a/,
      ],
      [{ areas: { a: 8 }, sg: [{ area: 'a', addr: 0 }] }, /sg\[0\].length must be a whole number/],
      [{ areas: { a: 8 }, sg: [{ area: 'a', addr: 4, length: 5 }] }, /entry 0 goes beyond/],
      [{ ...COLUMN, areas: { matrix: 400 } }, /entry 0 goes beyond the end/],
      [
        { areas: { a: 8 }, interleaved: [{ firstDatum: { area: 'a', addr: 0, length: 1 } }] },
        /dims/,
      ],
    ];
    for (const [description, pattern] of cases) {
      const { code, stdout, stderr } = await layout(workspace, description);
      assert.equal([code, stdout], [1, '']);
      assert.match(stderr, /^verbena layout: [^\n]+\n$/);
      assert.match(stderr, pattern);
    }
    assert.match((await workspace.start('layout', '/no/such/file').ended).stderr, /ENOENT/);
  }));

test('layouts are explained: interleaved sources, dimensions, a count of further pieces', () => {
  const source = (addr: number, numRepeated: number) => ({
    firstDatum: { addr, length: 4, lkey: 0xabc },
    numRepeated,
    dims: [
      { offsetStride: 8, datumCount: 18 },
      { offsetStride: 400, datumCount: 2 },
    ],
  });
  assert.is(
    explainLayout([source(0, 3), source(1000, 2)]),
    '288 bytes in a row, in turn: 3 at a time of 18 data of 4 bytes, 8 bytes apart, 2 times 400 ' +
      'bytes on, from 0 of key 0xabc; 2 at a time of 18 data of 4 bytes, 8 bytes apart, 2 times ' +
      '400 bytes on, from 1000 of key 0xabc.',
  );
  const list = mpiIndexed({ addr: 0, lkey: 1 }, [1, 1, 1, 1, 1, 1], [9, 7, 5, 3, 1, 0], 1);
  assert.match(explainLayout(list), /^6 bytes in a row: .*; and 2 more\.$/);
});

test.run();
