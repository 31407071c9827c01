/** Processes that have the device of a program under `verbena run`. */
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';

/**
 * Words in front of a program: with a limit of address space it starts a sidecar, and does not take
 * the device of `verbena run` itself (offer.c).
 */
export const OWN_SIDECAR = ['sh', '-c', 'ulimit -Sv 1099511627776; exec "$0" "$@"'] as const;

/** A file of /proc/PID; empty: the process has ended. */
export function readOf(pid: number | string, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'latin1');
  } catch {
    return '';
  }
}

/** The file behind a descriptor of a process. */
export function descriptorOf(pid: number, fd: number | string): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`);
  } catch {
    return '';
  }
}

function descriptorsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((fd) => descriptorOf(pid, fd));
  } catch {
    return [];
  }
}

function processes(): number[] {
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .map(Number);
}

/** Sidecars of programs whose device is at this address. */
export function sidecarsOf(address: string): number[] {
  return processes().filter(
    (pid) =>
      readOf(pid, 'cmdline').includes('/sidecar.js') &&
      readOf(pid, 'environ').includes(`"${address}"`),
  );
}

/** Processes of `verbena run` that have the device at this address themselves. */
function offersOf(address: string): number[] {
  return processes().filter(
    (pid) =>
      readOf(pid, 'cmdline').includes(`\0run\0--address\0${address}\0`) &&
      descriptorsOf(pid).some((file) => file.startsWith('/memfd:verbena')),
  );
}

/** All processes that have a device at this address for a program. */
export const devicesOf = (address: string): number[] => [
  ...sidecarsOf(address),
  ...offersOf(address),
];
