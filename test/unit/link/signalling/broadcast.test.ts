/** BroadcastSignalling: members of a room that come, leave, and are gone without a word. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { BroadcastSignalling } from '../../../../host/index.js';
import type { Signalling } from '../../../../host/link/signalling/signalling.js';
import { eventually, settle } from '../../../support/receiver.js';

const test = suite('unit/link/signalling/broadcast');
let rooms = 0;
const leaves: (() => void)[] = [];

test.after.each(() => {
  for (const leave of leaves.splice(0)) leave();
});

/** A member, and what it has seen. */
function member(room: string, name: string) {
  const seen: string[] = [];
  const ways = new Map<string, Signalling>();
  const note = (kind: string) => (way: Signalling, other?: string) => {
    seen.push(`${kind} ${other}`);
    ways.set(other!, way);
  };
  const leave = new BroadcastSignalling(room).join(
    name,
    () => Promise.resolve({ type: 'answer', sdp: `of ${name}` }),
    note('newcomer'),
    {
      present: note('present'),
      away: (other) => void seen.push(`away ${other}`),
      left: (other) => void seen.push(`left ${other}`),
    },
  );
  leaves.push(leave);
  return { seen, ways, leave };
}

const offer = { type: 'offer', sdp: 'an offer' } as const;

test('members learn of those that were there, of newcomers and of leaves', async () => {
  const room = `broadcast ${process.pid} ${++rooms}`;
  const a = member(room, 'a');
  await settle(20);
  const b = member(room, 'b');
  await eventually(() => a.seen.length === 1 && b.seen.length === 1);
  assert.equal([a.seen, b.seen], [['newcomer b'], ['present a']]);
  const stop = new AbortController();
  assert.equal(await b.ways.get('a')!.exchange(offer, stop.signal), {
    type: 'answer',
    sdp: 'of a',
  });
  b.leave();
  b.leave();
  await eventually(() => a.seen.length === 2);
  assert.is(a.seen[1], 'left b');
});

test('a member that answers no offer any more has left', async () => {
  const room = `broadcast ${process.pid} ${++rooms}`;
  const a = member(room, 'a');
  await settle(20);
  const b = member(room, 'b');
  const stranger = new BroadcastChannel(`verbena ${room}`);
  leaves.push(() => stranger.close());
  stranger.postMessage({ verbena: 1, kind: 'hello', id: 'silent' });
  await eventually(() => a.ways.size === 2);
  const attempt = async (name: string, millis: number): Promise<void> => {
    const signal = AbortSignal.timeout(millis);
    await a.ways
      .get(name)!
      .exchange(offer, signal)
      .catch(() => undefined);
  };
  for (let count = 0; count < 15; count++) await attempt('silent', 5);
  await attempt('b', 2000);
  assert.not.ok(a.seen.includes('left silent'));
  await attempt('silent', 5);
  assert.ok(a.seen.includes('left silent'));
  assert.not.ok(a.seen.includes('left b'));
  assert.equal([...b.seen].sort(), ['newcomer silent', 'present a']);
});

type Granted = () => unknown;

interface Wanted {
  readonly name: string;
  readonly mode: string;
  readonly granted: Granted;
}

/** The locks of a browser, granted in turn; `end` is the end of the page that has this one. */
class FakeLocks {
  readonly #held = new Set<Wanted>();
  readonly #pending = new Set<Wanted>();

