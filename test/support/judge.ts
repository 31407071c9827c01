/** Judges the output of a test file: only the tests in its summary count. */
import type { RanToEnd } from './run-to-end.js';

/** Node fires after 1 ms for such a delay. Node 24 has all three warnings. */
const TIMER_WARNING = /Timeout(Negative|NaN|Overflow)Warning/;

export interface Result {
  readonly file: string;
  readonly passed: number;
  readonly failed: number;
  readonly seconds: number;
  /** Why the file failed although no test failed. */
  readonly complaint: string | undefined;
  readonly output: string;
}

function count(output: string, word: string): number | undefined {
  const found = new RegExp(`^\\s*${word}:\\s+(\\d+)`, 'm').exec(output);
  return found ? Number(found[1]) : undefined;
}

/** `secondsMax`: time limit of the file. */
export function judge(
  file: string,
  ran: Pick<RanToEnd, 'code' | 'hung' | 'seconds' | 'output'>,
  secondsMax: number,
): Result {
  const { code, hung, seconds, output } = ran;
  const total = count(output, 'Total');
  const passed = count(output, 'Passed') ?? 0;
  const skipped = count(output, 'Skipped') ?? 0;
  let complaint: string | undefined;
  if (hung) complaint = `did not end within ${secondsMax} s`;
  else if (total === undefined) complaint = `ended with ${code} and without a summary`;
  else if (total === 0) complaint = 'ran no test: is test.run() missing?';
  else if (skipped > 0) complaint = `skipped ${skipped}: a skipped test proves nothing`;
  else if (TIMER_WARNING.test(output)) complaint = 'a timer got a delay beyond its range';
  else if (code !== 0 && passed === total) complaint = `ended with ${code}`;
  // Of uvu: the total has no skipped tests in it.
  const failed = (total ?? 0) - passed;
  return { file, passed, failed: failed + (complaint ? 1 : 0), seconds, complaint, output };
}
