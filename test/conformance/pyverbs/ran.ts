/**
 * Record of the tests that ran, per world: each test file writes it, and the runner reads it
 * (report.ts).
 */
import { root } from '../../support/paths.js';

export type WorldName = 'loopback' | 'udp' | 'loss';
export const WORLD_NAMES: readonly WorldName[] = ['loopback', 'udp', 'loss'];
export const RAN_FOLDER = new URL('build/test/pyverbs-ran/', root);

/** A test of ours, and the worlds that it came through. */
export interface Ran {
  readonly name: string;
  readonly worlds: WorldName[];
}