  query() {
    return Promise.resolve({ held: [...this.#held], pending: [...this.#pending] });
  }

  request(
    name: string,
    { mode = 'exclusive', signal }: { mode?: string; signal?: AbortSignal },
    granted: Granted,
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const wanted = { name, mode, granted: () => resolve(granted()) };
      this.#pending.add(wanted);
      signal?.addEventListener('abort', () => {
        if (this.#pending.delete(wanted)) reject(signal.reason as Error);
      });
      queueMicrotask(() => this.#grant());
    }).finally(() => this.end(name));
  }

  /** Ends the holder, or the page with the request, that was there first. */
  end(name: string): void {
    const holder = [...this.#held].find((other) => other.name === name);
    if (holder) this.#held.delete(holder);
    this.#grant();
  }

  #grant(): void {
    for (const wanted of this.#pending) {
      const isOther = ({ name, mode }: Wanted): boolean =>
        name === wanted.name && (mode === 'exclusive' || wanted.mode === 'exclusive');
      const before = [...this.#pending].slice(0, [...this.#pending].indexOf(wanted));
      if ([...this.#held, ...before].some(isOther)) continue;
      this.#pending.delete(wanted);
      this.#held.add(wanted);
      wanted.granted();
    }
  }
}

async function withLocks(work: (locks: FakeLocks, room: string) => Promise<void>): Promise<void> {
  const locks = new FakeLocks();
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  Object.defineProperty(globalThis, 'navigator', { value: { locks }, configurable: true });
  try {
    await work(locks, `broadcast ${process.pid} ${++rooms}`);
  } finally {
    if (before) Object.defineProperty(globalThis, 'navigator', before);
    else Reflect.deleteProperty(globalThis, 'navigator');
  }
}

test('a member whose lock another one keeps says that it is there as well, once', () =>
  withLocks(async (locks, room) => {
    void locks.request(`verbena ${room} b`, {}, () => new Promise(() => {}));
    const a = member(room, 'a');
    await settle(20);
    const b = member(room, 'b');
    await eventually(() => a.ways.size === 1 && b.ways.size === 1);
    await settle(50);
    assert.equal(a.seen, ['newcomer b']);
  }));

test('a member whose page is killed has left, since the browser releases its lock', () =>
  withLocks(async (locks, room) => {
    const a = member(room, 'a');
    await settle(20);
    const b = member(room, 'b');
    await eventually(() => a.ways.size === 1 && b.ways.size === 1);
    // Of a browser without locks.
    const stranger = new BroadcastChannel(`verbena ${room}`);
    leaves.push(() => stranger.close());
    stranger.postMessage({ verbena: 1, kind: 'hello', id: 'stranger' });
    await eventually(() => a.ways.size === 2);
    await settle(20);
    assert.equal(a.seen, ['newcomer b', 'newcomer stranger']);
    locks.end(`verbena ${room} b`);
    await eventually(() => a.seen.length > 3);
    assert.equal(a.seen.slice(2), ['away b', 'left b']);
    assert.equal(b.seen, ['present a', 'newcomer stranger']);
  }));

for (const order of ['before', 'behind'] as const) {
  test(`a name that two members have is there until both are gone, with a watcher ${order}`, () =>
    withLocks(async (locks, room) => {
      const lock = `verbena ${room} b`;
      const holder = (): unknown => locks.request(lock, {}, () => new Promise(() => {}));
      const hello = (): void => {
        const page = new BroadcastChannel(`verbena ${room}`);
        leaves.push(() => page.close());
        page.postMessage({ verbena: 1, kind: 'hello', id: 'b' });
      };
      const a = member(room, 'a');
      void holder();
      if (order === 'behind') void holder();
      hello();
      await eventually(() => a.seen.length === 1);
      await settle(20);
      if (order === 'before') void holder();
      await settle(20);
      locks.end(lock);
      await settle(50);
      assert.not.ok(a.seen.includes('left b'), 'one of the two is left');
      locks.end(lock);
      await eventually(() => a.seen.includes('left b'));
      assert.is(a.seen.filter((said) => said === 'left b').length, 1);
      assert.equal(a.seen.slice(-2), ['away b', 'left b']);
    }));
}

test('a member does not meet others of its own name, and speaks for them when one leaves', async () => {
  const room = `broadcast ${process.pid} ${++rooms}`;
  const a = member(room, 'a');
  await settle(20);
  const [first, second] = [member(room, 'b'), member(room, 'b')];
  await eventually(() => a.seen.length === 2);
  await settle(20);
  assert.equal([...new Set([...first.seen, ...second.seen])], ['present a']);
  first.leave();
  await eventually(() => a.seen.length === 4);
  assert.equal(a.seen, ['newcomer b', 'newcomer b', 'left b', 'newcomer b']);
  second.leave();
  await eventually(() => a.seen.length === 5);
  await settle(20);
  assert.equal(a.seen.slice(4), ['left b']);
});

test.run();
