/** Power cuts at every step: small counts here, the large ones in `npm run sim -- --crash`. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { crashOptionsOf, simulateCrash } from './crash.js';

test('a log that is cut off anywhere has all that was appended, and reads', async () => {
  const { steps, appended, violations } = await simulateCrash({ seed: 1, records: 60 });
  assert.equal(violations, []);
  assert.is(appended, 60);
  assert.ok(steps > 200, `${steps}`);
});

test('so it is with several writers, lost packets, and lines that are written back early', async () => {
  for (let seed = 1; seed <= sample(15, 40); seed++) {
    const { violations } = await simulateCrash(crashOptionsOf(seed));
    assert.equal(violations, [], `seed ${seed}`);
  }
});

test('a store that says it is done before it is, is found out', async () => {
  const options = { seed: 1, records: 20, acknowledgesEarly: true };
  const { violations } = await simulateCrash(options);
  assert.ok(violations.length > 0);
  assert.match(violations[0]!, /records are left|exceeds the log|wrong checksum|ends behind/);
});

test('a run is a pure function of its options', async () => {
  const options = crashOptionsOf(5);
  assert.equal(await simulateCrash(options), await simulateCrash(options));
});

test.run();
