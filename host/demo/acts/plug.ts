/** Records that a peer has FLUSHED outlive the Worker that has the file, whenever it is killed. */
import type { RdmaConnection } from '../../cm/connect.js';
import type { PersistentMemory } from '../../pmem/persistent-memory.js';
import type { Context } from '../../verbs/context.js';
import { AccessFlag } from '../../verbs/enums.js';
import { RECORDS_BYTES, placeOf, readWord, recordAt } from '../memory-layout.js';
import { counted, type MainAct, type Stage } from './act.js';

const NAME = 'verbena demo';
const KIB = 1024;

interface Opened {
  readonly pmem: PersistentMemory;
  /** Kills the Worker that has the file; what it was doing is never done. */
  kill(): void;
  /** Closes the file, unless its Worker was killed. */
  close(): Promise<void>;
}

/** Part of Worker that is used; the DOM's types are not here. */
interface Thread {
  onerror: ((event: { readonly message: string }) => void) | null;
  terminate(): void;
}

/** The plug is pulled by itself then. */
const LIMIT_MILLIS = 10_000;
const GONE = 'the peer has gone';
/** The record after the last one must be in memory by then. */
const NEXT_RECORD_MILLIS = 5000;
/** Between two counts on the screen. */
const SHOW_MILLIS = 50;

export const plug: MainAct = {
  id: 'plug',
  async play(stage) {
    const { context } = stage.endpoint;
    const first = await open(context);
    const earlier = judge(first.pmem);
    const acknowledged = await recordUntilKilled(stage, first);
    const { pmem } = await open(context);
    const { record, torn, begun } = judge(pmem);
    await pmem.close();
    const kib = (4 * begun) / KIB;
    return {
      sentences: [
        `Lost: ${Math.max(0, acknowledged - record)} of ${counted(acknowledged, 'acknowledged record')}. ` +
          `The newest record in the file is ${record}, and ` +
          `${torn === 0 ? 'it is whole' : `${counted(torn, 'word')} in it are damaged`}.`,
        'The Worker was killed in the middle of the next record: the file has ' +
          `${begun === 0 ? 'nothing' : `${kib} KiB`} of that one, and it does not count.`,
        ...(earlier.record > 0
          ? [`Found at the start: record ${earlier.record} of the run before.`]
          : []),
      ],
      figures: {
        acknowledged,
        record,
        torn,
        begun,
        earlier: earlier.record,
        earlierTorn: earlier.torn,
      },
    };
  },
};

/** Rejects as openPmem: without OPFS, or with the file open in another tab. */
async function open(context: Context): Promise<Opened> {
  const scope = globalThis as unknown as { Worker?: new (...args: unknown[]) => Thread };
  const { Worker } = scope;
  let thread: Thread | undefined;
  // The library keeps it to itself, for good reasons.
  if (Worker) {
    scope.Worker = class extends Worker {
      constructor(...args: unknown[]) {
        super(...args);
        // eslint-disable-next-line @typescript-eslint/no-this-alias
        thread = this;
      }
    };
  }
  try {
    const pmem = await context.openPmem(NAME, { bytes: RECORDS_BYTES });
    let isKilled = false;
    return {
      pmem,
      kill() {
        isKilled = true;
        thread!.terminate();
        thread!.onerror?.({ message: 'it was killed' });
      },
      async close() {
        const closing = pmem.close().catch(() => undefined);
        // The Worker does not answer any more.
        if (!isKilled) await closing;
      },
    };
  } finally {
    if (Worker) scope.Worker = Worker;
  }
}

/** The record that counts, how many of its words are another's, and of the next one's are there. */
function judge({ buffer }: PersistentMemory): { record: number; torn: number; begun: number } {
  const record = readWord(buffer, 0);
  const torn = recordAt(buffer, placeOf(record)).filter((word) => word !== record).length;
  const next = record + 1;
  const begun = recordAt(buffer, placeOf(next)).filter((word) => word === next).length;
  return { record, torn, begun };
}

