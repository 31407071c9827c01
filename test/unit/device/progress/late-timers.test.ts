/** Which timers of a device may come a millisecond late: no turns of the event loop for those. */
import * as assert from 'uvu/assert';
import { SendFlag, WrOpcode } from '../../../../host/index.js';
import { type Wire } from '../../../support/wire.js';
import { testsOnWire } from '../../../support/tests-in.js';

const test = testsOnWire();

/** Whether each timer that is set while `action` runs may be late. */
function timersOf(wire: Wire, action: () => void): boolean[] {
  const found: boolean[] = [];
  const { clock } = wire;
  const at = clock.at.bind(clock);
  clock.at = (micros, fire, mayBeLate = false) => {
    found.push(mayBeLate);
    return at(micros, fire);
  };
  action();
  return found;
}

const post = (wire: Wire) => (): void =>
  wire.post(WrOpcode.RDMA_WRITE, 8, { sendFlags: SendFlag.SIGNALED });

test('a retransmit timer comes in time', (wire) =>
  assert.equal(timersOf(wire, post(wire)), [false]));

test.with({ paced: true })('over a link that paces itself it may be late', (wire) =>
  assert.equal(timersOf(wire, post(wire)), [true]),
);

test.run();
