/** The recorded captures, for tests. README.md says what each of them is. */
import { readFileSync, readdirSync } from 'node:fs';
import { readPcap, type CapturedPacket } from '../../host/link/capture/pcap.js';
import { vectors } from '../support/paths.js';

export type VectorSet = 'rxe' | 'linux';

export interface VectorCapture {
  readonly set: VectorSet;
  /** Without `.pcap`. */
  readonly name: string;
  readonly packets: readonly CapturedPacket[];
  /** Frames that hold no packet of ours. */
  readonly skipped: number;
  /** Opcodes and syndromes in order, as INDEX.txt has them. */
  readonly index: string;
  /** The output of the two programs; '' if it was not kept. */
  readonly log: string;
}

/** How many there are: tests compare, so that a missing file cannot pass. */
export const EXPECTED = {
  rxe: { captures: 68, packets: 434, flushes: 10 },
  linux: { captures: 11, packets: 501, flushes: 0 },
} as const;

/** INDEX.txt of rxe cuts what is longer. */
export const INDEX_CUT = 110;

export function loadCaptures(set: VectorSet): VectorCapture[] {
  const folder = new URL(`${set}/`, vectors);
  const index = readIndex(new URL('INDEX.txt', folder));
  const names = readdirSync(folder)
    .filter((file) => file.endsWith('.pcap'))
    .map((file) => file.slice(0, -'.pcap'.length))
    .sort();
  return names.map((name) => {
    const capture = readPcap(readFileSync(new URL(`${name}.pcap`, folder)));
    const packets = [...capture];
    const skipped = [...capture.skipped.values()].reduce((sum, count) => sum + count, 0);
    const log = set === 'rxe' ? readFileSync(new URL(`${name}.log`, folder), 'latin1') : '';
    return { set, name, packets, skipped, index: index.get(name) ?? '', log };
  });
}

export function loadAllCaptures(): VectorCapture[] {
  return [...loadCaptures('rxe'), ...loadCaptures('linux')];
}

/** Lines of `name.pcap: 0a 11/s1f `. */
function readIndex(file: URL): Map<string, string> {
  const index = new Map<string, string>();
  for (const line of readFileSync(file, 'latin1').split('\n')) {
    const at = line.indexOf('.pcap: ');
    if (at > 0) index.set(line.slice(0, at), line.slice(at + '.pcap: '.length));
  }
  return index;
}
