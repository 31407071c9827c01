/** apertures.c, compiled with AddressSanitizer where gcc has it: places of program ranges. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../../support/paths.js';
import { Workspace } from '../../support/processes.js';
import { Random } from '../../simulation/random.js';

const test = suite('unit/bridge/apertures');
const MIB_APERTURES = 16;
/** Bytes of an aperture. */
const BYTES = 0x10000;

type Line = readonly ['place' | 'free' | 'clear', number, number];

function hasCompiler(): boolean {
  return existsSync('/usr/bin/gcc') && existsSync('/usr/include/stdio.h');
}

/** Result of apertures.c for each `place`: an aperture, or -1. */
async function answers(lines: readonly Line[]): Promise<number[]> {
  let found: number[] = [];
  await Workspace.use(async (space) => {
    const program = space.path('apertures');
    const sanitizer = execFileSync('gcc', ['-print-file-name=libasan.so'], { encoding: 'utf8' });
    const flags = existsSync(sanitizer.trim()) ? ['-fsanitize=address,undefined'] : [];
    const folder = fileURLToPath(new URL('host/bridge/', root));
    const harness = fileURLToPath(new URL('test/unit/bridge/apertures.c', root));
    const files = [harness, `${folder}apertures.c`];
    execFileSync('gcc', ['-std=gnu11', '-O1', ...flags, `-I${folder}`, ...files, '-o', program]);
    const input = lines.map((line) => `${line[0]} ${line[1].toString(16)} ${line[2].toString(16)}`);
    const text = execFileSync(program, { input: input.join('\n'), encoding: 'utf8' });
    found = text.trim().split('\n').map(Number);
  });
  return found;
}

/** Sizes that a process of Open MPI over UCX registers, in apertures: 76 MiB. */
const MPI_SIZES = [9, 6, 1.5 * 4, 38, 20, 10].map((mib) => Math.ceil(mib * MIB_APERTURES));

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
    at -= count + random.below(4) * random.below(600);
    return ['place', at, count];
  });
}

if (hasCompiler()) {
  test('the ranges of an MPI process find places in 128 MiB wherever they lie', async () => {
    const lines: Line[] = [];
    for (let seed = 1; seed <= 2000; seed++) {
      lines.push(['clear', 128 * MIB_APERTURES, BYTES], ...mpiRanges(new Random(seed)));
    }
    const places = await answers(lines);
    assert.is(places.length, 2000 * MPI_SIZES.length);
    assert.is(places.filter((first) => first < 0).length, 0);
  });

  test('a range keeps its aperture, and its neighbours get the neighbouring apertures', async () => {
    const [low, same, above, below, spanning] = await answers([
      ['clear', 1024, BYTES],
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

  test('a range between two that cannot be joined has no place until one of them is freed', async () => {
    const [left, right, between, again] = await answers([
      ['clear', 64, BYTES],
      ['place', 0x1000, 20],
      ['place', 0x9000, 20],
      // From the first to behind the apertures of the second.
      ['place', 0x1000, 50],
      ['free', 0x9000, 20],
      ['place', 0x1000, 50],
    ]);
    assert.not.equal(left, right);
    assert.is(between, -1);
    assert.ok(again! >= 0 || left! > 14, `${left} ${again}`);
  });

  test('more apertures than there are have no place', async () => {
    assert.equal(
      await answers([
        ['clear', 16, BYTES],
        ['place', 0x10, 17],
        ['place', 0x10, 16],
        ['place', 0x20, 1],
      ]),
      [-1, 0, -1],
    );
  });
}

test.run();
