/** A page with a Worker that does what the test says: `runInWorker(text of a function, argument)`. */
import { provideRtc } from '/build/browser/index.js';

const { searchParams } = new URL(location.href);
const kind = ['mesh', 'transfer', 'dynamic'].find((name) => searchParams.has(name));
const program = kind ? `./${kind}-worker.mjs` : './worker.mjs';
const worker = new Worker(new URL(program, import.meta.url), { type: 'module' });
if (!searchParams.has('unprovided')) {
  const provide = () => {
    globalThis.endRtc = provideRtc(worker, { forward: searchParams.has('forward') });
  };
  const wait = Number(searchParams.get('provideAfter'));
  if (wait > 0) setTimeout(provide, wait);
  else provide();
}

let calls = 0;
const pending = new Map();
globalThis.strayMessages = 0;
worker.onmessage = ({ data: { id, value, error } }) => {
  if (!pending.has(id)) {
    // A request for WebRTC where the page lends none.
    globalThis.strayMessages++;
    return;
  }
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
