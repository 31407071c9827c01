/** Where things are, seen from a compiled test. */

/** The repository's root: build/test/support/ is three levels below it. */
export const root = new URL('../../../', import.meta.url);

/** The captures and other files that tests read. */
export const vectors = new URL('test/vectors/', root);

/** Environment variable of a test file: the URL of the bundles that it was started from. */
export const BUNDLES = 'VERBENA_TEST_BUNDLES';

/** Where the compiled examples are that a test starts: bundles, if the runner has made them. */
export const examples = new URL('host/examples/', process.env[BUNDLES] ?? new URL('build/', root));
