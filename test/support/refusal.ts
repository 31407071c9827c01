/** What tests expect of a call that is refused: a RefusalError, its code and its text. */
import * as assert from 'uvu/assert';
import { RefusalError } from '../../host/errors/errors.js';

function check(error: unknown, code: string, text: RegExp): void {
  assert.instance(error, RefusalError, String(error));
  assert.is((error as RefusalError).code, code, String(error));
  assert.match((error as RefusalError).message, text);
}

/** `work` throws a RefusalError with this code; its message matches `text`. */
export function expectRefusal(work: () => unknown, code: string, text = /./): void {
  try {
    work();
  } catch (error) {
    return check(error, code, text);
  }
  throw new Error(`not refused with ${code}`);
}

/** The same of a promise, which rejects. */
export async function expectRejected(
  work: Promise<unknown>,
  code: string,
  text = /./,
): Promise<void> {
  const error = await work.then(
    () => new Error(`not refused with ${code}`),
    (reason: unknown) => reason,
  );
  check(error, code, text);
}
