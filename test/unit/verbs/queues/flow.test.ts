/** Source ports of flows. */
import * as assert from 'uvu/assert';
import { flowLabelOf, flowLabelToUdpSport, flowPort } from '../../../../host/verbs/queues/flow.js';
import { test } from '../../../support/suite.js';

test('a flow label becomes a UDP source port from 0xc000 on (IBA A17.9.1.3)', () => {
  assert.is(flowLabelToUdpSport(0), 0xc000);
  assert.is(flowLabelToUdpSport(0x3fff), 0xffff);
  assert.is(flowLabelToUdpSport(0xfc000), 0xc03f);
  assert.is(flowLabelToUdpSport(0xfffff), 0xffc0);
  assert.is(flowLabelToUdpSport(0x12345), (0x2345 ^ 0x4) | 0xc000);
});

test('two queue pairs have the flow label that Linux gives them, at both ends', () => {
  assert.is(flowLabelOf(0x11, 0x12), 0x132);
  assert.is(flowLabelOf(0xabcdef, 0x123456), 0xac3e3);
  assert.is(flowLabelOf(0xabcdef, 0x123456), flowLabelOf(0x123456, 0xabcdef));
});

test('a flow has one of the configured ports; without ports it has none', () => {
  assert.is(flowPort(undefined, 7), 0);
  assert.is(flowPort([], 7), 0);
  assert.is(flowPort([50000, 50001, 50002], 7), [50000, 50001, 50002][0xc007 % 3]);
  for (const label of [-1, 2 ** 20, 1.5, NaN])
    assert.throws(() => flowPort([50000], label), /20 bits/);
});
