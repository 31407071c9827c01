/** The options of sockets, and the same from the environment. */
import { MisuseError } from '../errors/errors.js';

/** How long, and how much, a socket waits for reliable datagrams. */
export interface RdpSettings {
  /** How long a datagram waits for a peer that was never heard of. Default 1000. */
  readonly resolveMillis: number;
  /** How long a datagram waits for a slow reader, or a send buffer. Default 5000. */
  readonly retryMillis: number;
  /** What may wait in a socket. Default 1024 datagrams, 8 MiB. */
  readonly queueMessages: number;
  readonly queueBytes: number;
}

/** Of a process. */
export interface Environment extends RdpSettings {
  /** UDP alone. */
  readonly isOff: boolean;
  /** Percent of what is sent that never leaves, and which. */
  readonly loss: number;
  readonly seed: number;
  /** Without a word for so long a peer is dead; its path recovers in twice that. Default 5000. */
  readonly heartbeatMillis: number;
}

const DEFAULTS: Environment = {
  resolveMillis: 1000,
  retryMillis: 5000,
  queueMessages: 1024,
  queueBytes: 8 << 20,
  isOff: false,
  loss: 0,
  seed: 1,
  heartbeatMillis: 5000,
};
const OF_SOCKETS = ['resolveMillis', 'retryMillis', 'queueMessages', 'queueBytes'] as const;
const NUMBERS = [...OF_SOCKETS, 'loss', 'seed', 'heartbeatMillis'] as const;
const MOST = 2 ** 31 - 1;

function check(name: string, value: number): number {
  const most = name === 'loss' ? 100 : MOST;
  const least = name === 'heartbeatMillis' ? 1 : 0;
  const isRight = name === 'loss' || Number.isInteger(value);
  if (isRight && value >= least && value <= most) return value;
  throw new MisuseError(name, `must be a number from ${least} to ${most}, got ${value}`);
}

/** Reads `VERBENA_DGRAM`. Throws MisuseError, which names the part that is wrong. */
export function parseEnvironment(text = ''): Environment {
  const found: { [name: string]: number | boolean } = {};
  for (const part of text.split(',').filter((each) => each !== '')) {
    const [name = '', value = ''] = part.split('=', 2);
    if (name === 'rdp' && (value === 'off' || value === 'on')) {
      found['isOff'] = value === 'off';
    } else if (NUMBERS.some((known) => known === name) && value.trim() !== '') {
      found[name] = check(name, Number(value));
    } else {
      throw new MisuseError('VERBENA_DGRAM', `"${part}": rdp=off, or one of ${NUMBERS.join(', ')}`);
    }
  }
  return { ...DEFAULTS, ...found };
}

let environment: Environment | undefined;

/** Of this process; read once. Throws MisuseError. */
export function processEnvironment(): Environment {
  return (environment ??= parseEnvironment(process.env['VERBENA_DGRAM']));
}

/** What a socket's `rdp` says; undefined: UDP alone. Throws MisuseError. */
export function settingsOf(
  rdp: boolean | Partial<RdpSettings> | undefined,
): RdpSettings | undefined {
  const { isOff, ...preset } = processEnvironment();
  if (isOff || rdp === false) return undefined;
  const given = typeof rdp === 'object' && rdp !== null ? rdp : {};
  for (const [name, value] of Object.entries(given)) {
    if (!OF_SOCKETS.some((known) => known === name)) {
      throw new MisuseError('rdp', `"${name}": one of ${OF_SOCKETS.join(', ')}`);
    }
    check(name, value);
  }
  return { ...preset, ...given };
}
