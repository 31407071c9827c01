/** Describes for a command at its start what its files survive. */
import type { Durability } from '../../index.js';

interface Storage {
  readonly durability: Durability;
  readonly reason: string;
}

const MEANINGS: Readonly<Record<Durability, string>> = {
  dax: 'a flush protects from a power cut',
  disk: 'a flush protects from a power cut, if the drive writes what it reports as written',
  unknown: 'whether a flush protects from a power cut is unknown',
  none: 'a flush protects from the end of processes only',
  browser: 'a flush protects as far as the browser passes it on',
};

/** `disk, ext4 on vda (write cache is flushed): a flush protects from …`. */
export function describeStorage({ durability, reason }: Storage): string {
  return `${durability}, ${reason}: ${MEANINGS[durability]}`;
}
