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
  for (let index: u32 = 0; index < count; index++) {
    copyBytes(to, from, datum);
    to += targetStride;
    from += sourceStride;
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
    const lanes = v128.load(from);
    v128.store_lane<u32>(to, lanes, 0);
    v128.store_lane<u32>(to + second, lanes, 1);
    v128.store_lane<u32>(to + third, lanes, 2);
    v128.store_lane<u32>(to + fourth, lanes, 3);
    from += 16;
    to += stride * 4;
  }
  for (; left > 0; left--) {
    store<u32>(to, load<u32>(from));
    from += 4;
    to += stride;
  }
}
