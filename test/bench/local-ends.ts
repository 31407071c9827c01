/**
 * Processes of one device that share its memory: WRITEs to and fro, seen by polling the memory, and
 * fetch-adds of several processes to one word.
 */
import { SendFlag, WrOpcode } from '../../host/index.js';
import type { AnyRequest } from '../support/any-request.js';
import { Partner, endOrphan, partnerTask, tell } from './partner.js';
import { End, check, type Address, type There } from './stack.js';
import { TripTimer, type Trips } from './trips.js';

const BYTES = 65536;
/** Where the answer of the other process arrives, and where a message leaves. */
const ANSWER = 4096;
const SOURCE = 8192;
const LENGTH = 64;
const SIGNALED_EVERY = 32;
const LIST = 64;
const LAST = 0x7fffffff;

interface Task {
  readonly kind: 'echo' | 'add';
  readonly name: string;
  readonly address: Address;
  readonly region: { readonly addr: number; readonly rkey: number };
  readonly seconds: number;
}

function openEnd(name: string, queuePairs = 1): Promise<End> {
  return End.open({ name, progress: 'poll', bytes: BYTES, queuePairs, timeout: 18 });
}

function wordOf({ buffer }: End, offset: number): Int32Array {
  return new Int32Array(buffer.buffer, buffer.byteOffset + offset, 1);
}

function regionOf({ mr }: End): Task['region'] {
  return { addr: Number(mr.addr), rkey: mr.rkey };
}

/** WRITEs a number of 64 bytes to a place of the peer. */
class NumberWriter {
  readonly #end: End;
  readonly #source: Int32Array;
  readonly #silent: AnyRequest[];
  readonly #signaled: AnyRequest[];
  #count = 0;

  constructor(end: End, { addr, rkey }: Task['region'], place: number) {
    this.#end = end;
    this.#source = wordOf(end, SOURCE);
    const request = {
      opcode: WrOpcode.RDMA_WRITE,
      sgList: [{ addr: Number(end.mr.addr) + SOURCE, length: LENGTH, lkey: end.mr.lkey }],
      rdma: { remoteAddr: addr + place, rkey },
    };
    this.#silent = [{ ...request, sendFlags: 0 }];
    this.#signaled = [{ ...request, sendFlags: SendFlag.SIGNALED }];
  }

  write(value: number): void {
    const { qp, cq } = this.#end;
    this.#source[0] = value;
    const isSignaled = ++this.#count % SIGNALED_EVERY === 0;
    qp.postSend(isSignaled ? this.#signaled : this.#silent);
    if (isSignaled) pollOne(cq);
  }
}

function pollOne(cq: End['cq']): void {
  let completions = cq.poll(1);
  while (completions.length === 0) completions = cq.poll(1);
  check(completions[0]!.status);
}

function expectNoPackets({ context }: End): void {
  if (context.counters().sentPkts > 0n) throw new Error('requests went by packets');
}

/** A WRITE of 64 bytes and the answering one, both processes polling their memory. */
export async function writeTrips(count: number): Promise<Trips> {
  const name = `bench-local-${process.pid}-write`;
  const end = await openEnd(name);
  const { address } = end;
  const task: Task = { kind: 'echo', name, address, region: regionOf(end), seconds: 0 };
  const partner = await Partner.start<There>(import.meta.url, task);
  end.connect(partner.ready);
  const writer = new NumberWriter(end, partner.ready.regions[0]!, 0);
  const answer = wordOf(end, ANSWER);
  const timer = new TripTimer(count, partner, 4 * count);
  for (let value = 1; !timer.done; value++) {
    timer.begin();
    writer.write(value);
    while (Atomics.load(answer, 0) !== value);
    timer.end();
  }
  const trips = timer.result();
  expectNoPackets(end);
  writer.write(LAST);
  await partner.ended();
  await end.context.close();
  return trips;
}

/** Millions a second; throws unless the word has the sum of all. */
export async function addTogether(processes: number, seconds: number): Promise<number> {
  const name = `bench-local-${process.pid}-add`;
  const end = await openEnd(name, processes);
  const { qpns, ...rest } = end.address;
  const partners = await Promise.all(
    qpns.map((qpn) => {
      const address = { ...rest, qpns: [qpn] };
      const task: Task = { kind: 'add', name, address, region: regionOf(end), seconds };
      return Partner.start<There>(import.meta.url, task);
    }),
  );
  for (const [index, { ready }] of partners.entries()) end.connect(ready, index);
  for (const partner of partners) partner.tell('go');
  const counts = await Promise.all(partners.map((partner) => partner.next<number>()));
  const total = counts.reduce((sum, count) => sum + count, 0);
  const sum = new BigInt64Array(end.buffer.buffer, end.buffer.byteOffset, 1)[0]!;
  if (sum !== BigInt(total)) throw new Error(`the word is ${sum} after ${total} fetch-adds`);
  for (const partner of partners) partner.tell('end');
  await Promise.all(partners.map((partner) => partner.ended()));
  await end.context.close();
  return total / 1e6 / seconds;
}

function echo(end: End, { region }: Task): void {
  const writer = new NumberWriter(end, region, ANSWER);
  const word = wordOf(end, 0);
  for (let seen = 0; seen !== LAST;) {
    const value = Atomics.load(word, 0);
    endOrphan();
    if (value === seen) continue;
    seen = value;
    if (value !== LAST) writer.write(value);
  }
}

/** Returns how many fetch-adds are complete. */
function add(end: End, { region, seconds }: Task): number {
  const { qp, cq, mr } = end;
  const atomic = { remoteAddr: region.addr, rkey: region.rkey, compareAdd: 1n };
  const list = Array.from({ length: LIST }, (_, index) => ({
    opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
    sendFlags: index === LIST - 1 ? SendFlag.SIGNALED : 0,
    sgList: [{ addr: Number(mr.addr) + SOURCE, length: 8, lkey: mr.lkey }],
    atomic,
  }));
  let count = 0;
  for (const over = performance.now() + seconds * 1000; performance.now() < over;) {
    qp.postSend(list);
    pollOne(cq);
    count += LIST;
  }
  return count;
}

function nextMessage(): Promise<void> {
  return new Promise((resolve) => process.once('message', () => resolve()));
}

async function serve(task: Task): Promise<void> {
  const end = await openEnd(task.name);
  end.connect(task.address);
  const go = nextMessage();
  tell({ ...end.address, regions: [regionOf(end)] } satisfies There);
  if (task.kind === 'echo') echo(end, task);
  else {
    await go;
    const count = add(end, task);
    expectNoPackets(end);
    const over = nextMessage();
    tell(count);
    await over;
  }
  await end.context.close();
  process.disconnect();
}

const task = partnerTask<Task>(import.meta.url);
if (task) await serve(task);
