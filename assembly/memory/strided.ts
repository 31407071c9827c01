/**
 * Copies between what lies at equal distances and what lies in a row. Loops for data of 4, 8 and 16
 * bytes: entering memory.copy for each of those costs more than the copy.
 */
import { copyBytes } from './bytes';

/** `count` data of `datum` bytes, `stride` bytes from one to the next, to a row. */
export function gatherStrided(
  target: usize,
  source: usize,
  stride: usize,
  datum: u32,
  count: u32,
): void {
  if (datum == 8) gather8(target, source, stride, count);
  else if (datum == 4) gather4(target, source, stride, count);
  else copyStrided(target, datum, source, stride, datum, count);
}

/** The other way: from a row to `count` places. Where they overlap, later ones win. */
export function scatterStrided(
  target: usize,
  stride: usize,
  source: usize,
  datum: u32,
  count: u32,
): void {
  if (datum == 8) scatter8(target, stride, source, count);
  else if (datum == 4) scatter4(target, stride, source, count);
  else copyStrided(target, stride, source, datum, datum, count);
}

/** Both sides at distances of their own. */
export function copyStrided(
  target: usize,
  targetStride: usize,
  source: usize,
  sourceStride: usize,
  datum: u32,
  count: u32,
): void {
  let to = target;
  let from = source;
  if (datum == 4) {
    for (let index: u32 = 0; index < count; index++) {
      store<u32>(to, load<u32>(from));
      to += targetStride;
      from += sourceStride;
    }
    return;
  }
  if (datum == 8) {
    for (let index: u32 = 0; index < count; index++) {
      store<u64>(to, load<u64>(from));
      to += targetStride;
      from += sourceStride;
    }
    return;
  }
  if (datum == 16) {
    for (let index: u32 = 0; index < count; index++) {
      v128.store(to, v128.load(from));
      to += targetStride;
      from += sourceStride;
    }
    return;
  }
  if (datum > 256) {
    const lines = datum <= LINES_MAX && (datum & 63) == 0;
    for (let index: u32 = 0; index < count; index++) {
      if (lines) copyLines(to, from, datum);
      else memory.copy(to, from, datum);
      to += targetStride;
      from += sourceStride;
    }
    return;
  }
  for (let index: u32 = 0; index < count; index++) {
    copyBytes(to, from, datum);
    to += targetStride;
    from += sourceStride;
  }
}

/** Up to here 64 bytes at a time are faster than memory.copy. */
const LINES_MAX: u32 = 1024;

/** `length` is a multiple of 64. */
function copyLines(target: usize, source: usize, length: u32): void {
  for (let at: u32 = 0; at < length; at += 64) {
    const a = v128.load(source + at);
    const b = v128.load(source + at, 16);
    const c = v128.load(source + at, 32);
    const d = v128.load(source + at, 48);
    v128.store(target + at, a);
    v128.store(target + at, b, 16);
    v128.store(target + at, c, 32);
    v128.store(target + at, d, 48);
  }
}

function gather8(target: usize, source: usize, stride: usize, count: u32): void {
  let to = target;
  let from = source;
  let left = count;
  const second = stride;
  const third = stride * 2;
  const fourth = stride * 3;
  for (; left >= 4; left -= 4) {
    const a = load<u64>(from);
    const b = load<u64>(from + second);
    const c = load<u64>(from + third);
    const d = load<u64>(from + fourth);
    store<u64>(to, a);
    store<u64>(to, b, 8);
    store<u64>(to, c, 16);
    store<u64>(to, d, 24);
    from += stride * 4;
    to += 32;
  }
  for (; left > 0; left--) {
    store<u64>(to, load<u64>(from));
    from += stride;
    to += 8;
  }
}

function gather4(target: usize, source: usize, stride: usize, count: u32): void {
  let to = target;
  let from = source;
  let left = count;
  const second = stride;
  const third = stride * 2;
  const fourth = stride * 3;
  for (; left >= 4; left -= 4) {
    let lanes = v128.load32_zero(from);
    lanes = v128.load_lane<u32>(from + second, lanes, 1);
    lanes = v128.load_lane<u32>(from + third, lanes, 2);
    lanes = v128.load_lane<u32>(from + fourth, lanes, 3);
    v128.store(to, lanes);
    from += stride * 4;
    to += 16;
  }
  for (; left > 0; left--) {
    store<u32>(to, load<u32>(from));
    from += stride;
    to += 4;
  }
}

function scatter8(target: usize, stride: usize, source: usize, count: u32): void {
  let to = target;
  let from = source;
  let left = count;
  const second = stride;
  const third = stride * 2;
  const fourth = stride * 3;
  for (; left >= 4; left -= 4) {
    const a = load<u64>(from);
    const b = load<u64>(from, 8);
    const c = load<u64>(from, 16);
    const d = load<u64>(from, 24);
    store<u64>(to, a);
    store<u64>(to + second, b);
    store<u64>(to + third, c);
    store<u64>(to + fourth, d);
    from += 32;
    to += stride * 4;
  }
  for (; left > 0; left--) {
    store<u64>(to, load<u64>(from));
    from += 8;
    to += stride;
  }
}

function scatter4(target: usize, stride: usize, source: usize, count: u32): void {
  let to = target;
  let from = source;
  let left = count;
  const second = stride;
  const third = stride * 2;
  const fourth = stride * 3;
  for (; left >= 4; left -= 4) {
    const a = load<u32>(from);
    const b = load<u32>(from, 4);
    const c = load<u32>(from, 8);
    const d = load<u32>(from, 12);
    store<u32>(to, a);
    store<u32>(to + second, b);
    store<u32>(to + third, c);
    store<u32>(to + fourth, d);
    from += 16;
    to += stride * 4;
  }
  for (; left > 0; left--) {
    store<u32>(to, load<u32>(from));
    from += 4;
    to += stride;
  }
}
