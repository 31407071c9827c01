/** A stencil of 10 and of 10,000 entries: what it costs to apply it elsewhere, and its memory. */
import {
  AccessFlag,
  MrSetLayoutFlag,
  createLoopbackPair,
  openDevice,
  type LayoutMemoryRegion,
  type Sge,
} from '../../host/index.js';
import {
  Stopwatch,
  atMost,
  interleave,
  medianOf,
  medians,
  type Bench,
  type BenchResult,
  type Figures,
} from './harness.js';

const FEW = 10;
const MANY = 10_000;
const MOST = 65_536;
const REBINDS = 20_000;
const AREA = 8 * 2 ** 20;

async function run(): Promise<BenchResult> {
  const { a } = createLoopbackPair({ auto: false });
  const context = await openDevice({ link: a, memoryBytes: 64 * 2 ** 20 });
  const pd = context.allocPd();
  const memory = context.alloc(AREA);
  const mr = pd.regMr(memory, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ);
  const access = AccessFlag.REMOTE_READ;
  /** No two entries of one stride: none is joined with its neighbour. */
  const entries = (count: number): Sge[] =>
    Array.from({ length: count }, (_, index) => ({
      addr: ((index * index * 37) % (AREA / 4)) + (index & 7),
      length: 8 + (index % 3),
      lkey: mr.lkey,
    }));
  const { heap } = context.device.arena;
  const bytes: Figures = {};
  const stencil = (count: number): LayoutMemoryRegion => {
    const layout = pd.regMr(null, 0, access);
    const before = heap.bytesFree;
    layout.setLayoutSg(0, entries(count));
    bytes[`memory_${count}_bytes_per_entry`] = (before - heap.bytesFree) / count;
    return layout;
  };
  const layouts = [FEW, MANY, MOST].map(stencil);
  const remote = pd.regMr(null, 0, access | AccessFlag.ZERO_BASED);
  const base = Number(mr.addr);
  const rebind = (count: number, layout: LayoutMemoryRegion) => (): Figures => {
    const { lkey, length } = layout;
    const watch = new Stopwatch();
    for (let turn = 0; turn < REBINDS; turn++) {
      const addr = base + (turn & 1023) * 64;
      remote.setLayoutSg(MrSetLayoutFlag.AVOID_INVALIDATION, [{ addr, length, lkey }]);
    }
    return { [`rebind_${count}_us`]: (watch.cpuSeconds() * 1e6) / REBINDS };
  };
  const rounds = await interleave('stencil', [
    rebind(FEW, layouts[0]!),
    rebind(MANY, layouts[1]!),
    rebind(MOST, layouts[2]!),
  ]);
  await context.close();
  const ratio = (count: number): number =>
    medianOf(rounds, (f) => f[`rebind_${count}_us`]! / f[`rebind_${FEW}_us`]!);
  return {
    figures: { ...medians(rounds), ...bytes },
    bars: [
      atMost('rebinding a stencil of 10,000 entries against one of 10', ratio(MANY), 1.3),
      atMost('rebinding a stencil of 65,536 entries against one of 10', ratio(MOST), 1.3),
      atMost('bytes an entry, of 65,536', bytes[`memory_${MOST}_bytes_per_entry`]!, 64),
    ],
  };
}

export const bench: Bench = {
  name: 'stencil',
  description: 'a stencil of 10 and of 10,000 entries, applied to other base pointers',
  run,
};
