/** places.c, compiled with AddressSanitizer where gcc has it: places of pages of a program. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../../support/paths.js';
import { Workspace } from '../../support/processes.js';
import { Random } from '../../simulation/random.js';

const test = suite('unit/bridge/places');
const MIB_PAGES = 256;

type Line = readonly ['place' | 'free' | 'heap' | 'clear' | 'random' | 'gap', number, number];

function hasCompiler(): boolean {
  return existsSync('/usr/bin/gcc') && existsSync('/usr/include/stdio.h');
}

/** Result of places.c for each `place`: a page, or -1; for each `gap`: pages. */
async function answers(lines: readonly Line[]): Promise<number[]> {
  let found: number[] = [];
  await Workspace.use(async (space) => {
    const program = space.path('places');
    const sanitizer = execFileSync('gcc', ['-print-file-name=libasan.so'], { encoding: 'utf8' });
    const flags = existsSync(sanitizer.trim()) ? ['-fsanitize=address,undefined'] : [];
    const folder = fileURLToPath(new URL('host/bridge/', root));
    const harness = fileURLToPath(new URL('test/unit/bridge/places.c', root));
    const files = [harness, `${folder}places.c`];
    execFileSync('gcc', ['-std=gnu11', '-O1', ...flags, `-I${folder}`, ...files, '-o', program]);
    const input = lines.map((line) => `${line[0]} ${line[1].toString(16)} ${line[2].toString(16)}`);
    const text = execFileSync(program, { input: input.join('\n'), encoding: 'utf8' });
    found = text.split('\n').filter(Boolean).map(Number);
  });
  return found;
}

/** Sizes that a process of Open MPI over UCX registers, in pages: 76 MiB. */
const MPI_SIZES = [9, 6, 1.5 * 4, 38, 20, 10].map((mib) => Math.ceil(mib * MIB_PAGES));
const SEEDS = 2000;

/** The same sizes at addresses that fall, with gaps as the loader leaves them. */
function mpiRanges(random: Random): Line[] {
  let at = 0x7f0000000;
  const sizes = [...MPI_SIZES];
  // The order in which pools grow differs from run to run.
  for (let i = sizes.length - 1; i > 0; i--) {
    const other = random.below(i + 1);
    [sizes[i], sizes[other]] = [sizes[other]!, sizes[i]!];
  }
  return sizes.map((count) => {
    at -= count + random.below(4) * random.below(600 * 16);
    return ['place', at, count];
  });
}

/** Buffers of `count` pages that the C library maps one below the other, with a page between. */
function buffers(number: number, count: number): Line[] {
  return Array.from({ length: number }, (_, i) => ['place', 0x7f0000000 - i * (count + 1), count]);
}

if (hasCompiler()) {
  test('the ranges of an MPI process find places in 128 MiB wherever they lie', async () => {
    const lines: Line[] = [];
    for (let seed = 1; seed <= SEEDS; seed++) {
      lines.push(['clear', 128 * MIB_PAGES, 0], ...mpiRanges(new Random(seed)));
    }
    const places = await answers(lines);
    assert.is(places.length, SEEDS * MPI_SIZES.length);
    assert.is(places.filter((page) => page < 0).length, 0);
  });

  for (const [mib, least] of [
    [0.125, 0.95],
    [1, 0.95],
    [4, 0.9],
    [20, 0.9],
    [38, 0.8],
  ] as const) {
    test(`buffers of ${mib} MiB fill ${least} of the memory`, async () => {
      const count = mib * MIB_PAGES + 1;
      const number = Math.ceil((128 * MIB_PAGES) / count);
      const places = await answers([['clear', 128 * MIB_PAGES, 0], ...buffers(number, count)]);
      const used = places.filter((page) => page >= 0).length * count;
      assert.ok(used >= least * 128 * MIB_PAGES, `${used} of ${128 * MIB_PAGES}`);
    });
  }

  test('a range keeps its place, and its neighbours get the neighbouring places', async () => {
    const [low, same, above, below, spanning] = await answers([
      ['clear', 1024, 0],
      ['place', 0x1000, 4],
      ['place', 0x1001, 2],
      ['place', 0x1004, 3],
      ['place', 0xfff, 1],
      ['place', 0xffe, 9],
    ]);
    assert.is(same, low! + 1);
    assert.is(above, low! + 4);
    assert.is(below, low! - 1);
    assert.is(spanning, low! - 2);
  });

  test('buffers of a heap keep their distance, in any order', async () => {
    const heap = 60 * MIB_PAGES;
    const order = Array.from({ length: 600 }, (_, i) => (i * 7919) % 600);
    const places = await answers([
      ['clear', 128 * MIB_PAGES, 0],
      ['heap', 0x1000, heap],
      ...order.map((at): Line => ['place', 0x1000 + at * 25, 3]),
      ['heap', 0x90000, 20 * MIB_PAGES],
      ['place', 0x90000, 20 * MIB_PAGES],
    ]);
    const other = places.pop()!;
    const [first] = places;
    assert.equal(
      places,
      order.map((at) => first! + (at - order[0]!) * 25),
    );
    assert.ok(other >= 0, 'a second heap');
  });

  test('a place that is freed is used again', async () => {
    const [first, full, again] = await answers([
      ['clear', 64, 0],
      ['place', 0x1000, 50],
      ['place', 0x9000, 50],
      ['free', 0x1000, 50],
      ['place', 0x9000, 50],
    ]);
    assert.ok(first! >= 0 && again! >= 0, `${first} ${again}`);
    assert.is(full, -1);
  });

  test('more pages than there are have no place', async () => {
    assert.equal(
      await answers([
        ['clear', 16, 0],
        ['place', 0x10, 17],
        ['place', 0x10, 16],
        ['place', 0x20, 1],
      ]),
      [-1, 0, -1],
    );
  });

  test('the largest gap is the one that fits most pages', async () => {
    const [all, at, below, full, none, freed] = await answers([
      ['clear', 64, 0],
      ['gap', 0, 0],
      ['place', 0x1000, 20],
      ['gap', 0, 0],
      ['place', 0x90000, 40],
      ['gap', 0, 0],
      ['free', 0x90000, 40],
      ['gap', 0, 0],
    ]);
    assert.is(all, 64);
    assert.ok(below === Math.max(at!, 44 - at!) && full! >= 0, `${below} ${full}`);
    assert.ok(none! < 5, `${none}`);
    assert.is(freed, below);
  });

  test('places agree with the owners of all pages, whatever is taken and left', async () => {
    const lines: Line[] = [];
    for (let seed = 1; seed <= 20; seed++) lines.push(['clear', 300, 0], ['random', seed, 1000]);
    assert.equal(await answers(lines), []);
  });
}

test.run();
