/**
 * Files that only `npm run test:long` runs: programs and pages beyond the first one of their kind,
 * each 15 s or more beside others. What they cover has a shorter test among all others.
 */
export const LONG_ONLY: ReadonlySet<string> = new Set([
  // Searches of all schedules and packets of chance; `exhaustive/keys`, `fuzz/receive` and
  // `fuzz/posted` always run a sample.
  'exhaustive/channels',
  'exhaustive/fences',
  'fuzz/authentic',
  'hunt/hunt',
  // Networks with routers and outages; `net/network`, `net/address` and `net/killed-peer` always run.
  'net/address-services',
  'net/dgram-failover',
  'net/marks',
  'net/outage',
  'net/path-mtu',
  // Kills and full storage of shared devices; `shared/deaths`, `shared/hostile` and the tests of each
  // part always run.
  'shared/coming',
  'shared/full-storage',
  'shared/heap-pressure',
  'shared/keep-alive',
  'shared/local-deaths',
  'shared/pool-deaths',
  'shared/pool-top',
  'shared/steering',
  // Pages: acts, screens and faults of the demo; `browser/demo` and `browser/tabs` always run.
  'browser/demo-acts',
  'browser/demo-loss',
  'browser/demo-missing',
  'browser/demo-plug',
  'browser/demo-race',
  'browser/demo-screens',
  'browser/demo-sharing',
  'browser/demo-static',
  // Restarts of ICE, stores, meshes and transfers of pages; the same code runs in `unit` without a
  // browser.
  'browser/frozen',
  'browser/guide-page',
  'browser/ice-restart',
  'browser/many-tabs',
  'browser/mesh',
  'browser/missing',
  'browser/pmem',
  'browser/transfer',
  'unit/link/rtc/ice-restart',
  // Commands: every refusal, remedy and hostile peer; `cli/exit-codes` and each command's own file run.
  'cli/hostile',
  'cli/killed',
  'cli/lossy',
  'cli/nvme-target',
  'cli/offload',
  'cli/perf-strangers',
  'cli/perf-trouble',
  'cli/psk-tools',
  'cli/refusal',
  'cli/rds-stress',
  'cli/remedy',
  'cli/rpma-bench',
  'cli/rpma-examples',
  // C programs that are killed while they have the turn; `cli/run` always runs.
  'cli/run-faults',
  'cli/run-turns',
  // The second half of the course; `examples/course` always runs. Examples whose peers die.
  'examples/course-seeds',
  'examples/dead-peers',
  'examples/failures',
  'examples/left-peers',
]);
