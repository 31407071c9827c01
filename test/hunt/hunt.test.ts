/** A short hunt; a long one: `npm run hunt -- --minutes 10`. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { freshName } from '../support/member.js';
import { sample } from '../support/sample.js';
import { Coordinator } from './coordinator.js';

test('no engine of the domain writes to memory after its access was revoked, in any way', async () => {
  const plan = { millis: sample(1000, 3000), seed: 7, name: freshName(), address: '127.1.11.8' };
  const coordinator = new Coordinator(plan);
  await coordinator.run();
  const { verified, wrong } = coordinator.hunted;
  assert.equal(wrong, []);
  assert.ok(Object.keys(verified).length > 0, 'the target wrote into memory while it had access');
});

test.run();
