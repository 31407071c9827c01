/**
 * The order in which test files are run: the longest first, so that no long one ends alone.
 */

/** About what each takes beside others on two cores; a file without an entry is short. */
const SECONDS: Readonly<Record<string, number>> = {
  'cli/perf': 41,
  'cli/rpma-examples': 40,
  'shared/coming': 38,
  'exhaustive/fences': 35,
  'shared/deaths': 35,
  'fuzz/posted': 34,
  'browser/ice-restart': 30,
  'cli/perf-trouble': 30,
  'fuzz/receive': 26,
  'cli/psk-tools': 25,
  'shared/connections': 25,
  'examples/failures': 24,
  'shared/pool-deaths': 24,
  'simulation/simulation': 24,
  'cli/psk': 23,
  'examples/dead-peers': 23,
  'unit/pmem/persistent-memory': 22,
  'browser/demo-missing': 21,
  'examples/programs': 21,
  'cli/remedy': 19,
  'shared/domains': 19,
  'cli/transfer': 18,
  'cli/perf-strangers': 17,
  'unit/pmem/file-lock': 17,
  'hunt/hunt': 16,
  'shared/layouts': 16,
  'cli/hostile': 15,
  'examples/course': 15,
  'examples/course-seeds': 15,
  'shared/files': 15,
  'browser/pmem': 14,
  'cli/nvme-target': 14,
  'cli/pingpong': 14,
  'conformance/channel-link': 14,
  'conformance/link': 14,
  'shared/cluster': 14,
  'unit/link/udp/send-refusals': 14,
  'browser/demo': 13,
  'browser/demo-acts': 13,
  'browser/demo-crash': 13,
  'browser/demo-sharing': 13,
  'examples/left-peers': 13,
  'simulation/rds': 13,
  'cli/decode': 12,
  'cli/refusal': 12,
  'cli/rping': 12,
  'shared/keep-alive': 12,
  'browser/missing': 11,
  'cli/killed': 11,
  'cli/pmem': 11,
  'unit/cm/cookies': 11,
  'unit/function-length': 11,
  'unit/pmem/pmem-file': 11,
  'browser/demo-loss': 10,
  'browser/demo-screens': 10,
  'cli/rds-stress': 9,
  'simulation/layouts': 9,
  'unit/device/progress/thread': 9,
  'unit/link/udp/other-port': 9,
  'browser/hostile': 8,
  'browser/node': 8,
  'cli/lossy': 8,
  'cli/offload': 8,
  'shared/steering': 8,
  'simulation/periodic-loss': 8,
  'unit/link/channel/data-channel': 8,
};
const SHORT_SECONDS = 2;

/** Does the file have an entry? */
export const isLong = (file: string): boolean => SECONDS[file] !== undefined;

/** Batches of files by their seconds; those that `runInTurn` names come first: one at a time. */
export function longestFirst(
  batches: readonly (readonly string[])[],
  runInTurn: (batch: readonly string[]) => boolean,
): (readonly string[])[] {
  const rank = (batch: readonly string[]): number =>
    batch.reduce((sum, file) => sum + (SECONDS[file] ?? SHORT_SECONDS), 0) +
    (runInTurn(batch) ? 1000 : 0);
  return [...batches].sort((one, other) => rank(other) - rank(one));
}
