/** OpenSHMEM by four real processes: on one machine, and as on two by RDMA. */
import { once } from 'node:events';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { sample } from '../support/sample.js';
import { SHMEM_CASES } from '../support/shmem-cases.js';
import { FakeRedis, ShmemJob, type PeEnd } from '../support/shmem-job.js';

const SIZE = 4;
const NAMES = [...Object.keys(SHMEM_CASES), 'finalize'];

/** Checks the output of each PE for each case. */
function judge(ends: readonly PeEnd[], name: string): void {
  for (const [pe, { lines, errors, code, signal }] of ends.entries()) {
    const said = lines
      .map((line) => JSON.parse(line) as { readonly name: string; readonly error?: string })
      .find((line) => line.name === name);
    assert.is(said?.error, undefined, `PE ${pe}: ${said?.error}`);
    assert.ok(said, `PE ${pe} ended with ${code ?? signal} before: ${errors}`);
  }
}

let local: readonly PeEnd[] = [];
test('four PEs of one machine run all cases', async () => {
  local = await new ShmemJob('shmem-pe.js', SIZE).ends;
  assert.equal(
    local.map(({ code }) => code),
    [0, 0, 0, 0],
    local.map(({ errors }) => errors).join(),
  );
});
for (const name of NAMES) test(`one machine: ${name}`, () => judge(local, name));

let remote: readonly PeEnd[] = [];
test('four PEs of two machines run all cases', async () => {
  const redis = await FakeRedis.open();
  try {
    remote = await new ShmemJob('shmem-pe.js', SIZE, (rank) => ({
      VERBENA_SHMEM_NODE: `machine-${rank % 2}`,
      VERBENA_SHMEM_REDIS: redis.url,
    })).ends;
  } finally {
    redis.close();
  }
  assert.equal(
    remote.map(({ code }) => code),
    [0, 0, 0, 0],
    remote.map(({ errors }) => errors).join(),
  );
});
for (const name of NAMES) test(`two machines: ${name}`, () => judge(remote, name));

for (const machines of sample([1], [1, 2])) {
  test(`a PE that is killed is reported, and the others go on: ${machines} machines`, async () => {
    const redis = await FakeRedis.open();
    const job = new ShmemJob('shmem-survivor.js', SIZE, (rank): Readonly<Record<string, string>> =>
      machines === 1
        ? {}
        : { VERBENA_SHMEM_NODE: `machine-${rank % 2}`, VERBENA_SHMEM_REDIS: redis.url },
    );
    try {
      const ends = await job.ends;
      ends.forEach(({ code, signal, lines, errors }, pe) => {
        if (pe === 1) return assert.is(signal, 'SIGKILL');
        assert.is(code, 0, `PE ${pe}: ${errors}`);
        assert.equal(lines, ['failed 1', 'sum 5 of 3'], `PE ${pe}: ${errors}`);
      });
    } finally {
      redis.close();
    }
  });
}

/** PE 0 while PE 1 of another machine dies, and its lines beside `AFTER`. */
const SURVIVORS: readonly (readonly [kind: string, title: string, ...lines: string[]])[] = [
  ['idle', 'a PE that calls nothing of the library'],
  ['ask', 'a PE that asks for failed PEs all the time'],
  ['put', 'a PE that has written to it', 'quiet ECONNRESET'],
];
const AFTER = ['put ECONNRESET', 'own put done', 'quiet done', 'clearLock done'];

for (const [kind, title, ...lines] of SURVIVORS) {
  test(`${title} learns of the death of a PE of another machine, and goes on`, async () => {
    const redis = await FakeRedis.open();
    const environment = (rank: number): Readonly<Record<string, string>> => ({
      VERBENA_SHMEM_NODE: `machine-${rank}`,
      VERBENA_SHMEM_REDIS: redis.url,
    });
    try {
      const [survivor, dead] = await new ShmemJob('shmem-idle.js', 2, environment, [kind]).ends;
      assert.is(dead!.signal, 'SIGKILL', dead!.errors);
      assert.is(survivor!.code, 0, survivor!.errors);
      assert.equal(survivor!.lines, ['failed 1: 1', ...lines, ...AFTER, 'barrier ECONNRESET']);
    } finally {
      redis.close();
    }
  });
}

for (const perMachine of [2, 1]) {
  const machines = SIZE / perMachine;
  test(`a PE that is stopped for seconds is failed for all, also for itself: ${machines} machines`, () =>
    stopped(perMachine));
}

async function stopped(perMachine: number): Promise<void> {
  const redis = await FakeRedis.open();
  const job = new ShmemJob('shmem-stopped.js', SIZE, (rank) => ({
    VERBENA_SHMEM_NODE: `machine-${Math.floor(rank / perMachine)}`,
    VERBENA_SHMEM_REDIS: redis.url,
  }));
  try {
    await Promise.all(job.children.map((child, pe) => pe === 2 || once(child, 'exit')));
    job.children[2]!.kill('SIGCONT');
    const ends = await job.ends;
    ends.forEach(({ code, lines, errors }, pe) => {
      assert.is(code, 0, `PE ${pe}: ${errors}`);
      if (pe !== 2) return assert.equal(lines, ['sum 4 of 3'], `PE ${pe}: ${errors}`);
      assert.match(lines[0]!, /the other PEs have taken this one for failed/);
      assert.is(lines[1], 'survivors ECONNRESET');
    });
  } finally {
    redis.close();
  }
}

/** When PE 2 dies: as the others learn of the death of PE 1, and after it. */
const GAPS = sample([0, 12], [0, 3, 6, 9, 12, 15, 18, 21, 30, 60]);
/** PEs of other machines learn of a death seconds later. */
const REMOTE_GAPS = sample([], [0, 4000, 4500]);
const PLACES = [
  { machines: 1, gaps: GAPS },
  { machines: 2, gaps: REMOTE_GAPS },
];

for (const { machines, gaps } of PLACES) {
  for (const gap of gaps) {
    test(`survivors agree if a PE dies ${gap} ms after another: ${machines} machines`, async () => {
      const redis = await FakeRedis.open();
      const environment = (rank: number): Readonly<Record<string, string>> =>
        machines === 1
          ? {}
          : { VERBENA_SHMEM_NODE: `machine-${rank % 2}`, VERBENA_SHMEM_REDIS: redis.url };
      try {
        const ends = await new ShmemJob('shmem-deaths.js', 5, environment, [`${gap}`]).ends;
        ends.forEach(({ code, signal, errors, lines }, pe) => {
          if (pe === 1 || pe === 2) return assert.is(signal, 'SIGKILL');
          assert.is(code, 0, `PE ${pe}: ${errors}`);
          assert.equal(lines, ends[0]!.lines, `PE ${pe}`);
          assert.match(lines[0]!, /^teams of (?:4,)*3: sum 7$/);
        });
      } finally {
        redis.close();
      }
    });
  }
}

test.run();
