/** Numbers as people read them. Decimal units: 1 MB is 10^6 bytes, as disks and networks count. */
import type { PathState } from '../../index.js';

export { formatBytes } from '../../base/format-bytes.js';

/** `123.4 MB/s`. */
export function formatRate(bytes: number, seconds: number): string {
  return `${megabytesPerSecond(bytes, seconds).toFixed(1)} MB/s`;
}

function megabytesPerSecond(bytes: number, seconds: number): number {
  return seconds > 0 ? bytes / 1e6 / seconds : 0;
}

/** `0.82 s`. */
export function formatSeconds(seconds: number): string {
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

/** `round trip 50.3 ms (least 50.1 ms), window 1126 packets, 0.10 % lost`. */
export function describePath(path: PathState): string {
  const millis = (micros: number): string =>
    `${(micros / 1000).toFixed(micros < 10_000 ? 2 : 1)} ms`;
  const { roundTripMicros, roundTripLeastMicros, windowPackets, lossShare } = path;
  return (
    `round trip ${millis(roundTripMicros)} (least ${millis(roundTripLeastMicros)}), ` +
    `window ${formatCount(windowPackets, 'packet')}, ${(100 * lossShare).toFixed(2)} % lost`
  );
}

/** `1 packet`, `2 packets`. */
export function formatCount(count: number | bigint, noun: string): string {
  return `${count} ${noun}${count === 1 || count === 1n ? '' : 's'}`;
}
