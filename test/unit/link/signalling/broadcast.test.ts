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
    { present: note('present'), left: (other) => void seen.push(`left ${other}`) },
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

test.run();