/** Number of the last acknowledged record. Connection and file are closed, also after an error. */
async function recordUntilKilled(stage: Stage, { pmem, kill, close }: Opened): Promise<number> {
  const { endpoint, session, say } = stage;
  const { LOCAL_WRITE, REMOTE_WRITE, FLUSH_GLOBAL, FLUSH_PERSISTENT } = AccessFlag;
  const ends: (() => unknown)[] = [close];
  try {
    pmem.buffer.fill(0);
    await pmem.flush();
    const pd = endpoint.context.allocPd();
    ends.push(() => pd.dealloc());
    const access = LOCAL_WRITE | REMOTE_WRITE | FLUSH_GLOBAL | FLUSH_PERSISTENT;
    const region = pd.regMr(pmem.buffer, access);
    ends.push(() => region.dereg());
    const connection = await endpoint.recorded(session.peer, pd, region);
    ends.push(() => connection.close());
    const gone = new AbortController();
    const over = Promise.race([connection.disconnected, session.over]);
    void over.then(() => gone.abort(new Error(GONE)));
    const pressedAt = await takeUntilPressed(stage, connection, gone.signal);
    const acknowledged = await underWay(pmem.buffer, connection, pressedAt, gone.signal);
    kill();
    stage.show({ kind: 'killed' });
    const records = counted(acknowledged, 'record');
    say(`${records} acknowledged. The Worker is dead; its file is opened anew.`);
    return acknowledged;
  } finally {
    for (const end of ends.reverse()) {
      try {
        await end();
      } catch {
        // The others are needed: an open file is locked.
      }
    }
  }
}

/** Counts records until the button is pressed, after one at least; the number of the last one. */
async function takeUntilPressed(
  { pressed, show }: Stage,
  { qp, recvCq }: RdmaConnection,
  gone: AbortSignal,
): Promise<number> {
  let isPressed = false;
  let acknowledged = 0;
  const stop = new AbortController();
  const press = (): void => {
    isPressed = true;
    if (acknowledged > 0) stop.abort();
  };
  void pressed.then(press);
  gone.addEventListener('abort', () => stop.abort());
  const timer = setTimeout(() => {
    press();
    stop.abort(new Error(GONE));
  }, LIMIT_MILLIS);
  let shownMillis = 0;
  try {
    for (;;) {
      gone.throwIfAborted();
      const [completion] = await recvCq.wait(1, { signal: stop.signal });
      if (!completion || completion.status !== 0) throw new Error(GONE);
      qp.postRecv({ sgList: [] });
      acknowledged = completion.immData;
      const now = performance.now();
      if (isPressed || now - shownMillis >= SHOW_MILLIS) {
        shownMillis = now;
        show({ kind: 'records', acknowledged });
      }
      if (isPressed) return acknowledged;
    }
  } catch (error) {
    gone.throwIfAborted();
    if (isPressed && acknowledged > 0) return acknowledged;
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Resolves when the record after the last acknowledged one is in memory: its FLUSH comes next, or
 * is here. Meanwhile more are acknowledged, and each lies at the place of the one before the last:
 * a turn that comes late finds a later record there. Returns the number of the last one.
 */
export async function underWay(
  memory: Uint8Array,
  { recvCq }: Pick<RdmaConnection, 'recvCq'>,
  acknowledged: number,
  gone: AbortSignal,
): Promise<number> {
  const end = performance.now() + NEXT_RECORD_MILLIS;
  for (;;) {
    for (const { status, immData } of recvCq.poll(16)) {
      if (status === 0) acknowledged = immData;
    }
    const next = acknowledged + 1;
    if (recordAt(memory, placeOf(next)).at(-1) === next) return acknowledged;
    gone.throwIfAborted();
    if (performance.now() > end) throw new Error(GONE);
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
}
