/**
 * The order in which test files are run: the longest first, so that no long one ends alone.
 */

/** About what each takes beside others on two cores; a file without an entry is short. */
const SECONDS: Readonly<Record<string, number>> = {
  'unit/cm/accepting': 38,
  'cli/remedy': 24,
  'browser/ice-restart': 21,
  'cli/hostile': 21,
  'net/address-services': 21,
  'browser/many-tabs': 20,
  'browser/transfer': 20,
  'net/killed-peer': 20,
  'browser/demo-missing': 18,
  'conformance/channel-link': 18,
  'cli/perf-trouble': 17,
  'cli/pmem': 17,
  'cli/psk-tools': 17,
  'unit/demo/acts': 17,
  'cli/rpma-examples': 17,
  'unit/remote/deaths': 17,
  'cli/offload': 16,
  'cli/run-turns': 16,
  'cli/psk': 15,
  'cli/perf': 14,
  'cli/refusal': 14,
  'net/network': 14,
  'net/path-mtu': 14,
  'cli/run': 13,
  'cli/transfer': 12,
  'examples/programs': 12,
  'hunt/hunt': 12,
  'browser/frozen': 16,
  'browser/mesh': 11,
  'cli/shmem-run': 11,
  'unit/demo/hostile': 11,
  'shared/local-path': 11,
  'cli/exit-codes': 10,
  'cli/killed': 10,
  'cli/rping': 10,
  'net/dgram-failover': 10,
  'net/outage': 10,
  'shared/keep-alive': 10,
  'shared/named-domains': 10,
  'unit/file-batches': 10,
  'browser/hostile': 9,
  'cli/nvme-target': 9,
  'cli/perf-strangers': 9,
  'cli/pingpong': 9,
  'cli/rds-stress': 9,
  'shared/connections': 9,
  'shared/layouts': 9,
  'shared/shmem': 9,
  'browser/demo': 8,
  'browser/demo-acts': 8,
  'browser/node': 8,
  'browser/pmem': 8,
  'examples/dead-peers': 8,
  'examples/failures': 8,
  'examples/left-peers': 8,
  'net/address': 8,
  'shared/files': 8,
  'shared/rds': 8,
  'unit/link/channel/data-channel': 8,
  'unit/remote/remote': 8,
  'browser/demo-sharing': 7,
  'browser/tabs': 7,
  'cli/rpma-bench': 7,
  'net/marks': 7,
  'shared/pool-deaths': 7,
  'unit/dgram/reliable': 7,
  'unit/link/rtc/ice-restart': 7,
  'unit/link/udp/other-port': 7,
  'unit/pmem/persistent-memory': 7,
  'browser/demo-screens': 6,
  'browser/example': 6,
  'browser/missing': 6,
  'cli/decode': 6,
  'cli/lossy': 6,
  'shared/coming': 6,
  'shared/domains': 6,
  'shared/full-storage': 6,
  'shared/heap': 6,
  'unit/device/progress/flood-filter': 6,
  'unit/device/progress/thread': 6,
  'unit/pmem/pmem-file': 6,
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
