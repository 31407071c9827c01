/**
 * Of each kind of call that an example makes of the system one fails, for every example: `npm run
 * examples -- --fail-each` does it with all calls, which takes hours.
 */
import { describe, callsOf, fail, oneOfEachKind } from '../examples/failures.js';
import { inParallel } from '../examples/play.js';
import { COURSE, PROGRAMS } from '../examples/table.js';
import type { Group } from './group.js';

export const failuresGroup: Group = {
  name: 'failures',
  tools: [],
  async run(report) {
    for (const [turn, example] of [...COURSE, ...PROGRAMS].entries()) {
      await report.check(`${example.name}: calls of the system that fail`, async () => {
        const calls = oneOfEachKind(await callsOf(example), turn);
        const outcomes = await Promise.all(inParallel(calls, (call) => fail(example, call)));
        const wrong = outcomes.filter(({ complaint }) => complaint !== undefined);
        if (wrong.length > 0) throw new Error(wrong.map(describe).join('\n'));
        const refused = outcomes.filter(({ kind }) => kind === 'refused').length;
        report.note(
          `${calls.length - refused} done all the same, ${refused} refused in a sentence`,
        );
      });
    }
  },
};
