/** As worker.mjs, with the library loaded at the first request, and once more as `state.second`. */
const state = {};
self.onmessage = async ({ data: { id, text, argument } }) => {
  try {
    const verbena = await import('/build/browser/index.js');
    state.second = await import('/build/browser/index.js?second');
    const run = (0, eval)(`(${text})`);
    self.postMessage({ id, value: await run(verbena, state, argument) });
  } catch (error) {
    const { name, code, message } = error;
    self.postMessage({ id, error: `${name} ${code ?? ''}: ${message}` });
  }
};
