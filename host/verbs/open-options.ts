/** The options of `openDevice` that are no limits: their types, and which need a name. */
import { checkKeys, checkObject } from '../base/options.js';
import { checkFlag, checkWhole, mustBe, shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';

/** Options of a device that processes share. */
const OF_A_NAME = [
  'directory',
  'processesMax',
  'localMemoryBytes',
  'memoryBytesMax',
  'hugePages',
] as const;
const FLAGS = ['sharedArrayBuffer', 'hugePages', 'keepsAlive'] as const;
/** Objects, and a method or field that each has. */
const OBJECTS = { link: 'open', clock: 'now', threadShare: 'memory', lending: '' } as const;
type Values = Readonly<Record<string, unknown>>;

const CONTROLS: readonly unknown[] = ['auto', 'cubic'];
const PROGRESS: readonly unknown[] = ['thread', 'poll', 'inline'];

/** Throws MisuseError. */
export function checkOpenOptions(options: object): void {
  const values = options as Values;
  for (const [name, part] of Object.entries(OBJECTS)) {
    const value = values[name];
    if (value === undefined) continue;
    checkObject('openDevice', value, name);
    if (part === '' || part in (value as object)) continue;
    throw new MisuseError(name, `openDevice: must have ${part}, got an object without it`);
  }
  for (const name of FLAGS)
    if (values[name] !== undefined) checkFlag(name, values[name] as boolean);
  const { name, address, directory, spinMicros, progress } = values;
  for (const [argument, value] of Object.entries({ name, address, directory })) {
    if (value === undefined || typeof value === 'string') continue;
    throw new MisuseError(argument, `openDevice: must be a string, got ${shown(value)}`);
  }
  if (spinMicros !== undefined && !(Number.isFinite(spinMicros) && (spinMicros as number) >= 0)) {
    throw mustBe('spinMicros', 'a number from 0 on', spinMicros);
  }
  if (progress !== undefined && !PROGRESS.includes(progress)) {
    throw mustBe('progress', "'thread', 'poll' or 'inline'", progress);
  }
  const { congestionControl: control = 'auto' } = values;
  if (typeof control === 'object' && control !== null) {
    const target = control as { readonly delayMicros: number };
    checkKeys('congestionControl', target, 'delayMicros');
    checkWhole('congestionControl.delayMicros', target.delayMicros, 20, 10_000_000);
  } else if (!CONTROLS.includes(control)) {
    throw mustBe('congestionControl', "'auto', 'cubic' or { delayMicros }", control);
  }
  const vain = OF_A_NAME.find((one) => values[one] !== undefined);
  if (name !== undefined || vain === undefined) return;
  const rule = `openDevice: must be omitted without name, got ${shown(values[vain])}`;
  throw new MisuseError(vain, `${rule}; add name, which processes share a device by`);
}
