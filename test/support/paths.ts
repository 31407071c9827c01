/** Where things are, seen from a compiled test. */

/** The repository's root: build/test/support/ is three levels below it. */
export const root = new URL('../../../', import.meta.url);

/** The captures and other files that tests read. */
export const vectors = new URL('test/vectors/', root);
