/** Deadlines against a list that is searched. */
import * as assert from 'uvu/assert';
import { Deadlines, type Due } from '../../../host/cm/deadlines.js';
import { Random } from '../../simulation/random.js';
import { test } from '../../support/suite.js';

interface Entry extends Due {
  readonly name: number;
}

const entry = (name: number): Entry => ({ name, dueMicros: 0, heapIndex: -1 });

test('the earliest deadline comes first, whatever was set, moved and cleared before', () => {
  for (let seed = 0; seed < 50; seed++) {
    const random = new Random(seed);
    const deadlines = new Deadlines<Entry>();
    const entries = Array.from({ length: 30 }, (_, name) => entry(name));
    const expected = new Map<number, number>();
    let now = 0;
    for (let turn = 0; turn < 400; turn++) {
      const one = random.pick(entries);
      if (random.chance(0.6)) {
        const micros = now + random.between(1, 50);
        deadlines.set(one, micros);
        expected.set(one.name, micros);
      } else if (random.chance(0.5)) {
        deadlines.clear(one);
        expected.delete(one.name);
      } else {
        now += random.below(20);
        for (let due = deadlines.take(now); due; due = deadlines.take(now)) {
          const least = Math.min(...expected.values());
          assert.is(expected.get(due.name), least);
          assert.equal([due.heapIndex, due.dueMicros], [-1, 0]);
          expected.delete(due.name);
        }
        assert.ok([...expected.values()].every((micros) => micros > now));
      }
      assert.is(deadlines.size, expected.size);
      assert.is(deadlines.nextMicros, expected.size === 0 ? 0 : Math.min(...expected.values()));
    }
  }
});

test('no entry is due before its time, and an empty heap has no next deadline', () => {
  const deadlines = new Deadlines<Entry>();
  const one = entry(1);
  assert.equal([deadlines.nextMicros, deadlines.take(9)], [0, undefined]);
  deadlines.clear(one);
  deadlines.set(one, 10);
  assert.is(deadlines.take(9), undefined);
  assert.is(deadlines.take(10), one);
});
