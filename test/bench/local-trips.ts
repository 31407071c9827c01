/**
 * Requests between processes of one device, each time begun by a process of its own: V8 compiles
 * the calls of a program that has opened several devices less well, and one thread's requests are
 * measured in a program that has one.
 */
import type { Figures } from './harness.js';
import { addTogether, writeTrips } from './local-ends.js';
import { Partner, partnerTask, tell } from './partner.js';
import { sendTrips } from './stack-trips.js';
import { tripFigures } from './trips.js';

export type Together = 'write_poll' | 'send_poll' | 'send_waits' | 'fetch_add';

interface Task {
  readonly kind: Together;
  readonly count: number;
  readonly seconds: number;
}

const BYTES = 64;
const ADDERS = 4;

/** The figures of a kind; `seconds`: of fetch-adds, `count`: of what goes to and fro. */
export async function localTrips(task: Task): Promise<Figures> {
  const partner = await Partner.start<Figures>(import.meta.url, task);
  await partner.ended();
  return partner.ready;
}

async function measure({ kind, count, seconds }: Task): Promise<Figures> {
  if (kind === 'fetch_add') return { fetch_add_mps: await addTogether(ADDERS, seconds) };
  if (kind === 'write_poll') return tripFigures(kind, await writeTrips(count));
  const waits = kind === 'send_waits';
  const name = `bench-local-${process.pid}-${kind}`;
  const how = { bytes: BYTES, count, progress: waits ? 'thread' : 'poll', waits, name } as const;
  return tripFigures(kind, await sendTrips(how));
}

const task = partnerTask<Task>(import.meta.url);
if (task) {
  tell(await measure(task));
  process.disconnect();
}
