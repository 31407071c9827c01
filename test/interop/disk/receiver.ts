/**
 * A process that receives a file piece by piece, as `verbena serve` does: `node receiver.js
 * FOLDER`.
 */
import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { openPartFile } from '../../../host/transfer/directory-part.js';
import type { PartFile } from '../../../host/transfer/part-file.js';
import type { Answer } from './victim.js';

export const FILE_NAME = 'received';
export const PIECES = 40;
export const PIECE_BYTES = 65536;

export type ReceiverCommand =
  | { readonly kind: 'open' }
  /** Writes the pieces that are missing. */
  | { readonly kind: 'receive'; readonly from: number; readonly to: number }
  /** Number of pieces known to be on the disk. */
  | { readonly kind: 'synced' }
  | { readonly kind: 'finish' }
  | { readonly kind: 'close' };

/** Contents of the file; each piece contains `tag`. */
export function contentOf(tag: string): Buffer {
  const pieces = Array.from({ length: PIECES }, (_, index) =>
    Buffer.alloc(PIECE_BYTES, `${tag} piece ${index} `),
  );
  return Buffer.concat(pieces);
}

if (process.argv[1]?.endsWith('receiver.js')) {
  const [directory = '', tag = ''] = process.argv.slice(2);
  const content = contentOf(tag);
  const version = {
    name: FILE_NAME,
    size: content.length,
    mtimeNs: '1',
    pieceBytes: PIECE_BYTES,
  };
  let part: PartFile | undefined;
  const perform = async (command: ReceiverCommand): Promise<Answer> => {
    switch (command.kind) {
      case 'open':
        part = await openPartFile(directory, version);
        break;
      case 'receive':
        for (let index = command.from; index < command.to; index++) {
          if (part!.synced.has(index)) continue;
          const piece = content.subarray(index * PIECE_BYTES, (index + 1) * PIECE_BYTES);
          await part!.write(index, piece, crc32(piece));
        }
        break;
      case 'synced':
        return { count: part!.synced.size };
      case 'finish':
        await part!.finish(createHash('sha256').update(content).digest());
        break;
      case 'close':
        await part!.close();
        break;
    }
    return {};
  };
  process.on('message', (command: ReceiverCommand) => {
    perform(command).then(
      (answer) => process.send!(answer),
      (error: NodeJS.ErrnoException) =>
        process.send!({ code: error.code ?? error.name, message: error.message } satisfies Answer),
    );
  });
  process.on('disconnect', () => process.exit(0));
}
