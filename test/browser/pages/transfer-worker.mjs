/** As worker.mjs, with the library `verbena/transfer`. */
import * as verbena from '/build/browser/transfer.js';

const state = {};
self.onmessage = async ({ data: { id, text, argument } }) => {
  try {
    const run = (0, eval)(`(${text})`);
    self.postMessage({ id, value: await run(verbena, state, argument) });
  } catch (error) {
    const { name, code, message } = error;
    self.postMessage({ id, error: `${name} ${code ?? ''}: ${message}` });
  }
};
