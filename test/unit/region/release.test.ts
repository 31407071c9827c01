/**
 * When the memory of a killed region is free: once every context of its domain has left the call
 * that it was in. A context in a call is one whose slot says so (memory/arena.ts).
 */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  ArenaLayout,
  ContextLayout,
  Errno,
  PseudoHeader,
  RANDOM_KEYS,
  RegionParametersLayout,
} from '#build/abi.js';
import { ArenaMemory } from '../../../host/engine/arena.js';
import { structAt } from '../../../host/engine/struct.js';
import { test } from '../../support/suite.js';

const ACCESS = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
let nextKey = 0x1000;

class World {
  readonly arena = ArenaMemory.create({
    memoryBytes: 8 * 2 ** 20,
    shared: false,
    regionsMax: 8,
    protectionDomainsMax: 4,
    contextsMax: 2,
  });
  readonly ours = this.#makeContext(0);
  readonly theirs = this.#makeContext(1);

  #makeContext(slot: number): number {
    return this.arena.createContext(
      slot,
      (config) => {
        config.queuePairsMax = 1;
        config.completionQueuesMax = 1;
        config.rdAtomicMax = 1;
        config.sendBuffers = 1;
        config.receivePackets = 1;
        config.receiveBytes = 8192;
        config.eventsMax = 16;
        config.pseudoHeader = PseudoHeader.NONE;
      },
      1,
    );
  }

  register(pd: number): number {
    const { heap, memory, exports } = this.arena;
    const address = heap.alloc(RegionParametersLayout.size + RANDOM_KEYS * 4);
    const parameters = structAt(memory, RegionParametersLayout, address);
    const buffer = heap.alloc(4096);
    parameters.iova = BigInt(buffer);
    parameters.address = buffer;
    parameters.length = 4096;
    parameters.pd = pd;
    parameters.access = ACCESS;
    for (let index = 0; index < RANDOM_KEYS; index++) {
      memory.words[((address + RegionParametersLayout.fields.random[0]) >> 2) + index] =
        nextKey++ << 8;
    }
    assert.is(exports.regMr(this.ours, address), Errno.OK);
    return parameters.key;
  }

  /** The other context is in the middle of a call, which began now. */
  enter(): void {
    const { memory, address } = this.arena;
    const { epoch } = structAt(memory, ArenaLayout, address);
    memory.words[this.#slot >> 2] = (epoch << 1) | 1;
  }

  leave(): void {
    this.arena.memory.words[this.#slot >> 2]! &= ~1;
  }

  get #slot(): number {
    return structAt(this.arena.memory, ContextLayout, this.theirs).slot;
  }
}

test('memory is free when the context that was in a call has left it, not before', () => {
  const world = new World();
  const { exports } = world.arena;
  const pd = exports.allocPd(world.ours);
  exports.attachPd(world.theirs, pd);
  const key = world.register(pd);
  world.enter();
  assert.is(exports.killMr(world.ours, key), Errno.OK);
  for (let turn = 0; turn < 3; turn++) assert.is(exports.mrReleased(world.ours, key), 0);
  world.leave();
  assert.is(exports.mrReleased(world.ours, key), 1);
  assert.is(exports.mrReleased(world.ours, key), 0, 'once');
});

test('a call that began after the kill does not hold the memory', () => {
  const world = new World();
  const { exports } = world.arena;
  const pd = exports.allocPd(world.ours);
  exports.attachPd(world.theirs, pd);
  const key = world.register(pd);
  assert.is(exports.killMr(world.ours, key), Errno.OK);
  world.enter();
  assert.is(exports.mrReleased(world.ours, key), 1);
});

test('a context of no business in the domain holds nothing', () => {
  const world = new World();
  const { exports } = world.arena;
  const key = world.register(exports.allocPd(world.ours));
  world.enter();
  assert.is(exports.killMr(world.ours, key), Errno.OK);
  assert.is(exports.mrReleased(world.ours, key), 1);
});
