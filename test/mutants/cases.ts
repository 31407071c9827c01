/**
 * Replacement of uvu in a process of tests: `test` and `suite` only register, so that single cases
 * of a file can be run, in any order, and timed.
 */
type Work = (state: Record<string, unknown>) => unknown;

/** One `test(...)` of a file. */
export interface Case {
  readonly name: string;
  /** Rejects when the case fails. The hooks of its suite run around it. */
  run(): Promise<void>;
}

/** Cases of the files imported so far; take() empties it. */
let registered: Case[] = [];

/** The cases that were registered since the last call, in order. */
export function take(): Case[] {
  const cases = registered;
  registered = [];
  return cases;
}

/** A suite, as uvu makes it: a function with the hooks as members. */
export function suite(_name = '', state: Record<string, unknown> = {}) {
  const hooks = {
    before: [] as Work[],
    after: [] as Work[],
    beforeEach: [] as Work[],
    afterEach: [] as Work[],
  };
  const run = async (works: Work[]): Promise<void> => {
    for (const work of works) await work(state);
  };
  let own: Case[] = [];
  let before: Promise<void> | undefined;
  const into = (works: Work[]) => (work: Work) => void works.push(work);
  const hook = (works: Work[], each: Work[]) => Object.assign(into(works), { each: into(each) });
  const add = (name: string, work: Work): void => {
    own.push({
      name,
      async run() {
        before ??= run(hooks.before);
        await before;
        await run(hooks.beforeEach);
        try {
          await work(state);
        } finally {
          await run(hooks.afterEach);
        }
      },
    });
  };
  return Object.assign(add, {
    before: hook(hooks.before, hooks.beforeEach),
    after: hook(hooks.after, hooks.afterEach),
    only: add,
    skip: () => undefined,
    run: () => {
      registered.push(...own);
      own = [];
    },
  });
}

export const test = suite();
