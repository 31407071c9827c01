/** The options of sockets, and the same from the environment. */
import { isIP } from 'node:net';
import { checkObject } from '../base/options.js';
import { warn } from '../base/warning.js';
import { shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import { RESERVES_MAX, isLocal, isUnicast } from './addresses.js';

/** Limits of datagrams that RDP cannot take yet. */
export interface RdpSettings {
  /** How long a datagram waits for a slow reader or a path; then it is dropped. Default 30000. */
  readonly retryMillis: number;
  /** Memory of a socket for waiting datagrams; beyond it they are dropped. Default 64 MiB. */
  readonly queueBytes: number;
  /**
   * The callback of `send` waits until RDP has the datagram. If no datagram to that destination left
   * for this time, callbacks no longer wait, as those of UDP. Default 20.
   */
  readonly callbackMillis: number;
}

/** Settings of a socket: `rdp` of `createSocket`. */
export interface RdpOptions extends Partial<RdpSettings> {
  /** Emit the event 'rdp' (`RdpEvent`). Default false: the socket has the events of `node:dgram`. */
  readonly events?: boolean;
}

/** Settings of a process. */
export interface Environment extends RdpSettings {
  /** UDP only. */
  readonly isOff: boolean;
  /** Fault injection: percent of the datagrams that this process sends, and the generator's seed. */
  readonly loss: number;
  readonly seed: number;
  /** Silence after which a peer counts as dead; its path recovers in twice that. Default 5000. */
  readonly heartbeatMillis: number;
  /** How long a broken path reconnects before its messages are lost. Default 30000. */
  readonly outageMillis: number;
  /** Where nodes run: in a thread of their own (with koffi), or in the event loop. */
  readonly progress: 'thread' | 'inline';
  /**
   * Local addresses over which messages of a node go if its own address fails: one of each other
   * interface, none, or these.
   */
  readonly failover: 'auto' | 'off' | readonly string[];
}

const DEFAULTS: Environment = {
  retryMillis: 30_000,
  queueBytes: 64 << 20,
  callbackMillis: 20,
  isOff: false,
  loss: 0,
  seed: 1,
  heartbeatMillis: 5000,
  outageMillis: 30_000,
  progress: 'thread',
  failover: 'auto',
};
const OF_SOCKETS = ['retryMillis', 'queueBytes', 'callbackMillis'] as const;
const NUMBERS = [...OF_SOCKETS, 'loss', 'seed', 'heartbeatMillis', 'outageMillis'] as const;
const MOST = 2 ** 31 - 1;

/** `part`: of `VERBENA_DGRAM`. */
function check(name: string, value: unknown, part?: string): number {
  const most = name === 'loss' ? 100 : MOST;
  const least = name === 'heartbeatMillis' || name === 'outageMillis' ? 1 : 0;
  const isRight = typeof value === 'number' && (name === 'loss' || Number.isInteger(value));
  if (isRight && value >= least && value <= most) return value;
  const rule = `must be a number from ${least} to ${most}`;
  if (part !== undefined) throw wrongPart(part, rule);
  throw new MisuseError(name, `${rule}, got ${shown(value)}`);
}

/** Reads the value of `failover`. Throws MisuseError. */
function failoverOf(value: string): Environment['failover'] {
  if (value === 'auto' || value === 'off') return value;
  const addresses = [...new Set(value.split('+'))];
  const part = `failover=${value}`;
  for (const address of addresses) {
    if (isIP(address) === 0) {
      throw wrongPart(part, `failover must be auto, off, or ADDRESS+ADDRESS, got "${address}"`);
    }
    if (!isUnicast(address)) {
      const kinds = 'a group, broadcast, wildcard or link-local address';
      throw wrongPart(part, `${address} is ${kinds}; name unicast addresses of local interfaces`);
    }
  }
  for (const family of [4, 6]) {
    const count = addresses.filter((address) => isIP(address) === family).length;
    // A node at one of them uses the others.
    if (count <= RESERVES_MAX + 1) continue;
    const rule = `${count} addresses of IPv${family} exceed the limit of ${RESERVES_MAX + 1}`;
    throw wrongPart(part, `${rule}; name fewer`);
  }
  return addresses;
}

function wrongPart(part: string, rule: string): MisuseError {
  return new MisuseError('VERBENA_DGRAM', `"${part}": ${rule}`);
}

/** Reads `VERBENA_DGRAM`. Throws MisuseError, which names the part that is wrong. */
export function parseEnvironment(text = ''): Environment {
  const found: { [name: string]: number | boolean | string | readonly string[] } = {};
  for (const part of text.split(',').filter((each) => each !== '')) {
    const [name = '', value = ''] = part.split('=', 2);
    if (name === 'rdp' && (value === 'off' || value === 'on')) {
      found['isOff'] = value === 'off';
    } else if (name === 'progress' && (value === 'thread' || value === 'inline')) {
      found[name] = value;
    } else if (name === 'failover') {
      found[name] = failoverOf(value);
    } else if (NUMBERS.some((known) => known === name) && value.trim() !== '') {
      found[name] = check(name, Number(value), part);
    } else {
      const choices = 'rdp=off, progress=thread|inline, failover=auto|off|ADDRESS+ADDRESS';
      const known = `${choices}, or one of ${NUMBERS.join(', ')}`;
      throw wrongPart(part, known);
    }
  }
  return { ...DEFAULTS, ...found };
}

let environment: Environment | undefined;

/** Of this process; read once. Throws MisuseError; warns of reserves that are not local now. */
export function processEnvironment(): Environment {
  if (environment) return environment;
  environment = parseEnvironment(process.env['VERBENA_DGRAM']);
  const { failover } = environment;
  for (const address of typeof failover === 'string' ? [] : failover) {
    if (!isLocal(address)) {
      const remedy = 'correct VERBENA_DGRAM, or add the address to an interface';
      warn(`failover: ${address} is no address of this machine now; ${remedy}`);
    }
  }
  return environment;
}

/** Settings from a socket's `rdp`; undefined: UDP only. Throws MisuseError. */
export function settingsOf(
  rdp: boolean | RdpOptions | undefined,
): (RdpSettings & { readonly events: boolean }) | undefined {
  const { isOff, retryMillis, queueBytes, callbackMillis } = processEnvironment();
  if (rdp !== undefined && typeof rdp !== 'boolean') checkObject('createSocket', rdp, 'rdp');
  if (isOff || rdp === false) return undefined;
  const { events = false, ...given } = typeof rdp === 'object' ? rdp : {};
  if (typeof events !== 'boolean')
    throw new MisuseError('events', `must be true or false, got ${shown(events)}`);
  const own = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  for (const [name, value] of Object.entries(own)) {
    if (!OF_SOCKETS.some((known) => known === name)) {
      throw new MisuseError('rdp', `"${name}": one of ${OF_SOCKETS.join(', ')}, events`);
    }
    check(name, value);
  }
  return { retryMillis, queueBytes, callbackMillis, ...own, events };
}
