/** Files that another user of the machine could plant: only root can act as two users. */
import { chmodSync, chownSync, lchownSync } from 'node:fs';
import { spawnSync, type SpawnSyncReturns } from 'node:child_process';

/** User id 65534, the unprivileged user of most systems. */
export const OTHER_USER = 65534;
export const isRoot = process.geteuid?.() === 0;

type Work = () => void | Promise<void>;

/** A test that needs two users; if it cannot run, it prints the reason and does not count. */
export function testOfTwoUsers(
  test: (name: string, work: Work) => void,
  name: string,
  work: Work,
): void {
  if (isRoot) test(name, work);
  else console.log(`not run: ${name}: only root can act as two users`);
}

/** Changes the owner to the other user; of a link the link itself. */
export function give(path: string): void {
  lchownSync(path, OTHER_USER, OTHER_USER);
}

/** As /tmp: all users may write, and no user can remove a file of another user. */
export function openToAll(directory: string): void {
  chmodSync(directory, 0o1777);
  chownSync(directory, 0, 0);
}

/** Can the other user read the file? */
export function canBeReadByOthers(path: string): boolean {
  const { status } = spawnSync('cat', [path], { uid: OTHER_USER, gid: OTHER_USER });
  return status === 0;
}

/**
 * Runs node as the other user, which may read and search every directory, as the build may lie in
 * one that is closed to others; it may write only where any user may.
 */
export function runAsOtherUser(words: readonly string[]): SpawnSyncReturns<string> {
  const user = [`--reuid=${OTHER_USER}`, `--regid=${OTHER_USER}`, '--clear-groups'];
  const reads = ['--inh-caps=+dac_read_search', '--ambient-caps=+dac_read_search'];
  const args = [...user, ...reads, process.execPath, ...words];
  return spawnSync('setpriv', args, { encoding: 'utf8', cwd: '/', timeout: 60_000 });
}
