/**
 * `ibv_fork_init`. Adapters that reach memory behind the process's back need care when it forks;
 * this one is the process, and Node does not fork.
 */
import { ForkStatus } from './constants.js';

/** `ibv_fork_init`: nothing is to be done. */
export function forkInit(): void {}

/** `ibv_is_fork_initialized`: ForkStatus.UNNEEDED. */
export function isForkInitialized(): number {
  return ForkStatus.UNNEEDED;
}
