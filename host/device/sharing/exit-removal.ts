/**
 * Device files at the end of a process: one that ends without `close` (process.exit, an exception)
 * removes those that no other process uses. A killed process cannot: the next process that opens a
 * device in the directory removes its file (`removeDeadFiles`).
 */
import type { DeviceFile } from './device-file.js';

/** The devices that this thread has open, and its slot in each. */
const open = new Map<DeviceFile, number>();

/** Until `forgetAtExit`. */
export function removeAtExit(file: DeviceFile, slot: number): void {
  if (open.size === 0) process.on('exit', removeUnused);
  open.set(file, slot);
}

export function forgetAtExit(file: DeviceFile): void {
  if (open.delete(file) && open.size === 0) process.off('exit', removeUnused);
}

/**
 * Slots stay locked until the process is gone: the engine's thread still runs, and another process
 * would reclaim its memory.
 */
function removeUnused(): void {
  const done = new Set<string>();
  for (const file of open.keys()) {
    if (done.has(file.path)) continue;
    done.add(file.path);
    const slots = [...open].filter(([{ path }]) => path === file.path).map(([, slot]) => slot);
    try {
      // While this thread has that lock, no process attaches.
      if (file.tryJoin() && !file.hasOthers(slots)) file.remove();
    } catch {
      // The kernel has no lock now, or the name is gone: as after a kill.
    }
  }
}
