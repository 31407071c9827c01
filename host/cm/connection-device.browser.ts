/** Stands in for connection-device.ts in a browser, where the application opens each device. */
import { RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';

export async function deviceTowards(): Promise<Context> {
  throw new RefusalError(
    'EOPNOTSUPP',
    'openDevice: a browser opens none for a connection; pass context',
  );
}

export { deviceTowards as deviceAt };

export function checkEndOptions(): void {
  // A page without a valid context is refused by deviceTowards.
}
