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
  stampOf,
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
  until,
  type DemoPage,
  type DemoWorld,
} from './demo-page.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<DemoWorld>('demo/acts');

test.before(openWorld);
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

test('a column: one READ of the server’s layout, within three bare round trips', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.station!;
  const presses = await fetchColumns(tab, () => memory);
  // A request, and 4 KiB at a path MTU of 1024; more only where something had to be sent again.
  assert.is(middle(presses.map(({ packets }) => packets!)), 5);
  const trips = middle(presses.map(({ bareTrips }) => bareTrips!));
  console.log(`a column takes ${trips.toFixed(2)} bare round trips, tab to Node`);
  assert.ok(trips <= 3, `${trips} bare round trips`);
  assert.is(readWord(memory, Word.CALLBACKS), 0);
  await leave(tab);
});

test('a column of another tab', async (world) => {
  const [a, b] = await two(world);
  const presses = await fetchColumns(a, async () => (await b.inspect()).ours);
  const trips = middle(presses.map(({ bareTrips }) => bareTrips!));
  console.log(`a column takes ${trips.toFixed(2)} bare round trips, tab to tab`);
  assert.ok(trips <= 3, `${trips} bare round trips`);
  assert.is(readWord((await b.inspect()).ours, Word.CALLBACKS), 0);
  await leave(a, b);
});

test('compare and swap: the server’s word is counted up by all of them', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.station!;
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
  await Promise.all([a.play('compare-and-swap'), b.play('compare-and-swap')]);
  assert.is(readWord((await a.inspect()).ours, Word.CELL), 100);
  assert.is(readWord((await b.inspect()).ours, Word.CELL), 100);
  await leave(a, b);
});

test('a slow receiver: RNR NAKs, and every message is taken', async (world) => {
  const tab = await alone(world);
  const { memory, context } = world.server.station!;
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
  const { memory } = world.server.station!;
  const { status, changed } = await tab.play('wrong-key');
  assert.is(status, WcStatus.REM_ACCESS_ERR);
  assert.is(changed, 0);
  assert.ok(memory.subarray(TARGET, TARGET + TARGET_BYTES).every((byte) => byte === 0));
  await tab.said('.act:has(#act-wrong-key) output.said', /REM_ACCESS_ERR: .*NAK 0x62/);
  await tab.stroke('ours', [0.2, 0.5], [0.8, 0.5]);
  assert.is(await differences(tab, () => memory), 0);
  await leave(tab);
});

for (const kind of ['the server', 'another tab']) {
  test(`a shared domain: ${kind} WRITEs by one context’s key through the other one`, async (world) => {
    const tabs = kind === 'the server' ? [await alone(world)] : await two(world);
    const [tab, other] = tabs as [DemoPage, DemoPage | undefined];
    await tab.page.bringToFront();
    await tab.stroke('theirs', [0.1, 0.5], [0.9, 0.5]);
    const theirs = other
      ? async () => (await other.inspect()).ours
      : () => world.server.station!.memory;
    const line = await until(
      async () => stampOf(await theirs()),
      (bytes) => bytes.some((byte) => byte > 0),
    );
    assert.ok(new Set(line).size > 1, 'something is painted on their line');
    for (let press = 0; press < 2; press++) {
      const figures = await tab.play('shared-domain');
      assert.is(figures['instances'], 2);
      assert.is(figures['strangers'], 1);
      assert.is(figures['first'], WcStatus.SUCCESS);
      assert.is(figures['wrong'], 0, 'their line is in our memory');
      assert.is(figures['left'], 1, 'the domain outlives the instance that registered');
      assert.is.not(figures['second'], WcStatus.SUCCESS);
      assert.is(figures['written'], 0, 'a key ends with its instance');
      assert.is(figures['isOver'], 1);
    }
    const said = '.act:has(#act-shared-domain) output.said';
    await tab.said(said, /Handle [0-9a-f]{64}, 2 instances. With another key: refused/);
    await tab.said(said, /first instance has ended, 1 is left/);
    // What was refused has hurt nobody else.
    await tab.page.locator('#clear').click();
    await tab.stroke('ours', [0.2, 0.3], [0.8, 0.6]);
    assert.is(await differences(tab, theirs), 0);
    await leave(...tabs);
  });

  test(`a burst from a pool: what was READ from ${kind} is theirs`, async (world) => {
    const tabs = kind === 'the server' ? [await alone(world)] : await two(world);
    const [tab, other] = tabs as [DemoPage, DemoPage | undefined];
    await tab.page.bringToFront();
    await tab.stroke('ours', [0.1, 0.4], [0.9, 0.6]);
    const theirs = other
      ? async () => (await other.inspect()).ours
      : () => world.server.station!.memory;
    assert.is(await differences(tab, theirs), 0);
    const figures = await tab.play('burst');
    const { requests, peak, inUse, created, left, own, bucket, pool, wrong } = figures;
    assert.is(requests, 256);
    assert.is(own! + bucket! + pool!, 256, 'a region for every request');
    assert.ok(own! > 0 && pool! > 0, JSON.stringify(figures));
    assert.ok(peak! > 32 && peak! <= created!, 'more than the connections own');
    assert.ok(created! <= 160 && left! < created!, 'a pool that grew, and shrank again');
    assert.is(inUse, 0);
    assert.is(wrong, 0, 'four times their picture, in our memory');
    const plot = await tab.page.locator('.act:has(#act-burst) canvas').getAttribute('aria-label');
    assert.match(plot!, /0 of \d+ in use \(own 0, bucket 0, pool 0\), peak \d+/);
    assert.is((await tab.inspect()).counters['lost'], 0);
    await leave(...tabs);
  });
}

test.run();
