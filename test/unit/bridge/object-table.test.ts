import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ObjectTable } from '../../../host/bridge/object-table.js';
import { RefusalError } from '../../../host/errors/errors.js';

const test = suite('unit/bridge/object-table');

class Cat {}
class Dog {}

test('an object has its number until it is removed, and no other object gets it again', () => {
  const table = new ObjectTable();
  const [cat, dog] = [new Cat(), new Dog()];
  const number = table.add(cat);
  assert.is(table.get(Cat, BigInt(number)), cat);
  assert.is(table.numberOf(cat), number);
  table.remove(BigInt(number));
  assert.is(table.numberOf(cat), 0);
  assert.is.not(table.add(dog), number);
});

test('a wrong number, or the number of another kind of object, is EINVAL', () => {
  const table = new ObjectTable();
  const number = BigInt(table.add(new Cat()));
  for (const wrong of [() => table.get(Dog, number), () => table.get(Cat, 2n ** 63n)]) {
    assert.throws(wrong, (error: RefusalError) => error.code === 'EINVAL');
  }
  table.remove(77n);
  assert.is(table.is(Cat, number), true);
});

test.run();
