/** Machine of the figures. */
import { availableParallelism, cpus, release, totalmem, type } from 'node:os';

export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly system: string;
  readonly memoryGib: number;
  readonly node: string;
  readonly date: Date;
}

export function machine(): Machine {
  return {
    processor: cpus()[0]?.model ?? process.arch,
    cores: availableParallelism(),
    system: `${type()} ${release()}`,
    memoryGib: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    date: new Date(),
  };
}
