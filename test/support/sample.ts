/**
 * How far a search goes: a sample among all tests (`npm test`), all in
 * `npm run test:long`, which runs the files that import this one.
 */

/** Set to 1 by the runner in a long run. */
export const LONG = 'VERBENA_TEST_LONG';

export const isLong = process.env[LONG] === '1';

/** Of two counts the one for this run. */
export const sample = <Value>(short: Value, long: Value): Value => (isLong ? long : short);
