/** Expected refusals (a RefusalError, its code and its text) and misuse (a MisuseError). */
import * as assert from 'uvu/assert';
import { MisuseError, RefusalError } from '../../host/errors/errors.js';

function check(error: unknown, code: string, text: RegExp): RefusalError {
  assert.instance(error, RefusalError, String(error));
  assert.is((error as RefusalError).code, code, String(error));
  assert.match((error as RefusalError).message, text);
  return error as RefusalError;
}

/** `work` throws a RefusalError with this code; its message matches `text`. */
export function expectRefusal(work: () => unknown, code: string, text = /./): RefusalError {
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
): Promise<RefusalError> {
  const error = await work.then(
    () => new Error(`not refused with ${code}`),
    (reason: unknown) => reason,
  );
  return check(error, code, text);
}

/** `work` throws a MisuseError; `about`: its argument, or a pattern of its message. */
export function expectMisuse(work: () => unknown, about: string | RegExp = /./): void {
  assert.throws(work, (error: unknown) => {
    assert.instance(error, MisuseError, String(error));
    const { argument, message } = error as MisuseError;
    if (typeof about === 'string') assert.is(argument, about, message);
    else assert.match(message, about);
    return true;
  });
}

/** The errno, or the name, of the error that `run` throws. */
export function codeOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    return (error as { code?: string }).code ?? (error as Error).name;
  }
  return 'OK';
}

/** `run` throws an error with this errno or name; 'OK': it throws none. */
export function expectCode(run: () => unknown, code: string, why?: string): void {
  assert.is(codeOf(run), code, why);
}

/** The error with which `work` rejects. */
export function rejection(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => Promise.reject(new Error('not rejected')),
    (error: unknown) => error,
  );
}
