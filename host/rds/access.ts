/**
 * Who may use reliable datagrams: a file of users and groups (seed 003). Without it everybody, with
 * it who is in it. A file that cannot be read, or understood, lets nobody in.
 *
 *     user alice       # by name
 *     user 1000        # or number
 *     group storage
 */
import { lstatSync, readFileSync } from 'node:fs';
import { RefusalError } from '../errors/errors.js';
import { GROUPS_MAX, type Identity } from './protocol/identity.js';

/** Where the access control file is looked for, unless a node is told otherwise. */
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

  /** Throws RefusalError EACCES: a line that nobody understands, a name that nobody has. */
  constructor(text: string, numberOf: (kind: 'user' | 'group', name: string) => number) {
    for (const [index, whole] of text.split('\n').entries()) {
      const line = whole.replace(/#.*/, '').trim();
      if (line === '') continue;
      const [, kind, name] = /^(user|group)\s+(\S+)$/.exec(line) ?? [];
      if (kind === undefined || name === undefined) {
        throw refusal(`line ${index + 1} is neither "user NAME" nor "group NAME": "${line}"`);
      }
      const isUser = kind === 'user';
      const id = /^\d+$/.test(name) ? Number(name) : numberOf(isUser ? 'user' : 'group', name);
      if (id > ID_MAX) throw refusal(`line ${index + 1}: ${name} is no number of a ${kind}`);
      (isUser ? this.#uids : this.#gids).add(id);
    }
  }

  allows(identity: Identity | undefined): boolean {
    if (!identity) return false;
    return this.#uids.has(identity.uid) || identity.gids.some((gid) => this.#gids.has(gid));
  }
}

/** The list of a file; undefined: there is none, and no control. Throws RefusalError EACCES. */
export function readAccessList(path: string): AccessList | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    // A link to what is not there is no absent file.
    const isAbsent = code === 'ENOENT' && !lstatSync(path, { throwIfNoEntry: false });
    if (isAbsent) return undefined;
    throw refusal(message);
  }
  return new AccessList(text, systemNumberOf);
}

/** As the system's files have it. */
function systemNumberOf(kind: 'user' | 'group', name: string): number {
  const path = kind === 'user' ? '/etc/passwd' : '/etc/group';
  let lines: string[] = [];
  try {
    lines = readFileSync(path, 'utf8').split('\n');
  } catch {
    // No such file: no such name.
  }
  const fields = lines.map((line) => line.split(':')).find(([known]) => known === name);
  if (!fields || !/^\d+$/.test(fields[2] ?? '')) throw refusal(`there is no ${kind} ${name}`);
  return Number(fields[2]);
}

function refusal(reason: string): RefusalError {
  return new RefusalError('EACCES', `access to reliable datagrams: ${reason}`);
}
