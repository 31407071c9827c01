/// <reference lib="esnext.disposable" preserve="true" />
/** `verbena/transfer` in a page: all of `verbena/mesh`, and files. A page loads one of the three. */
export * from './mesh.js';
export * from '../transfer/browser.js';
