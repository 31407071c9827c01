/** `verbena perf`: what two sides say whose options differ. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { differenceOf, type PerfTerms } from '../../../../host/cli/perf/options.js';

const TERMS: PerfTerms = {
  ...{ verb: 'write', test: 'bw', connection: 'RC', all: false, size: 64 },
  ...{ iters: 100, duration: 0, qp: 1, bidirectional: false, warmUp: -1 },
};
const text = (value: unknown): string => JSON.stringify(value) ?? 'nothing';

test('sides that agree differ in nothing', () => {
  assert.is(differenceOf(TERMS, { ...TERMS }, text), undefined);
});

test('a difference names the option, both values and the remedy', () => {
  const both = 'both sides need --duration, or both --iters, with the same number';
  const cases: [ours: object, theirs: object, said: string][] = [
    [{}, { size: 8 }, 'size is 64 here and 8 at the peer; start both sides with the same --size'],
    [{}, { verb: 'read' }, '"read" at the peer; start both sides with the same verb'],
    [{}, { qp: undefined }, 'qp is 1 here and nothing at the peer'],
    [{ warmUp: 9 }, {}, 'warmUp is 9 here and "unset" at the peer; start both sides with the same'],
    [{}, { warmUp: 9 }, 'unset here and 9 at the peer; start both sides with the same --warm-up'],
    [{}, { iters: 0, duration: 3 }, `--iters 100 is here and --duration 3 at the peer; ${both}`],
    [{ iters: 0, duration: 3 }, {}, `--duration 3 is here and --iters 100 at the peer; ${both}`],
    [{ iters: 0, duration: 3 }, { iters: 0, duration: 2 }, 'duration is 3 here and 2 at the peer;'],
    [{}, { iters: 5 }, 'iters is 100 here and 5 at the peer; start both sides with the same --it'],
    [{}, { iters: {}, duration: {} }, 'iters is 100 here and {} at the peer; start both sides'],
  ];
  for (const [ours, theirs, said] of cases) {
    const found = differenceOf({ ...TERMS, ...ours }, { ...TERMS, ...theirs }, text);
    assert.ok(found?.startsWith('the options differ: ') && found.includes(said), `${found}`);
  }
});

test.run();
