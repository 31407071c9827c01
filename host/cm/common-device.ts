/**
 * The devices that listeners and connections of this process have in common, by local address: a
 * device has a thread, a socket and memory of its own, and opening one takes milliseconds.
 */
import type { Context } from '../verbs/context.js';

/** Memory of a common device. Pages that are never used take no memory of the system. */
export const COMMON_MEMORY_BYTES = 256 * 2 ** 20;

/** Contexts that keep no device open, by local address. */
const devices = new Map<string, Context[]>();
/** The last call of each address: calls of one address take turns. */
const turns = new Map<string, Promise<Context>>();

/**
 * A context of the common device at a local address; the device ends with the last such context.
 * If none of them fits, `open` opens one.
 */
export function commonDevice(
  address: string,
  fits: (context: Context) => boolean,
  open: () => Promise<Context>,
): Promise<Context> {
  const turn = afterwards(turns.get(address), () => find(address, fits, open));
  turns.set(address, turn);
  // Its caller handles the rejection.
  turn.catch(() => {}).finally(() => turns.get(address) === turn && turns.delete(address));
  return turn;
}

/** The device of this context has moved from the local address `from`. */
export function commonDeviceMoved(context: Context, from: string): void {
  const known = devices.get(from) ?? [];
  const moved = known.filter(({ device }) => device === context.device);
  if (moved.length === 0) return;
  devices.set(
    from,
    known.filter((inner) => !moved.includes(inner)),
  );
  const to = context.local.gid.toString();
  devices.set(to, [...(devices.get(to) ?? []), ...moved]);
}

async function afterwards<T>(before: Promise<unknown> | undefined, work: () => Promise<T>) {
  await before?.catch(() => {});
  return work();
}

async function find(
  address: string,
  fits: (context: Context) => boolean,
  open: () => Promise<Context>,
): Promise<Context> {
  const known = devices.get(address) ?? [];
  for (const inner of [...known]) {
    const { closing } = inner.siblings;
    if (!closing && !inner.failure) {
      if (fits(inner)) return inner.openDevice();
      continue;
    }
    // Its port is free again when it is closed.
    await closing;
    known.splice(known.indexOf(inner), 1);
  }
  const context = await open();
  known.push(context.openInner());
  devices.set(address, known);
  return context;
}
