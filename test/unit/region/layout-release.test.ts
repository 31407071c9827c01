/**
 * When the program of a layout that was replaced is free: once every context of its domain has left
 * the call that it was in, as with regions (release.test.ts).
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLayout, ContextLayout, ContextSlotLayout } from '#build/abi.js';
import { AccessFlag, MrSetLayoutFlag, type LayoutMemoryRegion } from '../../../host/index.js';
import { structAt } from '../../../host/engine/struct.js';
import { onWire, type Wire } from '../../support/wire.js';

const ZERO_BASED = AccessFlag.ZERO_BASED;

/** Makes the device's own context look as if it were in a call that began now. */
function inCall(wire: Wire, body: () => void): void {
  const { arena, engine } = wire.context.device;
  const { slot } = structAt(arena.memory, ContextLayout, engine.context);
  const { epoch } = structAt(arena.memory, ArenaLayout, arena.address);
  const activity = structAt(arena.memory, ContextSlotLayout, slot);
  activity.activity = (epoch << 1) | 1;
  try {
    body();
  } finally {
    activity.activity = epoch << 1;
  }
}

test('a program that may be read is not given back; when the call is over it is', () =>
  onWire({}, (wire) => {
    const { arena } = wire.context.device;
    const memory = wire.context.alloc(64);
    const mr = wire.pd.regMr(memory, 0);
    const layout: LayoutMemoryRegion = wire.pd.regMr(null, 0, ZERO_BASED);
    const set = (): void =>
      layout.setLayoutSg(MrSetLayoutFlag.AVOID_INVALIDATION, [
        { addr: mr.addr, length: 64, lkey: mr.lkey },
      ]);
    // The one that is bound, and the one before it.
    set();
    set();
    let free = arena.heap.bytesFree;
    const two = free;
    inCall(wire, () => {
      for (let turn = 1; turn <= 3; turn++) {
        set();
        assert.ok(turn === 1 || arena.heap.bytesFree < free, 'what was replaced is still there');
        free = arena.heap.bytesFree;
      }
    });
    assert.ok(free < two);
    set();
    assert.is(arena.heap.bytesFree, two);
    layout.dereg();
  }));

test.run();
