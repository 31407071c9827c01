/**
 * `bench layout`: gathering and scattering through a layout, a packet of 4096 bytes at a time, as
 * queue pairs do, against a loop written by hand for that one shape, over the
 * same memory. Figures are nanoseconds for 4096 bytes.
 */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { moveLocal } from '../region/access';
import { AccessFlag, KeyKind } from '../region/access-flag';
import { registerRegion } from '../region/key-table';
import { setLayout } from '../region/layout-compile';
import {
  INTERLEAVED_ENTRY_SIZE,
  InterleavedEntry,
  LayoutParameters,
  layoutSize,
} from '../region/layout-parameters';
import { allocProtectionDomain } from '../region/protection-domain';
import { freshArena, parameters, register, setCandidates } from './arena';
import { ROUNDS, Samples, WARM_UP, consume, figure, printFigures } from './bench';
import { OTHER } from './memory';

const REGION_KEY: u32 = 0x1100;
const LAYOUT_KEY: u32 = 0x2200;
const PACKET: u32 = 4096;
/** Memory that a layout lies in: in the second-level cache. */
const SOURCE: u32 = 256 * 1024;
const PASSES: u32 = 400;

class Shape {
  datum: u32;
  stride: u32;
  key: u32;
  packed: u32;
  gather: Samples = new Samples();
  gatherByHand: Samples = new Samples();
  scatter: Samples = new Samples();
  scatterByHand: Samples = new Samples();

  constructor(datum: u32, stride: u32, key: u32) {
    this.datum = datum;
    this.stride = stride;
    this.key = key;
    this.packed = (SOURCE / stride) * datum;
  }
}

let memoryStart: usize = 0;

/** Zero bytes at the end of memory. */
function grow(bytes: u32): usize {
  const at = (<usize>memory.size()) << 16;
  if (memory.grow((bytes + 0xffff) >>> 16) < 0) unreachable();
  return at;
}

function bind(arena: Arena, pd: u32, shape: Shape): void {
  const region = parameters();
  region.pd = pd;
  region.access = AccessFlag.LOCAL_WRITE | AccessFlag.ZERO_BASED;
  region.kind = KeyKind.LAYOUT;
  setCandidates(shape.key);
  if (registerRegion(arena, 0, region) != Errno.OK) unreachable();
  region.kind = KeyKind.REGION;
  const at = grow(65536);
  const given = changetype<LayoutParameters>(at);
  const entry = changetype<InterleavedEntry>(at + 1024);
  given.key = shape.key;
  given.interleaved = 1;
  given.count = 1;
  given.entries = at + 1024;
  given.program = at + 2048;
  entry.address = 0;
  entry.length = shape.datum;
  entry.key = REGION_KEY;
  entry.repeated = 1;
  entry.dimensions = 1;
  store<u64>(at + 1024 + INTERLEAVED_ENTRY_SIZE, shape.stride);
  store<u64>(at + 1024 + INTERLEAVED_ENTRY_SIZE, SOURCE / shape.stride, 8);
  if (layoutSize(given) == 0 || setLayout(arena, 0, given) != Errno.OK) unreachable();
}

function walk(arena: Arena, pd: u32, shape: Shape, need: u32, samples: Samples, round: i32): void {
  let packets: u32 = 0;
  const start = process.hrtime();
  for (let pass: u32 = 0; pass < PASSES; pass++) {
    for (let at: u32 = 0; at + PACKET <= shape.packed; at += PACKET) {
      if (!moveLocal(arena, shape.key, pd, at, 0, OTHER, PACKET, need)) unreachable();
      packets++;
    }
    // Where the stream is shorter than a packet.
    if (shape.packed < PACKET) unreachable();
  }
  samples.add(round, start, packets);
  consume(load<u64>(OTHER));
}

function gatherByHand(shape: Shape, round: i32): void {
  const datum = shape.datum;
  const stride = <usize>shape.stride;
  let packets: u32 = 0;
  const start = process.hrtime();
  for (let pass: u32 = 0; pass < PASSES; pass++) {
    let from = memoryStart;
    for (let at: u32 = 0; at + PACKET <= shape.packed; at += PACKET) {
      const end = OTHER + PACKET;
      if (datum == 8) {
        for (let to = OTHER; to < end; to += 8) {
          store<u64>(to, load<u64>(from));
          from += stride;
        }
      } else if (datum == 4) {
        for (let to = OTHER; to < end; to += 4) {
          store<u32>(to, load<u32>(from));
          from += stride;
        }
      } else {
        for (let to = OTHER; to < end; to += datum) {
          memory.copy(to, from, datum);
          from += stride;
        }
      }
      packets++;
    }
  }
  shape.gatherByHand.add(round, start, packets);
  consume(load<u64>(OTHER));
}

function scatterByHand(shape: Shape, round: i32): void {
  const datum = shape.datum;
  const stride = <usize>shape.stride;
  let packets: u32 = 0;
  const start = process.hrtime();
  for (let pass: u32 = 0; pass < PASSES; pass++) {
    let to = memoryStart;
    for (let at: u32 = 0; at + PACKET <= shape.packed; at += PACKET) {
      const end = OTHER + PACKET;
      if (datum == 8) {
        for (let from = OTHER; from < end; from += 8) {
          store<u64>(to, load<u64>(from));
          to += stride;
        }
      } else if (datum == 4) {
        for (let from = OTHER; from < end; from += 4) {
          store<u32>(to, load<u32>(from));
          to += stride;
        }
      } else {
        for (let from = OTHER; from < end; from += datum) {
          memory.copy(to, from, datum);
          to += stride;
        }
      }
      packets++;
    }
  }
  shape.scatterByHand.add(round, start, packets);
  consume(load<u64>(memoryStart));
}

function measure(arena: Arena, pd: u32, shape: Shape, round: i32): void {
  walk(arena, pd, shape, 0, shape.gather, round);
  gatherByHand(shape, round);
  walk(arena, pd, shape, AccessFlag.LOCAL_WRITE, shape.scatter, round);
  scatterByHand(shape, round);
}

export function benchLayout(): void {
  const shapes: Shape[] = [
    new Shape(8, 64, LAYOUT_KEY),
    new Shape(4, 12, LAYOUT_KEY + 0x100),
    new Shape(512, 3072, LAYOUT_KEY + 0x200),
  ];
  const arena = freshArena(64);
  const pd = allocProtectionDomain(arena, 0);
  memoryStart = grow(SOURCE);
  const access: u32 = AccessFlag.LOCAL_WRITE;
  if (register(arena, REGION_KEY, pd, access, 0, <u32>memoryStart, SOURCE)) unreachable();
  for (let index = 0; index < shapes.length; index++) bind(arena, pd, shapes[index]);
  measure(arena, pd, shapes[0], 0);
  for (let index = 0; index < shapes.length; index++) shapes[index].gather = new Samples();
  shapes[0].gatherByHand = new Samples();
  shapes[0].scatter = new Samples();
  shapes[0].scatterByHand = new Samples();
  for (let round = 0; round < ROUNDS + WARM_UP; round++) {
    for (let index = 0; index < shapes.length; index++) measure(arena, pd, shapes[index], round);
  }
  for (let index = 0; index < shapes.length; index++) {
    const shape = shapes[index];
    const name = `${shape.datum}_of_${shape.stride}`;
    figure(`gather_${name}_ns`, shape.gather.median());
    figure(`gather_${name}_by_hand_ns`, shape.gatherByHand.median());
    figure(`scatter_${name}_ns`, shape.scatter.median());
    figure(`scatter_${name}_by_hand_ns`, shape.scatterByHand.median());
  }
  printFigures();
}
