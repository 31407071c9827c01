/** Source of `putFile` in a page: a Blob or a File. */
import { MisuseError } from '../errors/errors.js';
import { BlobSource, type BlobLike } from './blob-source.js';
import type { Source } from './source.js';

export async function openSource(
  file: BlobLike | string,
  name: string | undefined,
  pieceBytes: number,
): Promise<Source> {
  if (typeof file !== 'string') return new BlobSource(file, name, pieceBytes);
  throw new MisuseError('file', 'must be a Blob or a File in a page, which has no paths');
}
