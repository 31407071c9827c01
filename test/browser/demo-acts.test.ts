/** The demo: every button's effect, in both peers' memory or counters. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  COLUMN_BYTES,
  TARGET,
  TARGET_BYTES,
  Word,
  columnOf,
  readWord,
} from '../../host/demo/memory-layout.js';
import { WcStatus } from '../../host/index.js';
import { missingBrowser } from '../support/browser.js';
import {
  alone,
  closeWorld,
  differences,
  leave,
  openWorld,
  picture,
  two,
  type DemoPage,
  type DemoWorld,
} from './demo-page.js';
import { printed } from '../support/hook.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<DemoWorld>('demo/acts');

test.before(printed(openWorld));
test.after(closeWorld);

const PRESSES = 3;

/** Presses it several times, each of which fetches another column; how many bare trips it takes. */
async function fetchColumns(tab: DemoPage, theirs: () => Promise<Uint8Array> | Uint8Array) {
  const presses: Record<string, number>[] = [];
  for (let press = 0; press < PRESSES; press++) {
    const before = picture((await tab.inspect()).ours);
    const figures = await tab.play('column');
    presses.push(figures);
    const which = figures['column']!;
    assert.is(which, press);
    const ours = picture((await tab.inspect()).ours);
    const there = columnOf(await theirs(), which);
    assert.equal(columnOf(ours, which), there, 'theirs is in ours');
    assert.is.not(new Set(there).size, 1, 'and is not all one');
    const beside = (at: number): boolean => Math.floor((at % 128) / 8) !== which;
    assert.ok(
      ours.every((byte, at) => !beside(at) || byte === before[at]),
      'nothing beside the column was touched',
    );
    assert.is(figures['bytes'], COLUMN_BYTES);
    assert.ok(figures['missing']! > COLUMN_BYTES / 2, 'it was not in ours before');
    assert.is(figures['wrong'], 0);
    await tab.said('.act:has(#act-column) output.said', /4,096 bytes of 512 rows by 1 READ/);
  }
  return presses;
}

const middle = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[values.length >> 1]!;

test('a column: one READ of the server’s layout', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.endpoint!;
  const presses = await fetchColumns(tab, () => memory);
  // A request, and 4 KiB at a path MTU of 1024; more only where something had to be sent again.
  assert.is(middle(presses.map(({ packets }) => packets!)), 5);
  const trips = middle(presses.map(({ bareTrips }) => bareTrips!));
  console.log(`a column takes ${trips.toFixed(2)} bare round trips, tab to Node`);
  assert.ok(trips > 0, 'they were measured; how many there may be is for `bench browser`');
  assert.is(readWord(memory, Word.CALLBACKS), 0);
  await leave(tab);
});

test('a column of another tab', async (world) => {
  const [a, b] = await two(world);
  const presses = await fetchColumns(a, async () => (await b.inspect()).ours);
  const trips = middle(presses.map(({ bareTrips }) => bareTrips!));
  console.log(`a column takes ${trips.toFixed(2)} bare round trips, tab to tab`);
  assert.is(middle(presses.map(({ packets }) => packets!)), 5);
  assert.is(readWord((await b.inspect()).ours, Word.CALLBACKS), 0);
  await leave(a, b);
});

test('compare and swap: the server’s word is counted up by all of them', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.endpoint!;
  const before = readWord(memory, Word.CELL);
  const { won, lost, after } = await tab.play('compare-and-swap');
  assert.is(won, 100);
  assert.ok(lost! >= 3, 'all but one of the first attempts find another’s value');
  assert.is(readWord(memory, Word.CELL), before + 100);
  assert.is(after, before + 100);
  assert.is(readWord(memory, Word.CALLBACKS), 0);
  await leave(tab);
});

test('compare and swap between tabs, both at a time', async (world) => {
  const [a, b] = await two(world);
  // A click wants its tab in front, and only one of them can be there.
  const act = 'compare-and-swap';
  await Promise.all([a, b].map(({ page }) => page.locator(`#act-${act}`).dispatchEvent('click')));
  await Promise.all([a.played(act), b.played(act)]);
  assert.is(readWord((await a.inspect()).ours, Word.CELL), 100);
  assert.is(readWord((await b.inspect()).ours, Word.CELL), 100);
  await leave(a, b);
});

test('a slow receiver: RNR NAKs, and every message is taken', async (world) => {
  const tab = await alone(world);
  const { memory, context } = world.server.endpoint!;
  const before = readWord(memory, Word.MESSAGES);
  const sentBefore = context.counters().sendRnrErr;
  const { sent, taken, refused } = await tab.play('slow-receiver');
  assert.is(taken, sent);
  assert.is(readWord(memory, Word.MESSAGES), before + sent!);
  assert.is(readWord(memory, Word.PACE_MILLIS), 0, 'the pace is taken back');
  assert.ok(refused! > 0);
  assert.ok((await tab.inspect()).counters['rcvdRnrErr']! >= refused!);
  console.log(`RNR NAKs: ${refused} received, ${context.counters().sendRnrErr - sentBefore} sent`);
  await leave(tab);
});

test('a wrong key: refused in explain’s words, no byte changes, painting goes on', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.endpoint!;
  const { status, changed } = await tab.play('wrong-key');
  assert.is(status, WcStatus.REM_ACCESS_ERR);
  assert.is(changed, 0);
  assert.ok(memory.subarray(TARGET, TARGET + TARGET_BYTES).every((byte) => byte === 0));
  await tab.said('.act:has(#act-wrong-key) output.said', /REM_ACCESS_ERR: .*NAK 0x62/);
  await tab.stroke('ours', [0.2, 0.5], [0.8, 0.5]);
  assert.is(await differences(tab, () => memory), 0);
  await leave(tab);
});

test.run();
