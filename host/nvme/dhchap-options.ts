/** Options of DH-HMAC-CHAP, for targets and hosts, and their checks. */
import { checkKeys, checkObject } from '../base/options.js';
import { checkWhole, shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import { DHCHAP_GROUPS, type DhchapGroup } from './dhchap-group.js';
import {
  DHCHAP_HASHES,
  parseDhchapSecret,
  type DhchapHash,
  type DhchapSecret,
} from './dhchap-secret.js';

/** Secrets that one host shares with one subsystem: `DHHC-1:hh:base64:`. */
export interface DhchapSecrets {
  /** The host proves that it has this secret. */
  readonly secret: string;
  /** The controller proves that it has this secret, if the host asks. Another one than `secret`. */
  readonly controllerSecret?: string;
}

/** Authentication that a target requires. */
export interface NvmeTargetDhchap {
  /** By host NQN. Other hosts are refused. */
  readonly hosts: Readonly<Record<string, DhchapSecrets>>;
  /** The only hash that the target accepts. Default sha256. */
  readonly hash?: DhchapHash;
  /** The only group that the target accepts; `null`: no Diffie-Hellman. Default ffdhe2048. */
  readonly group?: DhchapGroup;
  /** Milliseconds from Connect to the end of an authentication. Default 10,000. */
  readonly timeoutMillis?: number;
}

/** Authentication of a host. */
export interface NvmeHostDhchap extends DhchapSecrets {
  /** false: connect a target that does not ask for authentication, as Linux does. Default true. */
  readonly required?: boolean;
}

/** @internal Secrets that were checked. */
export interface CheckedSecrets {
  readonly secret: DhchapSecret;
  readonly controllerSecret: DhchapSecret | undefined;
}

/** @internal */
export interface CheckedTargetDhchap {
  readonly hosts: ReadonlyMap<string, CheckedSecrets>;
  readonly hash: DhchapHash;
  readonly group: DhchapGroup;
  readonly timeoutMillis: number;
}

const HOST_KEYS = 'secret controllerSecret required';
const SECRET_KEYS = 'secret controllerSecret';

/** Throws MisuseError, which never contains a secret. */
export function checkTargetDhchap(options: NvmeTargetDhchap): CheckedTargetDhchap {
  checkKeys('openNvmeTarget, dhchap', options, 'hosts hash group timeoutMillis');
  const { hash = 'sha256', group = 'ffdhe2048', timeoutMillis = 10_000 } = options;
  checkName('dhchap.hash', hash, DHCHAP_HASHES);
  checkName('dhchap.group', group, DHCHAP_GROUPS);
  checkWhole('dhchap.timeoutMillis', timeoutMillis, 1, 2 ** 31);
  checkObject('openNvmeTarget, dhchap', options.hosts, 'dhchap.hosts');
  const hosts = new Map<string, CheckedSecrets>();
  for (const [nqn, secrets] of Object.entries(options.hosts)) {
    checkHostNqn('dhchap.hosts', nqn);
    checkKeys(`openNvmeTarget, dhchap.hosts["${nqn}"]`, secrets, SECRET_KEYS);
    hosts.set(nqn, checkSecrets(`dhchap.hosts["${nqn}"]`, secrets));
  }
  if (hosts.size === 0) {
    throw new MisuseError(
      'dhchap.hosts',
      `must name at least one host, got ${hosts.size}: no other host could connect`,
    );
  }
  return { hosts, hash, group, timeoutMillis };
}

/** Throws MisuseError, which never contains a secret. */
export function checkHostDhchap(options: NvmeHostDhchap): CheckedSecrets {
  checkKeys('connectNvme, dhchap', options, HOST_KEYS);
  const { required = true } = options;
  if (typeof required !== 'boolean') {
    throw new MisuseError('dhchap.required', `must be true or false, got ${shown(required)}`);
  }
  return checkSecrets('dhchap', options);
}

/** A name that a Connect can carry: Base 2.1 section 4.7. Throws MisuseError. */
export function checkHostNqn(argument: string, nqn: string): void {
  if (/^nqn\.[!-~]{1,219}$/.test(nqn)) return;
  throw new MisuseError(argument, `"${nqn}" is no NVMe qualified name: nqn.2014-08.org.example`);
}

function checkSecrets(argument: string, secrets: DhchapSecrets): CheckedSecrets {
  const secret = parseDhchapSecret(secrets.secret, `${argument}.secret`);
  if (secrets.controllerSecret === undefined) return { secret, controllerSecret: undefined };
  const name = `${argument}.controllerSecret`;
  const controllerSecret = parseDhchapSecret(secrets.controllerSecret, name);
  if (Buffer.compare(secret.key, controllerSecret.key) === 0) {
    throw new MisuseError(name, 'must have another key than secret');
  }
  return { secret, controllerSecret };
}

function checkName(
  argument: string,
  name: string,
  known: ReadonlyMap<number, { readonly name: string }>,
): void {
  const names = [...known.values()].map((entry) => entry.name);
  if (names.includes(name)) return;
  throw new MisuseError(argument, `must be one of ${names.join(', ')}, got "${name}"`);
}
