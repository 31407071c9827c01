/** `verbena run --fault`: C programs that meet errors at the verbs. */
import { writeFileSync } from 'node:fs';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { parseFaults } from '../../host/cli/run/fault-file.js';
import { compile } from '../support/c-program.js';
import { Workspace } from '../support/processes.js';
import { expectMisuse } from '../support/refusal.js';

const test = suite('cli/run-faults');
const ADDRESS = '127.74.1.';
const NONE = 'registrations: 0 0 0 0 0 0';
let last = 0;

/** Output of the program of run/faults.c with these rules. */
async function meet(
  space: Workspace,
  program: string,
  faults: unknown,
  ...words: string[]
): Promise<string[]> {
  const file = space.path('faults.json');
  writeFileSync(file, JSON.stringify(faults));
  const address = `${ADDRESS}${++last}`;
  const options = ['--address', address, '--fault', file];
  const { code, stdout, stderr } = await space.run('run', ...options, '--', program, ...words);
  assert.is(code, 0, stderr);
  return stdout.trim().split('\n');
}

test('a verb fails where a rule says so, and the program goes on', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'faults');
    if (!program) return;
    const third = { call: 'ibv_reg_mr', errno: 'ENOMEM', at: 3 };
    const posts = { call: 'ibv_post_send', errno: 'EIO', every: 2, times: 2 };
    const lines = await meet(space, program, { rules: [third, posts] });
    assert.is(lines[0], 'registrations: 0 0 12 0 0 0');
    assert.is(lines[1], 'statuses: 0 -5 0 -5 0 0');
    assert.is(lines.at(-1), 'ends: 0');
  }));

test('a completion becomes an error, and its queue pair flushes what follows', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'faults');
    if (!program) return;
    const rules = [{ completion: 'RETRY_EXC_ERR', at: 3, qp: 1 }];
    const lines = await meet(space, program, { rules });
    assert.is(lines[0], NONE);
    assert.is(lines[1], 'statuses: 0 0 12 5 5 5');
    assert.match(lines[3]!, /^state: 6, longest post: less/);
    const other = [{ completion: 'RETRY_EXC_ERR', at: 3, qp: 2 }];
    assert.is((await meet(space, program, { rules: other }))[1], 'statuses: 0 0 0 0 0 0');
  }));

test('a call takes longer', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'faults');
    if (!program) return;
    const rules = [{ call: 'ibv_post_send', delayMicros: 50_000, at: 2, qp: 1 }];
    const lines = await meet(space, program, { rules });
    assert.is(lines[1], 'statuses: 0 0 0 0 0 0');
    assert.is(lines[3], 'state: 3, longest post: 50 ms or more');
  }));

test('a seed repeats the faults of a probability', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'faults');
    if (!program) return;
    const faults = (seed: number) => ({
      seed,
      rules: [{ call: 'ibv_reg_mr', errno: 'EAGAIN', probability: 0.5, times: 5 }],
    });
    const first = await meet(space, program, faults(7));
    assert.equal(await meet(space, program, faults(7)), first);
    assert.match(first[0]!, / 11/);
    assert.match(first[0]!, / 0/);
    assert.not.equal((await meet(space, program, faults(8)))[0], first[0]);
  }));

test('a device that is removed says so, and refuses what is new', () =>
  Workspace.use(async (space) => {
    const program = await compile(space, 'faults');
    if (!program) return;
    const rules = [{ event: 'DEVICE_FATAL', afterMillis: 1500 }];
    const lines = await meet(space, program, { rules }, 'wait');
    assert.is(lines[0], NONE);
    assert.equal(lines.slice(-3), [
      'event: local catastrophic error',
      'after: refused 5',
      'ends: 0',
    ]);
  }));

test('a file of faults with a mistake is refused with the place of the mistake', async () => {
  const refuse = (text: string, pattern: RegExp): void =>
    expectMisuse(() => parseFaults(text), pattern);
  refuse('{', /^--fault: is not JSON/);
  refuse('[]', /--fault/);
  refuse('{"rules":[]}', /rules: must be a list of 1 to 64 rules/);
  refuse('{"rules":[{}]}', /rules\[0\]: must have call with errno or delayMicros/);
  refuse('{"rules":[{"call":"ibv_reg"}]}', /rules\[0\]: must have call/);
  refuse(
    '{"rules":[{"call":"ibv_reg","errno":"EIO"}]}',
    /rules\[0\].call: must be one of ibv_post/,
  );
  refuse('{"rules":[{"call":"ibv_reg_mr","errno":"E"}]}', /rules\[0\].errno: must be one of E/);
  refuse('{"rules":[{"completion":"SUCCESS"}]}', /completion: must be one of LOC_LEN_ERR/);
  refuse('{"rules":[{"call":"ibv_reg_mr","errno":"EIO","att":1}]}', /att: .*is at meant/);
  refuse(
    '{"rules":[{"completion":"RETRY_EXC_ERR","probability":2}]}',
    /probability: must be above 0/,
  );
  refuse('{"rules":[{"event":"QP_FATAL"}]}', /event: must be DEVICE_FATAL/);
  refuse('{"rules":[{"event":"DEVICE_FATAL"}]}', /with event must have afterMillis/);
  refuse('{"rules":[{"event":"DEVICE_FATAL","afterMillis":5,"at":1}]}', /and nothing else/);
  const fails = '"call":"ibv_reg_mr","errno":"EIO"';
  for (const name of ['at', 'every', 'times', 'qp']) {
    refuse(
      `{"rules":[{${fails},"${name}":0}]}`,
      new RegExp(`${name}: must be a whole number from 1`),
    );
  }
  refuse(`{"rules":[{${fails},"qp":1}]}`, /qp: does not apply to ibv_reg_mr/);
  refuse(`{"rules":[{${fails},"at":1,"every":2}]}`, /must have at, every or probability/);
  refuse(`{"rules":[{${fails},"completion":"RETRY_EXC_ERR"}]}`, /must have call with errno/);
  await Workspace.use(async (space) => {
    const file = space.path('none');
    const { code, stderr } = await space.run('run', '--fault', file, '--', 'true');
    assert.is(code, 1);
    assert.match(
      stderr,
      /^verbena run: cannot read .*none: no such file or directory \(ENOENT\)\n$/,
    );
  });
});

test.run();
