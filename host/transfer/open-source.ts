/** Source of `putFile` in Node: a path, a Blob or a File. */
import { BlobSource, type BlobLike } from './blob-source.js';
import { SourceFile } from './source-file.js';
import type { Source } from './source.js';

/** Rejects with RefusalError, MisuseError. */
export async function openSource(
  file: BlobLike | string,
  name: string | undefined,
  pieceBytes: number,
): Promise<Source> {
  if (typeof file === 'string') return SourceFile.open(file, pieceBytes, name);
  return new BlobSource(file, name, pieceBytes);
}
