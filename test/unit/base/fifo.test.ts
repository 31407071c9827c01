/** A first-in first-out queue against an array. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Fifo } from '../../../host/base/fifo.js';
import { Random } from '../../simulation/random.js';

test('a queue of any length behaves as an array', () => {
  const random = new Random(3);
  const fifo = new Fifo<number>();
  const model: number[] = [];
  for (let count = 0; count < 50_000; count++) {
    // Long phases of growing and of shrinking.
    if (random.below(100) < (Math.floor(count / 5000) % 2 === 0 ? 80 : 20)) {
      fifo.push(count);
      model.push(count);
    } else assert.is(fifo.shift(), model.shift());
    assert.is(fifo.length, model.length);
    assert.is(fifo.peek(), model[0]);
  }
  while (model.length > 0) assert.is(fifo.shift(), model.shift());
  assert.is(fifo.shift(), undefined);
  assert.is(fifo.peek(), undefined);
});

test.run();
