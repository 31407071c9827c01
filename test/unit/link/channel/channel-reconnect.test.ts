/**
 * Both sides make a connection anew at the same moment: whatever opens and closes in whatever order
 * on which side, both go on, and packets travel both ways afterwards.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint, Gid } from '../../../../host/link/endpoint.js';
import { pattern, TestBatch } from '../../../support/batch.js';
import { FakeChannel, FakeLink } from '../../../support/fake-channel.js';
import { RecordingReceiver, settle } from '../../../support/receiver.js';

/** Of two the smaller address closes what has a successor. */
const ADDRESSES = ['fd00::1', 'fd00::2'] as const;
const LIMITS = { openMillis: 60_000, returnMillis: 60_000, peersMax: 8, askMillis: 1 };

/** All worlds of a test share an event loop: turns are counted, not time. */
const TURNS_MAX = 300;

/** One of the two ends of a connection. What is sent arrives, once both are open. */
class End extends FakeChannel {
  other!: End;
  isOpen = false;
  /** Whose turn it is to hear that the other end was closed. */
  isTold = false;

  override send(message: Uint8Array): boolean {
    const { other } = this;
    const copy = Uint8Array.from(message);
    if (other.isOpen && !other.isClosed && !this.isClosed) other.receiver!.message(copy);
    return true;
  }

  open(): void {
    this.isOpen = true;
    this.receiver!.opened();
  }

  hearClosed(): void {
    this.isTold = true;
    this.receiver!.closed('the other side closed it', false);
  }
}

class Side {
  readonly link: FakeLink;
  readonly peer: Gid;
  readonly receiver = Object.assign(new RecordingReceiver(), {
    gone: [] as string[],
    peerGone(_peer: Endpoint, reason: string): void {
      this.gone.push(reason);
    },
  });

  constructor(own: string, peer: string) {
    this.link = new FakeLink(LIMITS, Gid.parse(own));
    this.peer = Gid.parse(peer);
  }

  send(seed: number): void {
    const to = new Endpoint(this.peer, 4791);
    this.link.send(new TestBatch([{ bytes: pattern(20, seed), to }]));
  }

  got(seed: number): boolean {
    const wanted = pattern(20, seed).toString();
    return this.receiver.bytes.some((bytes) => bytes.toString() === wanted);
  }
}

interface Step {
  readonly name: string;
  act(): void;
}

/** Two links with a connection between them, and two more on their way. */
class World {
  readonly sides = [new Side(ADDRESSES[0], ADDRESSES[1]), new Side(ADDRESSES[1], ADDRESSES[0])];
  readonly #ends: { readonly name: string; readonly end: End }[] = [];
  readonly #mayLose: boolean;
  readonly trace: string[] = [];

  constructor(mayLose: boolean) {
    this.#mayLose = mayLose;
  }

  async start(): Promise<void> {
    for (const { link, receiver } of this.sides) await link.open(receiver);
    for (const end of this.#connect('first')) end.open();
    this.#connect('second');
    this.#connect('third');
  }

  #connect(name: string): End[] {
    const ends = [new End(), new End()] as const;
    ends[0].other = ends[1];
    ends[1].other = ends[0];
    this.sides.forEach(({ link, peer }, index) => {
      link.add(peer, ends[index]!).catch(() => undefined);
      this.#ends.push({ name: `${name} at ${ADDRESSES[index]}`, end: ends[index]! });
    });
    return [...ends];
  }

  /** Steps that are possible now. */
  steps(): Step[] {
    const steps: Step[] = [];
    for (const { name, end } of this.#ends) {
      if (end.isClosed || end.isTold) continue;
      // Its turn may come late, when the other side has closed it already.
      if (!end.isOpen && (end.other.isOpen || !end.other.isClosed)) {
        steps.push({ name: `${name} opens`, act: () => end.open() });
      }
      if (!end.other.isClosed) continue;
      steps.push({ name: `${name} sees the close`, act: () => end.hearClosed() });
      // That word may get lost, as any.
      const lose = (): void => void (end.isTold = true);
      if (this.#mayLose && end.isOpen) steps.push({ name: `${name} never sees it`, act: lose });
    }
    return steps;
  }

  /** Packets travel in both directions, and neither side was ever without the other. */
  async check(): Promise<void> {
    const said = this.trace.join(', ');
    for (const side of this.sides) {
      assert.equal(side.receiver.gone, [], said);
      assert.is(side.link.peers.length, 1, said);
    }
    const [one, two] = this.sides as [Side, Side];
    for (let turn = 0; turn < TURNS_MAX && !(one.got(100) && two.got(200)); turn++) {
      // Lost packets are retransmitted, as queue pairs do.
      one.send(200);
      two.send(100);
      await settle(1);
    }
    assert.ok(two.got(200), `nothing comes from the smaller address: ${said}`);
    assert.ok(one.got(100), `nothing comes from the larger address: ${said}`);
  }

  async close(): Promise<void> {
    for (const { link } of this.sides) await link.close();
  }
}

/** Every order in which things may happen. Returns how many there are. */
async function everyOrder(mayLose: boolean): Promise<number> {
  const waiting: number[][] = [[]];
  const checks: Promise<void>[] = [];
  for (let choices = waiting.pop(); choices; choices = waiting.pop()) {
    const world = new World(mayLose);
    await world.start();
    const taken = [...choices];
    for (let at = 0, steps = world.steps(); steps.length > 0; at++, steps = world.steps()) {
      if (at === taken.length) {
        for (let other = 1; other < steps.length; other++) waiting.push([...taken, other]);
        taken.push(0);
      }
      const { name, act } = steps[taken[at]!]!;
      world.trace.push(name);
      act();
      for (const side of world.sides) side.send(at);
      await Promise.resolve();
    }
    checks.push(world.check().finally(() => world.close()));
  }
  await Promise.all(checks);
  return checks.length;
}

test('in every order of what opens and closes both sides go on', async () => {
  assert.ok((await everyOrder(false)) > 100);
});

test('the links reconnect when one misses that the other has closed a connection', async () => {
  assert.ok((await everyOrder(true)) > 500);
});

test.run();
