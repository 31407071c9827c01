import * as assert from 'uvu/assert';
import { fuzzDatagrams } from './datagrams.js';
import { test } from '../support/suite.js';

test('a node of reliable datagrams takes whatever a peer says, and another peer does not feel it', () => {
  const report = fuzzDatagrams(400, 1);
  assert.is(report.nodes, 400);
  // Each kind occurred: otherwise nothing was tested.
  for (const [name, count] of Object.entries(report)) {
    assert.ok(count >= 200, `${name}: ${count}`);
  }
});
