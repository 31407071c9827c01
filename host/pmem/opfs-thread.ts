/**
 * The Worker of one region in a browser: holds its file and blocks in the flush. It opens the file,
 * serves a SyncStore, and closes the file at the end.
 */
import { MisuseError, RefusalError, type ErrnoName } from '../errors/errors.js';
import { OpfsFile, codeOf, type Origin } from './opfs-file.js';
import type { SyncAnswer, SyncRequest } from './sync-store.js';

export interface OpfsOpen {
  readonly open: { readonly name: string; readonly bytes?: number; readonly newId: bigint };
}

export type OpfsTask = OpfsOpen | SyncRequest | { readonly end: true };

/** Result of opening. */
export interface OpfsOpened {
  readonly id?: bigint;
  readonly contents?: Uint8Array<ArrayBuffer>;
  /** Of a RefusalError. */
  readonly refusal?: { readonly code: ErrnoName; readonly message: string };
  /** Of a MisuseError. */
  readonly misuse?: { readonly argument: string; readonly rule: string };
}

/** Part of a Worker's own scope that is used. */
interface Scope {
  readonly navigator: Origin;
  onmessage: ((event: { readonly data: OpfsTask }) => void) | null;
  postMessage(message: unknown, transfer?: readonly unknown[]): void;
}

const scope = globalThis as unknown as Scope;
let file: OpfsFile | undefined;
let failure: SyncAnswer['failure'];

scope.onmessage = ({ data }) => {
  if ('open' in data) void open(data);
  else if ('ranges' in data) sync(data);
  else {
    file?.close();
    scope.postMessage({ ended: true });
  }
};

async function open({ open: { name, bytes, newId } }: OpfsOpen): Promise<void> {
  try {
    file = await OpfsFile.open(scope.navigator, name, bytes, newId);
    const contents = file.contents();
    const opened: OpfsOpened = { id: file.header.id, contents };
    scope.postMessage(opened, [contents.buffer]);
  } catch (error) {
    file?.close();
    scope.postMessage(refused(error));
  }
}

function refused(error: unknown): OpfsOpened {
  const { message } = error as Error;
  if (error instanceof MisuseError) {
    const { argument } = error;
    return { misuse: { argument, rule: message.slice(`${argument}: `.length) } };
  }
  const code = error instanceof RefusalError ? error.code : 'EIO';
  return { refusal: { code, message } };
}

/** After the first failure nothing is durable any more: the lost ranges are unknown. */
function sync({ id, ranges }: SyncRequest): void {
  try {
    if (!failure && ranges.length > 0) {
      for (const { offset, bytes } of ranges) file!.write(bytes!, offset);
      file!.flush();
    }
  } catch (error) {
    failure = { code: codeOf(error), message: (error as Error).message };
  }
  const answer: SyncAnswer = failure ? { id, failure } : { id };
  scope.postMessage(answer);
}
