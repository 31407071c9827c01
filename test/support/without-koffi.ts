/** Runs programs in a process without koffi: `node --import URL`. */

const HOOKS = `
  export function resolve(name, context, next) {
    if (name !== 'koffi') return next(name, context);
    throw Object.assign(new Error('no koffi'), { code: 'ERR_MODULE_NOT_FOUND' });
  }`;

const register = `
  import { register } from 'node:module';
  register("data:text/javascript,${encodeURIComponent(HOOKS)}");`;

/** Arguments for Node's command line, before the program. */
export const WITHOUT_KOFFI = ['--import', `data:text/javascript,${encodeURIComponent(register)}`];
