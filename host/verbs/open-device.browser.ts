/** Stands in for open-device.ts in a browser, where there is no UDP. */
import { checkKeys } from '../base/options.js';
import { DEVICE_OPTIONS, Device } from '../device/device.js';
import { Context } from './context.js';
import type { LinkOpenOptions } from './open-device.js';

export type { LinkOpenOptions, LinkOpenOptions as OpenOptions } from './open-device.js';

/**
 * Opens a device over a link. The engine runs in the thread that calls: do it in a Worker, so that
 * peers are served whatever the page does. Throws MisuseError for options out of range,
 * RefusalError ENOMEM, ENOENT (engine.wasm is not beside the bundle), and LinkError as the link
 * does.
 */
export async function openDevice(options: LinkOpenOptions): Promise<Context> {
  checkKeys('openDevice', options, DEVICE_OPTIONS);
  return new Context(await Device.open(options));
}
