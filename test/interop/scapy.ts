/** The ICRC as scapy computes it. */
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { PYTHON, run } from './tools.js';

const SCRIPT = fileURLToPath(new URL('test/interop/icrc.py', root));

export interface IcrcVerdict {
  /** Packets over IPv4 that it computed. */
  readonly checked: number;
  /** Frames it can say nothing about: IPv6 above all. */
  readonly other: number;
  /** Frame numbers whose ICRC is another one. */
  readonly wrong: readonly number[];
}

export async function checkIcrcs(files: readonly string[]): Promise<Map<string, IcrcVerdict>> {
  const { stdout } = await run(PYTHON, [SCRIPT, ...files], 300);
  return new Map(Object.entries(JSON.parse(stdout) as Record<string, IcrcVerdict>));
}
