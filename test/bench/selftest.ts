/** Benchmarks that run inside WebAssembly: the WASI self-test's. */
import { runSelftest } from '../../host/engine/selftest.js';
import type { Figures } from './harness.js';

/** Figures of `selftest bench <name>`: medians of its own rounds. */
export function selftestBench(name: string): Figures {
  const { exitCode, stdout, stderr } = runSelftest(['bench', name]);
  if (exitCode !== 0) throw new Error(`selftest bench ${name} ended with ${exitCode}: ${stderr}`);
  const { checksum: _, ...figures } = JSON.parse(stdout) as Figures;
  return figures;
}
