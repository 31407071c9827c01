/**
 * The tour's default file: real, large and installed, which the node binary almost always is. If it
 * is a small one over shared libraries, installed files of the dependencies are concatenated.
 */
import { createReadStream, createWriteStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { RefusalError } from '../../errors/errors.js';

const BYTES_MIN = 50e6;

export interface TourFile {
  readonly path: string;
  /** Description for people. */
  readonly what: string;
}

/** At least 50 MB. `directory` takes the file when one has to be made. */
export async function findTourFile(
  directory: string,
  candidate: string = process.execPath,
): Promise<TourFile> {
  if ((await stat(candidate)).size >= BYTES_MIN) {
    return { path: candidate, what: 'the node binary' };
  }
  const path = join(directory, 'installed-files');
  let bytes = 0;
  let files = 0;
  for await (const source of installedFiles(candidate)) {
    await pipeline(createReadStream(source), createWriteStream(path, { flags: 'a' }));
    bytes += (await stat(source)).size;
    files++;
    if (bytes >= BYTES_MIN) return { path, what: `${files} installed files in a row` };
  }
  throw new RefusalError('ENOENT', 'no installed file of 50 MB was found: name a file');
}

async function* installedFiles(candidate: string): AsyncGenerator<string> {
  yield candidate;
  // Ours, or those of the project that we are installed in.
  for (const up of ['../../../../node_modules', '../../../../..']) {
    const root = fileURLToPath(new URL(up, import.meta.url));
    const entries = await readdir(root, { recursive: true, withFileTypes: true }).catch(() => []);
    for (const entry of entries) {
      if (entry.isFile()) yield join(entry.parentPath, entry.name);
    }
  }
}
