/** Parser of unittest's output. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { parsePyverbs } from './pyverbs.js';

const test = suite('interop/bridge/pyverbs');

test('tests that passed, failed and were skipped', () => {
  const text = `test_a (tests.test_addr.AHTest.test_a) ... ok
ERROR: test_b (tests.test_qp.QPTest.test_b)
FAIL: test_c (tests.test_qp.QPTest.test_c)
Ran 10 tests in 3.5s

FAILED (failures=1, errors=1, skipped=3)
`;
  assert.equal(parsePyverbs(text), { passed: 5, skipped: 3, failed: ['test_b', 'test_c'] });
  assert.equal(parsePyverbs('Ran 2 tests in 0.1s\n\nOK\n'), { passed: 2, skipped: 0, failed: [] });
});

test('a crash is an error that has the last words', () => {
  assert.throws(() => parsePyverbs('test_a ... Segmentation fault\n'), /Segmentation fault/);
});

test.run();
