/**
 * Access control file for reliable datagrams (seed 003): lists the users and groups that may open
 * or reach a node. A missing file allows every user; an unreadable or invalid file allows none.
 *
 *     user alice       # by name
 *     user 1000        # or number
 *     group storage
 */
import { lstatSync, readFileSync } from 'node:fs';
import { RefusalError } from '../errors/errors.js';
import { GROUPS_MAX, type Identity } from './protocol/identity.js';

/** Default path of the access control file (`RdsNodeOptions.accessFile`). */
export const ACCESS_FILE = '/etc/verbena/rds.access';
const ID_MAX = 0xffffffff;

/** This process; undefined where the system has no numbers for users. */
export function ownIdentity(): Identity | undefined {
  const uid = process.geteuid?.();
  if (uid === undefined) return undefined;
  const gids = new Set([process.getegid?.() ?? 0, ...(process.getgroups?.() ?? [])]);
  return { uid, gids: [...gids].slice(0, GROUPS_MAX) };
}

export class AccessList {
  readonly #uids = new Set<number>();
  readonly #gids = new Set<number>();

  /** Throws RefusalError EACCES if a line is malformed or names an unknown user or group. */
  constructor(text: string, numberOf: (kind: 'user' | 'group', name: string) => number) {
    for (const [index, whole] of text.split('\n').entries()) {
      const line = whole.replace(/#.*/, '').trim();
      if (line === '') continue;
      const [, kind, name] = /^(user|group)\s+(\S+)$/.exec(line) ?? [];
      if (kind === undefined || name === undefined) {
        throw refusal(`line ${index + 1} "${line}" must be "user NAME" or "group NAME"`);
      }
      const isUser = kind === 'user';
      const id = /^\d+$/.test(name) ? Number(name) : numberOf(isUser ? 'user' : 'group', name);
      if (id > ID_MAX) throw refusal(`line ${index + 1}: ${kind} number ${name} exceeds ${ID_MAX}`);
      (isUser ? this.#uids : this.#gids).add(id);
    }
  }

  allows(identity: Identity | undefined): boolean {
    if (!identity) return false;
    return this.#uids.has(identity.uid) || identity.gids.some((gid) => this.#gids.has(gid));
  }
}

/** Parses the file; undefined if it does not exist. Throws RefusalError EACCES. */
export function readAccessList(path: string): AccessList | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    // A dangling symbolic link is an error, not an absent file.
    const isAbsent = code === 'ENOENT' && !lstatSync(path, { throwIfNoEntry: false });
    if (isAbsent) return undefined;
    throw refusal(message);
  }
  return new AccessList(text, systemNumberOf);
}

/** Looks the name up in the system's user or group file. */
function systemNumberOf(kind: 'user' | 'group', name: string): number {
  const path = kind === 'user' ? '/etc/passwd' : '/etc/group';
  let lines: string[] = [];
  try {
    lines = readFileSync(path, 'utf8').split('\n');
  } catch {
    // Without the file the name counts as unknown.
  }
  const fields = lines.map((line) => line.split(':')).find(([known]) => known === name);
  if (!fields || !/^\d+$/.test(fields[2] ?? '')) throw refusal(`no ${kind} is named ${name}`);
  return Number(fields[2]);
}

function refusal(reason: string): RefusalError {
  return new RefusalError('EACCES', `access file of reliable datagrams: ${reason}`);
}
