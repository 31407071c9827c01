/** Stands in for devices.ts in a browser, where the application has opened the device. */
import { MisuseError } from '../errors/errors.js';
import type { DeviceChoice, DeviceUse, Direction } from './devices.js';
import { LocalMemory } from './local-regions.js';

export function fullError(_operation: string, error: unknown): unknown {
  return error;
}

export async function useDevice(
  _direction: Direction,
  _bytes: number,
  { context: given, pd, device }: DeviceChoice,
): Promise<DeviceUse> {
  const isOne = device === undefined && (given === undefined) !== (pd === undefined);
  if (!isOne) throw new MisuseError('context', 'a page needs context or pd, of its own openDevice');
  const local = new LocalMemory();
  if (pd) return { context: pd.context, pd, local, release: async () => {} };
  const context = given!.openDevice();
  try {
    return { context, pd: context.allocPd(), local, release: () => context.close() };
  } catch (error) {
    await context.close();
    throw error;
  }
}
