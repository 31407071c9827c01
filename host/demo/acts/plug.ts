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
}

/** Part of Worker that is used; the DOM's types are not here. */
interface Thread {
  onerror: ((event: { readonly message: string }) => void) | null;
  terminate(): void;
}

/** The plug is pulled by itself then. */
const LIMIT_MILLIS = 10_000;
/** Between two counts on the screen. */
const SHOW_MILLIS = 50;

export const plug: MainAct = {
  id: 'plug',
  async play(stage) {
    const { endpoint, session, say } = stage;
    const { context } = endpoint;
    const first = await open(context);
    const earlier = judge(first.pmem);
    first.pmem.buffer.fill(0);
    await first.pmem.flush();

    const { LOCAL_WRITE, REMOTE_WRITE, FLUSH_GLOBAL, FLUSH_PERSISTENT } = AccessFlag;
    const pd = context.allocPd();
    const access = LOCAL_WRITE | REMOTE_WRITE | FLUSH_GLOBAL | FLUSH_PERSISTENT;
    const region = pd.regMr(first.pmem.buffer, access);
    let acknowledged = 0;
    try {
      const connection = await endpoint.recorded(session.peer, pd, region);
      acknowledged = await takeUntilPressed(stage, connection);
      await underWay(first.pmem.buffer, acknowledged + 1);
      // On a fast disk that record, too, was acknowledged meanwhile.
      for (const { status, immData } of connection.recvCq.poll(16)) {
        if (status === 0) acknowledged = immData;
      }
      first.kill();
      stage.show({ kind: 'killed' });
      say(
        `${counted(acknowledged, 'record')} acknowledged. The Worker is dead; its file is opened anew.`,
      );
      await connection.close();
    } finally {
      region.dereg();
      pd.dealloc();
      // Its Worker does not answer any more.
      first.pmem.close().catch(() => undefined);
    }

    const { pmem } = await open(context);
    const { record, torn, begun } = judge(pmem);
    await pmem.close();
    const kib = (4 * begun) / KIB;
    return {
      sentences: [
        `Lost: ${Math.max(0, acknowledged - record)} of ${counted(acknowledged, 'acknowledged record')}. ` +
          `The file has record ${record}, with ${torn} damaged words.`,
        `The Worker was killed while record ${acknowledged + 1} was on its way; ` +
          `${kib} KiB of record ${record + 1} lie beside the valid one and do not count.`,
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
    return {
      pmem,
      kill() {
        thread!.terminate();
        thread!.onerror?.({ message: 'it was killed' });
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

/** Counts records until the button is pressed, after one at least; the number of the last one. */
async function takeUntilPressed(
  { pressed, show }: Stage,
  { qp, recvCq }: RdmaConnection,
): Promise<number> {
  let isPressed = false;
  const press = (): void => void (isPressed = true);
  void pressed.then(press);
  const timer = setTimeout(press, LIMIT_MILLIS);
  let shownMillis = 0;
  try {
    for (;;) {
      const [completion] = await recvCq.wait(1);
      if (!completion || completion.status !== 0) throw new Error('the peer has gone');
      qp.postRecv({ sgList: [] });
      const acknowledged = completion.immData;
      const now = performance.now();
      if (isPressed || now - shownMillis >= SHOW_MILLIS) {
        shownMillis = now;
        show({ kind: 'records', acknowledged });
      }
      if (isPressed) return acknowledged;
    }
  } finally {
    clearTimeout(timer);
  }
}

/** The record is in memory: its FLUSH comes next, or is here. */
async function underWay(memory: Uint8Array, record: number): Promise<void> {
  const words = recordAt(memory, placeOf(record));
  while (words.at(-1) !== record) await new Promise((resolve) => setTimeout(resolve, 0));
}
