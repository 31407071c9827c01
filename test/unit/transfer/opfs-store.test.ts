/** The page's side of a store in the origin private file system, with a Worker of the test. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { rejection } from '../../support/refusal.js';
import { OpfsStore } from '../../../host/transfer/opfs-store.js';
import { isFileName } from '../../../host/transfer/file-name.js';
import type { OpfsWorker } from '../../../host/transfer/opfs-worker.js';
import type { OpfsAnswer, OpfsRequest } from '../../../host/transfer/transfer-thread.js';

test('a store whose Worker could not start begins another one', async () => {
  const ended: number[] = [];
  let started = 0;
  /** The first one gets no directory of the browser. */
  const createWorker = (): OpfsWorker => {
    const number = ++started;
    const worker: OpfsWorker = {
      onmessage: null,
      onerror: null,
      postMessage({ id, call }: OpfsRequest) {
        const error = { name: 'RefusalError', code: 'EACCES' as const, message: 'denied (EACCES)' };
        const value = call === 'open' ? { entries: [], note: '' } : undefined;
        const data: OpfsAnswer = number === 1 ? { id, error } : { id, value };
        setImmediate(() => worker.onmessage?.({ data }));
      },
      terminate: () => ended.push(number),
    };
    return worker;
  };
  const store = new OpfsStore({}, createWorker);
  const version = { name: 'a', size: 1, mtimeNs: 0n, pieceBytes: 65536 };
  const refusal = await store.open(version as never).then(
    () => assert.unreachable('it should have been refused') as never,
    (error: Error) => error.message,
  );
  assert.equal([refusal, ended], ['denied (EACCES)', [1]]);
  assert.ok(await store.open(version as never));
  assert.is(started, 2);
});

test('names that no received file can have are not found; other types are misuse', async () => {
  for (const name of ['', '..', '../a', 'a/b', '.a', 'a.part'])
    assert.is(isFileName(name), false, name);
  assert.is(isFileName('å.txt'), true);
  const store = new OpfsStore({});
  for (const call of [() => store.file(5 as never), () => store.remove(undefined as never)])
    assert.match(`${await rejection(call())}`, /MisuseError: name: must be a string/);
  await store.remove('../a');
});

test.run();
