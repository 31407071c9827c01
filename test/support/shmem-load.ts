/** A PE of the bench: measures puts and barriers, and prints a line of JSON. */
import { init } from '../../host/shmem/index.js';

const MIB = 2 ** 20;
const seconds = Number(process.env.BENCH_SECONDS ?? 0.2);
const shmem = await init({ size: 8 * MIB });
const next = (shmem.myPe + 1) % shmem.nPes;
const isFirst = shmem.myPe === 0;

/** Nanoseconds per call of `work`, by the first PE alone. */
function perCall(work: () => void, batch: number): number {
  const end = performance.now() + seconds * 1000;
  const samples: number[] = [];
  while (performance.now() < end) {
    const from = process.hrtime.bigint();
    for (let call = 0; call < batch; call++) work();
    samples.push(Number(process.hrtime.bigint() - from) / batch);
  }
  return samples.sort((a, b) => a - b)[samples.length >> 1] ?? 0;
}

const word = await shmem.array(Float64Array, 1);
const one = Float64Array.of(1);
const count = await shmem.array(Int32Array, 1);
const big = await shmem.array(Uint8Array, MIB);
const bytes = new Uint8Array(MIB);
const figures: Record<string, number> = {};
if (isFirst) {
  figures.put_8_ns = perCall(() => shmem.put(word, one, next), 256);
  figures.atomic_add_ns = perCall(() => shmem.atomicInc(count, next), 256);
  figures.put_1mib_gbps = MIB / perCall(() => shmem.put(big, bytes, next), 4);
  const target = new Uint8Array(new SharedArrayBuffer(MIB));
  figures.copy_1mib_gbps = MIB / perCall(() => target.set(bytes), 4);
}
await shmem.barrierAll();
const samples: number[] = [];
const turns = Math.ceil(2000 * seconds);
for (let turn = 0; turn < turns; turn++) {
  const from = process.hrtime.bigint();
  await shmem.barrierAll();
  samples.push(Number(process.hrtime.bigint() - from) / 1000);
}
figures.barrier_us = samples.sort((a, b) => a - b)[samples.length >> 1]!;
if (isFirst) console.log(JSON.stringify(figures));
await shmem.finalize();
