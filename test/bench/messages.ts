/**
 * Messages between two processes, in each of the ways of `message-ends.ts`. A pair stays open for
 * all rounds: to start a process takes longer than to measure it.
 */
import { FlowWatch, type Flow } from './flow.js';
import { openEnd, type MessageEnd, type WayOptions } from './message-ends.js';
import { Partner, partnerTask, tell } from './partner.js';
import { TripTimer, type Trips } from './trips.js';

interface Task extends WayOptions {
  readonly where: readonly number[];
}

interface Ready {
  readonly where: readonly number[];
}

/** Commands for the partner, which answers with its messages since the last command. */
type Word =
  | { readonly word: 'begin'; readonly bytes: number; readonly answers: boolean }
  | { readonly word: 'count' }
  | { readonly word: 'end' };

const WARM_UP_MILLIS = 100;
/** Whatever takes longer does not come any more. */
const LIMIT_MILLIS = 20_000;
const LOOK_MILLIS = 5;

export class MessagePair {
  readonly #end: MessageEnd;
  readonly #partner: Partner<Ready>;
  readonly #name: string;
  #sent = 0;

  private constructor(name: string, end: MessageEnd, partner: Partner<Ready>) {
    this.#name = name;
    this.#end = end;
    this.#partner = partner;
  }

  static async open(name: string, options: WayOptions): Promise<MessagePair> {
    const end = await openEnd(options);
    const task: Task = { ...options, where: end.where, isPartner: true };
    const partner = await Partner.start<Ready>(import.meta.url, task);
    await inTime(name, end.connect(partner.ready.where));
    return new MessagePair(name, end, partner);
  }

  /** To and fro, one at a time. */
  async trips(bytes: number, count: number): Promise<Trips> {
    await this.#begin(bytes, true);
    const end = this.#end;
    const timer = new TripTimer(count, this.#partner);
    const done = new Promise<void>((resolve) => {
      const begin = (): void => {
        timer.begin();
        this.#sent++;
        void end.send();
      };
      end.heard = () => {
        timer.end();
        if (timer.done) resolve();
        else begin();
      };
      begin();
    });
    await inTime(this.#name, done);
    return timer.result();
  }

  /** One way; what counts is what the other process has had. */
  async flow(bytes: number, seconds: number): Promise<Flow> {
    await this.#begin(bytes, false);
    const end = this.#end;
    let isOver = false;
    const pumping = (async () => {
      for (let count = 0; !isOver; count++) {
        const later = end.send();
        this.#sent++;
        // Others have their turn as well.
        if (later) await later;
        else if (count % 64 === 0) await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    await new Promise((resolve) => setTimeout(resolve, WARM_UP_MILLIS));
    const before = await this.#received();
    const watch = new FlowWatch(this.#partner);
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    const messages = (await this.#received()) - before;
    const spent = watch.read();
    isOver = true;
    await inTime(this.#name, pumping);
    await this.#arrived();
    const packets = messages * Math.max(1, Math.ceil(bytes / 4096));
    return { ...spent, messages, packets, bytes: messages * bytes };
  }

  async close(): Promise<void> {
    this.#partner.tell({ word: 'end' } satisfies Word);
    await this.#partner.ended();
    await this.#end.close();
  }

  async #begin(bytes: number, answers: boolean): Promise<void> {
    this.#sent = 0;
    this.#end.bytes = bytes;
    this.#partner.tell({ word: 'begin', bytes, answers } satisfies Word);
    await this.#partner.next<number>();
  }

  /** Messages since the beginning. */
  async #received(): Promise<number> {
    this.#partner.tell({ word: 'count' } satisfies Word);
    return this.#partner.next<number>();
  }

  /** Nothing is under way any more. */
  async #arrived(): Promise<void> {
    const end = performance.now() + LIMIT_MILLIS;
    while ((await this.#received()) < this.#sent) {
      if (performance.now() > end) throw new Error(`${this.#name}: messages are lost`);
      await new Promise((resolve) => setTimeout(resolve, LOOK_MILLIS));
    }
  }
}

async function inTime(name: string, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new Error(`${name}: nothing comes any more`);
    timer = setTimeout(() => reject(error), LIMIT_MILLIS);
  });
  await Promise.race([work, late]);
  clearTimeout(timer);
}

/** The other process: answers, or counts, until the end. */
async function serve(task: Task): Promise<void> {
  const end = await openEnd(task);
  await end.connect(task.where);
  let count = 0;
  let answers = false;
  end.heard = () => {
    count++;
    if (answers) void end.send();
  };
  const ended = new Promise<void>((resolve) => {
    // The measuring process has ended.
    process.once('disconnect', resolve);
    process.on('message', (message: Word) => {
      if (message.word === 'end') return resolve();
      if (message.word === 'begin') {
        ({ bytes: end.bytes, answers } = message);
        count = 0;
      }
      tell(count);
    });
  });
  tell({ where: end.where } satisfies Ready);
  await ended;
  await end.close();
  process.exit();
}

const task = partnerTask<Task>(import.meta.url);
if (task) await serve(task);
