/**
 * Host calls that fail beneath the examples: a sample of what `npm run examples -- --fail-each` does
 * with all of them. Each line here is of another kind: what is done without, what is refused.
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { fail, type HostCall, type Outcome } from './failures.js';
import { inParallel } from './play.js';
import { COURSE } from './table.js';

const test = suite('examples/failures');

type Row = readonly [
  example: string,
  at: string,
  errno: string,
  kind: Outcome['kind'],
  says: RegExp,
  number?: number,
];

const SAMPLE: readonly Row[] = [
  // Without koffi there is node:dgram.
  ['01-connect', 'client/main koffi.load', 'EOPNOTSUPP', 'done', /one per system call/],
  // A thread that cannot start, or ends before its first message.
  [
    '01-connect',
    'client/main Worker.start',
    'EAGAIN',
    'refused',
    /before it started; try again \(EAGAIN\)/,
  ],
  [
    '01-connect',
    'server/thread1 socket',
    'EMFILE',
    'refused',
    /socket: .*ulimit -n\) \(EMFILE\)\n/,
  ],
  // The others of the example, and its parent, go on without a stack trace.
  ['11-shared-domain', '0/main Worker', 'EAGAIN', 'refused', /ulimit -u\) \(EAGAIN\)\n/],
  // A sleeper that was not woken looks up by itself.
  ['01-connect', 'server/main write', 'EIO', 'done', /^$/],
  [
    '11-shared-domain',
    'start/main posix_fallocate',
    'ENOSPC',
    'refused',
    /larger \/dev\/shm \(docker run --shm-size\).*hugetlbfs \(ENOSPC\)$/m,
  ],
  // The caller of close gets the error, once.
  ['13-persistent', 'start/main closeSync', 'EIO', 'refused', /close of .*\(EIO\)\n/, 4],
  // A datagram that the system drops is lost, and its receiver waits for a limited time.
  ['08-datagrams', 'client/main sendmmsg', 'ENOBUFS', 'refused', /within 10 s \(ETIMEDOUT\)\n/, 2],
  // A file that its maker could not live in is gone again.
  ['11-shared-domain', 'start/main fstatSync', 'EIO', 'refused', /refuses fstat: .*\(EIO\)\n/],
  ['13-persistent', '0/main writeSync', 'ENOSPC', 'refused', /region\.pmem: .*\(ENOSPC\)/],
];

const outcomes = inParallel(SAMPLE, ([name, at, errno, , , number = 1]) => {
  const call: HostCall = { at, number, errno };
  return fail(
    COURSE.find((example) => example.name === name)!,
    call,
  );
});

SAMPLE.forEach(([name, at, errno, kind, says], index) => {
  test(`${name}, ${at} ${errno}: ${kind}`, async () => {
    const { complaint, stderr, ...outcome } = await outcomes[index]!;
    assert.is(complaint, undefined, stderr);
    assert.is(outcome.kind, kind, stderr);
    assert.match(stderr, says);
  });
});

test.run();
