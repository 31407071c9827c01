/// <reference types="node" preserve="true" />
/** `verbena/shmem`: OpenSHMEM 1.5 over the memory of PEs of one machine and of several. */
export { init, type ShmemJobOptions, type ShmemOptions } from './init.js';
export type { Shmem } from './shmem.js';
export {
  ShmemCmp,
  ShmemSignal,
  type AtomicArray,
  type Element,
  type SymmetricArray,
} from './symmetric.js';
export type { ShmemTeam } from './team.js';
export type { WaitLimits } from '../base/wait-limits.js';
