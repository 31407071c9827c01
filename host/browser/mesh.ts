/// <reference lib="esnext.disposable" preserve="true" />
/** `verbena/mesh` in a page: all of `verbena/browser`, and the mesh. A page loads one of the two. */
export * from './index.js';
export * from '../mesh/browser.js';
