/** Describes for a command at its start what its files survive. */
import { RefusalError } from '../../errors/errors.js';
import type { Durability } from '../../index.js';
import { VolatileRefusal } from '../../pmem/open-region.js';

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

/** A file that is being opened; `remedy` for storage that keeps nothing: commands have no `volatile`. */
export async function openDurable<Opened>(
  opening: Promise<Opened>,
  remedy = 'name a file on a disk',
): Promise<Opened> {
  try {
    return await opening;
  } catch (error) {
    if (!(error instanceof VolatileRefusal)) throw error;
    throw new RefusalError('EOPNOTSUPP', `${error.sentence}; ${remedy}`);
  }
}
