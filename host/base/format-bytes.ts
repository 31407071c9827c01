/** A number of bytes as people read it. Decimal units: 1 MB is 10^6 bytes, as disks count. */
const UNITS = ['bytes', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

/** `98.9 MB`. */
export function formatBytes(bytes: number): string {
  let unit = 0;
  let value = bytes;
  for (; value >= 1000 && unit < UNITS.length - 1; unit++) value /= 1000;
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${bytes === 1 ? 'byte' : UNITS[unit]}`;
}
