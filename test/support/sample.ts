/**
 * How far a search goes: a sample among all tests (`npm test`), all in
 * `npm run test:long`, which runs the files that import this one.
 */

/** Set to 1 by the runner in a long run. */
export const LONG = 'VERBENA_TEST_LONG';

export const isLong = process.env[LONG] === '1';

/** Of two counts the one for this run. */
export const sample = <Value>(short: Value, long: Value): Value => (isLong ? long : short);

/** Registers cases of `test` in a long run only: a shorter form of each is among the others. */
export const longOnly = <Body>(
  test: (name: string, body: Body) => void,
): ((name: string, body: Body) => void) => (isLong ? test : () => undefined);
