/** The demo: every button's effect, in both peers' memory or counters. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { TARGET, TARGET_BYTES, Word, readWord } from '../../host/demo/memory-layout.js';
import { WcStatus } from '../../host/index.js';
import { missingBrowser } from '../support/browser.js';
import {
  alone,
  closeWorld,
  differences,
  leave,
  openWorld,
  two,
  type DemoWorld,
} from './demo-page.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<DemoWorld>('demo/acts');

test.before(openWorld);
test.after(closeWorld);

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

test('lost packets: NAKs, recovery, and no byte is wrong', async (world) => {
  const tab = await alone(world);
  const { memory } = world.server.station!;
  await tab.page.locator('#slider-loss').fill('10');
  const { percent, lost, naks, retransmitted, wrong } = await tab.play('loss');
  assert.is(percent, 10);
  assert.ok(lost! > 0 && naks! > 0 && retransmitted! > 0, JSON.stringify({ lost, naks }));
  assert.is(wrong, 0);
  assert.is(await differences(tab, () => memory), 0);
  await tab.page.locator('#slider-loss').fill('0');
  const { counters } = await tab.inspect();
  await tab.stroke('ours', [0.2, 0.2], [0.8, 0.2]);
  assert.is(await differences(tab, () => memory), 0);
  assert.is((await tab.inspect()).counters['lost'], counters['lost'], 'the wire is whole again');
  await leave(tab);
});

test.run();
