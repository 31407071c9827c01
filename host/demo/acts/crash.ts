/** Records that a peer has FLUSHED outlive the Worker that has the file, wherever it is killed. */
import type { RdmaConnection } from '../../cm/connect.js';
import type { PersistentMemory } from '../../pmem/persistent-memory.js';
import type { Context } from '../../verbs/context.js';
import { AccessFlag } from '../../verbs/enums.js';
import { RECORDS_BYTES, placeOf, readWord, recordAt } from '../memory-layout.js';
import { counted, type Act } from './act.js';

const NAME = 'verbena demo';
const KIB = 1024;

interface Opened {
  readonly pmem: PersistentMemory;
  /** Kills the Worker that has the file; what it was doing is never done. */
  crash(): void;
}

/** What of Worker is used; the DOM's types are not here. */
interface Thread {
  onerror: ((event: { readonly message: string }) => void) | null;
  terminate(): void;
}

export const crash: Act = {
  id: 'crash',
  title: 'Crash',
  sentence:
    'The peer WRITEs records into persistent memory of this pane, a file of its browser (OPFS): beside ' +
    'the record before, FLUSH, then the new number by ATOMIC WRITE, FLUSH. The Worker that has the file is ' +
    'killed in the middle. Each record that was reported durable is there when the file is reopened.',
  slider: { label: 'Records before', min: 1, max: 50, step: 1, value: 10, unit: '' },
  async play({ endpoint, session, say }, value) {
    const { context } = endpoint;
    const first = await open(context);
    const earlier = judge(first.pmem);
    first.pmem.buffer.fill(0);
    await first.pmem.flush();

    const { LOCAL_WRITE, REMOTE_WRITE, FLUSH_GLOBAL, FLUSH_PERSISTENT } = AccessFlag;
    const pd = context.allocPd();
    const access = LOCAL_WRITE | REMOTE_WRITE | FLUSH_GLOBAL | FLUSH_PERSISTENT;
    const region = pd.regMr(first.pmem.buffer, access);
    let told = 0;
    try {
      const connection = await endpoint.recorded(session.peer, pd, region);
      told = await takeUntil(connection, value);
      say(`${counted(told, 'record')} told to be durable; the next one is under way.`);
      await underWay(first.pmem.buffer, told + 1);
      first.crash();
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
        `PrivateData to be durable: records 1 to ${told}. The Worker was killed while ${told + 1} was under way.`,
        `Opened anew, the file has record ${record}; of its words ${torn} are another’s. ` +
          `Beside it lie ${kib} KiB of record ${record + 1}, which is not counted yet.`,
        ...(earlier.record > 0
          ? [`Found at first: record ${earlier.record} of the last time.`]
          : []),
      ],
      figures: { told, record, torn, begun, earlier: earlier.record, earlierTorn: earlier.torn },
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
      crash() {
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

/** Waits until `wanted` records are reported durable; returns the number of the last one. */
async function takeUntil({ qp, recvCq }: RdmaConnection, wanted: number): Promise<number> {
  for (;;) {
    const [completion] = await recvCq.wait(1);
    if (!completion || completion.status !== 0) throw new Error('the peer has gone');
    qp.postRecv({ sgList: [] });
    if (completion.immData >= wanted) return completion.immData;
  }
}

/** The record is in memory: its FLUSH comes next, or is here. */
async function underWay(memory: Uint8Array, record: number): Promise<void> {
  const words = recordAt(memory, placeOf(record));
  while (words.at(-1) !== record) await new Promise((resolve) => setTimeout(resolve, 0));
}
