/** Messages between two processes, in each of the ways of `message-ends.ts`. */
import { FlowWatch, type Flow } from './flow.js';
import { openEnd, type MessageEnd, type WayOptions } from './message-ends.js';
import { Partner, partnerTask, tell } from './partner.js';
import { TripTimer, type Trips } from './trips.js';

interface Task extends WayOptions {
  readonly where: readonly number[];
  readonly answers: boolean;
}

interface Ready {
  readonly where: readonly number[];
}

interface Both {
  readonly end: MessageEnd;
  readonly partner: Partner<Ready>;
  readonly close: () => Promise<void>;
}

const WARM_UP_MILLIS = 300;

async function openBoth(options: WayOptions, answers: boolean): Promise<Both> {
  const end = await openEnd(options);
  const task: Task = { ...options, where: end.where, answers, isPartner: true };
  const partner = await Partner.start<Ready>(import.meta.url, task);
  await end.connect(partner.ready.where);
  const close = async (): Promise<void> => {
    partner.tell('end');
    await partner.ended();
    await end.close();
  };
  return { end, partner, close };
}

export async function messageTrips(options: WayOptions & { count: number }): Promise<Trips> {
  const { end, partner, close } = await openBoth(options, true);
  const timer = new TripTimer(options.count, partner, options.count);
  await new Promise<void>((resolve) => {
    const begin = (): void => {
      timer.begin();
      void end.send();
    };
    end.heard = () => {
      timer.end();
      if (timer.done) resolve();
      else begin();
    };
    begin();
  });
  const trips = timer.result();
  await close();
  return trips;
}

/** One way; what counts is what the other process has had. */
export async function messageFlow(options: WayOptions & { seconds: number }): Promise<Flow> {
  const { end, partner, close } = await openBoth(options, false);
  let isOver = false;
  const pumping = (async () => {
    for (let count = 0; !isOver; count++) {
      const later = end.send();
      // Others have their turn as well.
      if (later) await later;
      else if (count % 64 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  const received = async (): Promise<number> => {
    partner.tell('count');
    return partner.next<number>();
  };
  await new Promise((resolve) => setTimeout(resolve, WARM_UP_MILLIS));
  const before = await received();
  const watch = new FlowWatch(partner);
  await new Promise((resolve) => setTimeout(resolve, options.seconds * 1000));
  const messages = (await received()) - before;
  const spent = watch.read();
  isOver = true;
  await pumping;
  await close();
  const packets = messages * Math.max(1, Math.ceil(options.bytes / 4096));
  return { ...spent, messages, packets, bytes: messages * options.bytes };
}

/** The other process: answers, or counts, until it is told to end. */
async function serve(task: Task): Promise<void> {
  const end = await openEnd(task);
  await end.connect(task.where);
  let count = 0;
  end.heard = () => {
    count++;
    if (task.answers) void end.send();
  };
  const ended = new Promise<void>((resolve) => {
    process.on('message', (word) => {
      if (word === 'count') tell(count);
      else resolve();
    });
  });
  tell({ where: end.where } satisfies Ready);
  await ended;
  await new Promise((resolve) => setTimeout(resolve, 50));
  await end.close();
  process.exit();
}

const task = partnerTask<Task>(import.meta.url);
if (task) await serve(task);
