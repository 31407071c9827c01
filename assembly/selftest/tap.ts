/**
 * Output in the Test Anything Protocol. A check compares many numbers and is one line; texts are
 * only made for the first comparison that fails, since nothing is ever freed here.
 */

let count = 0;
let failed = 0;
let name = '';
let comparisons: u64 = 0;
let mismatches: u64 = 0;
let firstMismatch = '';

/** Begins a check. `sentence` says what holds when it passes. */
export function begin(sentence: string): void {
  name = sentence;
  comparisons = 0;
  mismatches = 0;
  firstMismatch = '';
}

/** Compares two numbers; `what` and `at` tell a reader which of many it was. */
export function same(actual: u64, expected: u64, what: string, at: u64 = 0): void {
  comparisons++;
  if (actual == expected) return;
  if (mismatches++ == 0) {
    const got = '0x' + actual.toString(16);
    const wanted = '0x' + expected.toString(16);
    firstMismatch = `${what} at 0x${at.toString(16)}: got ${got}, expected ${wanted}`;
  }
}

/** Ends the check and prints its line. A check that compared nothing has failed. */
export function end(): void {
  count++;
  const passed = comparisons > 0 && mismatches == 0;
  console.log(`${passed ? 'ok' : 'not ok'} ${count} - ${name}`);
  if (passed) return;
  failed++;
  if (comparisons == 0) console.log('# it compared nothing');
  else console.log(`# ${mismatches} of ${comparisons} differ; first ${firstMismatch}`);
}

/** Prints the plan; returns how many checks failed. */
export function finish(): i32 {
  console.log('1..' + count.toString());
  return failed;
}
