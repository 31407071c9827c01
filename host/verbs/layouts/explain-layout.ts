/** A memory layout in a sentence. */
import type { MrLayoutInterleaved } from './layout-list.js';
import type { Sge } from '../queues/sge.js';
import { checkMember } from '../../errors/check-member.js';

/** Pieces that are shown one by one. */
const SHOWN_MAX = 4;

/** How a key is called. */
export type KeyNames = (lkey: number) => string;

const hexadecimal: KeyNames = (lkey) => `key 0x${(lkey >>> 0).toString(16)}`;

function count(number: number | bigint, one: string, many = `${one}s`): string {
  return `${number} ${BigInt(number) === 1n ? one : many}`;
}

function isInterleaved(entry: Sge | MrLayoutInterleaved): entry is MrLayoutInterleaved {
  return 'firstDatum' in entry;
}

function totalOf({ dims }: MrLayoutInterleaved): bigint {
  return dims.reduce((total, { datumCount }) => total * BigInt(datumCount), 1n);
}

function bytesOf(entry: Sge | MrLayoutInterleaved): bigint {
  if (!isInterleaved(entry)) return BigInt(entry.length);
  return totalOf(entry) * BigInt(entry.firstDatum.length);
}

function sourceSentence(source: MrLayoutInterleaved, names: KeyNames): string {
  const { firstDatum, dims } = source;
  const [first = { offsetStride: 0, datumCount: 1 }, ...more] = dims;
  const bytes = count(firstDatum.length, 'byte');
  const data = count(first.datumCount, `datum of ${bytes}`, `data of ${bytes}`);
  const apart = BigInt(first.datumCount) > 1n ? `, ${first.offsetStride} bytes apart` : '';
  const times = more.map(
    ({ offsetStride, datumCount }) => `, ${count(datumCount, 'time')} ${offsetStride} bytes on`,
  );
  const where = `from ${firstDatum.addr} of ${names(firstDatum.lkey)}`;
  return `${data}${apart}${times.join('')}, ${where}`;
}

/**
 * Explains a layout with the arguments of `setLayoutSg` or `setLayoutInterleaved`: its number of
 * bytes, and their origin. `names` replaces keys by names.
 */
export function explainLayout(
  list: readonly Sge[] | readonly MrLayoutInterleaved[],
  names: KeyNames = hexadecimal,
): string {
  checkMember('list', list, 'reduce', 'an array of SGEs or interleaved layouts');
  const all = list as readonly (Sge | MrLayoutInterleaved)[];
  const total = all.reduce((sum, entry) => sum + bytesOf(entry), 0n);
  const row = `${count(total, 'byte')} in a row`;
  const interleaved = all.every(isInterleaved);
  const shown = all.slice(0, SHOWN_MAX).map((entry) => {
    if (!isInterleaved(entry)) {
      return `${count(entry.length, 'byte')} from ${entry.addr} of ${names(entry.lkey)}`;
    }
    const sentence = sourceSentence(entry, names);
    return all.length === 1 ? sentence : `${entry.numRepeated ?? 1} at a time of ${sentence}`;
  });
  if (all.length > SHOWN_MAX) shown.push(`and ${all.length - SHOWN_MAX} more`);
  const what = interleaved && all.length > 1 ? `${row}, in turn` : row;
  return `${what}: ${shown.join('; ')}.`;
}
