/** A page with a Worker that does what the test says: `runInWorker(text of a function, argument)`. */
import { provideRtc } from '/build/browser/index.js';

const { searchParams } = new URL(location.href);
const kind = ['mesh', 'transfer'].find((name) => searchParams.has(name));
const program = kind ? `./${kind}-worker.mjs` : './worker.mjs';
const worker = new Worker(new URL(program, import.meta.url), { type: 'module' });
if (!searchParams.has('unprovided')) {
  provideRtc(worker, { forward: searchParams.has('forward') });
}

let calls = 0;
const pending = new Map();
worker.onmessage = ({ data: { id, value, error } }) => {
  const { resolve, reject } = pending.get(id);
  pending.delete(id);
  if (error) reject(new Error(error));
  else resolve(value);
};
worker.onerror = (event) => console.error(`worker: ${event.message}`);

globalThis.runInWorker = (text, argument) =>
  new Promise((resolve, reject) => {
    const id = ++calls;
    pending.set(id, { resolve, reject });
    worker.postMessage({ id, text, argument });
  });

/** Uses up `share` of the main thread's time, in pieces of 50 ms, for so long. */
globalThis.beBusy = (share, millis) => {
  const end = performance.now() + millis;
  const piece = () => {
    const start = performance.now();
    if (start > end) return;
    while (performance.now() - start < 50 * share);
    setTimeout(piece, 50 * (1 - share));
  };
  piece();
};
