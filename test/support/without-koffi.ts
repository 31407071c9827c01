/** Runs programs in a process without koffi: arguments for Node's command line. */

const HOOKS = `
  export function resolve(name, context, next) {
    if (name !== 'koffi') return next(name, context);
    throw Object.assign(new Error('no koffi'), { code: 'ERR_MODULE_NOT_FOUND' });
  }`;
const HOOKS_URL = `data:text/javascript,${encodeURIComponent(HOOKS)}`;

/** `register` is deprecated in Node 26, and prints a warning; Node 20 has nothing else. */
const REGISTER = `
  import module from 'node:module';
  if (module.registerHooks) module.registerHooks(await import("${HOOKS_URL}"));
  else module.register("${HOOKS_URL}");`;

/** Without koffi; `node:ffi` takes its place where Node has it. */
export const HIDDEN_KOFFI = ['--import', `data:text/javascript,${encodeURIComponent(REGISTER)}`];

const NO_FFI = '--no-experimental-ffi';

/** Without system calls: neither koffi nor `node:ffi`. */
export const WITHOUT_KOFFI = process.allowedNodeEnvironmentFlags.has(NO_FFI)
  ? [NO_FFI, ...HIDDEN_KOFFI]
  : HIDDEN_KOFFI;
