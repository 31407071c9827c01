/**
 * A uvu suite that runs by itself when the module that registers its tests is evaluated: no file
 * can forget to run it. A file that awaits something between two tests uses uvu directly.
 */
import { suite as plain, type Test } from 'uvu';

type Body = Parameters<Test>[1];

export function suite(name = ''): Test {
  const tests = plain(name);
  let timer: NodeJS.Timeout | undefined;
  let isStarted = false;
  const start = (): void => {
    isStarted = true;
    tests.run();
  };
  const register = (title: string, body: Body): void => {
    if (isStarted) throw new Error(`registered after its suite has started: ${title}`);
    timer ??= setTimeout(start);
    tests(title, body);
  };
  return Object.assign(register, tests);
}

/** The suite of a file that needs only one. */
export const test = suite();
