/** A page with a Worker that does what the test says: `runInWorker(text of a function, argument)`. */
import { provideRtc } from '/build/browser/index.js';

const { searchParams } = new URL(location.href);
const kind = ['mesh', 'transfer'].find((name) => searchParams.has(name));
const program = kind ? `./${kind}-worker.mjs` : './worker.mjs';
const worker = new Worker(new URL(program, import.meta.url), { type: 'module' });
if (!searchParams.has('unprovided')) {
  globalThis.endRtc = provideRtc(worker, { forward: searchParams.has('forward') });
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

/** Blocks the main thread until the POST to `path` is answered. */
globalThis.block = (path) => {
  const request = new XMLHttpRequest();
  request.open('POST', path, false);
  request.send();
};
