/**
 * Which processing elements (PEs) a job has and which one this process is: from `verbena shmem
 * run`, Open MPI's mpirun, PMI (MPICH, PMIx) or SLURM's srun, by their environment.
 */
import { createHash } from 'node:crypto';
import { MisuseError } from '../errors/errors.js';

export interface Job {
  /** The same in all processes of the job, and in no other job. */
  readonly id: string;
  readonly rank: number;
  readonly size: number;
  /** Number of PEs of this machine, if the launcher says so. */
  readonly localSize: number | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** Variables of a launcher: rank, size, PEs of the machine, job. */
interface Launcher {
  readonly name: string;
  readonly rank: string;
  readonly size: readonly string[];
  readonly localSize: readonly string[];
  readonly job: readonly string[];
}

/** Characters of a device's name that a job takes, and those of a hash in it. */
const NAME_MAX = 60;
const HASH_DIGITS = 12;

/** In this order: mpirun inside of a SLURM job sets its own, too. */
const LAUNCHERS: readonly Launcher[] = [
  {
    name: 'verbena shmem run',
    rank: 'VERBENA_SHMEM_RANK',
    size: ['VERBENA_SHMEM_SIZE'],
    localSize: ['VERBENA_SHMEM_LOCAL_SIZE'],
    job: ['VERBENA_SHMEM_JOB'],
  },
  {
    name: 'mpirun',
    rank: 'OMPI_COMM_WORLD_RANK',
    size: ['OMPI_COMM_WORLD_SIZE'],
    localSize: ['OMPI_COMM_WORLD_LOCAL_SIZE'],
    job: ['PMIX_NAMESPACE', 'OMPI_MCA_ess_base_jobid'],
  },
  {
    name: 'srun',
    rank: 'SLURM_PROCID',
    size: ['SLURM_NTASKS', 'SLURM_NPROCS'],
    localSize: [],
    job: ['SLURM_JOB_ID', 'SLURM_STEP_ID'],
  },
  {
    name: 'a PMI launcher',
    rank: 'PMI_RANK',
    size: ['PMI_SIZE'],
    localSize: ['MPI_LOCALNRANKS'],
    job: ['PMI_ID', 'PMIX_NAMESPACE'],
  },
];

/** The job of this process. Throws MisuseError: no launcher started it, or its words are wrong. */
export function jobOf(environment: Environment): Job {
  const launcher = LAUNCHERS.find(({ rank }) => environment[rank] !== undefined);
  if (!launcher) {
    throw new MisuseError(
      'job',
      'is required, as no launcher started this process: use "verbena shmem run -n 4 ' +
        'program.js", mpirun or srun, or pass the job to init',
    );
  }
  const read = (names: readonly string[], least: number): number | undefined => {
    const name = names.find((one) => environment[one] !== undefined);
    if (name === undefined) return undefined;
    const value = Number(environment[name]);
    if (Number.isInteger(value) && value >= least) return value;
    throw new MisuseError(
      name,
      `must be a whole number from ${least} on, got ${environment[name]}`,
    );
  };
  const rank = read([launcher.rank], 0)!;
  const size = read(launcher.size, 1);
  if (size === undefined || rank >= size) {
    throw new MisuseError(
      launcher.size[0]!,
      `must be above the rank ${rank} that ${launcher.name} has set, got ${size ?? 'nothing'}`,
    );
  }
  const explicit = environment.VERBENA_SHMEM_JOB;
  const parts = launcher.job.map((name) => environment[name]).filter((one) => one !== undefined);
  const id = explicit ?? (parts.length > 0 ? parts.join('.') : `${process.ppid}`);
  return { id, rank, size, localSize: read(launcher.localSize, 1) };
}

/** As the name of a device must be; another one for each id. */
export function clean(id: string): string {
  const name = id.replace(/[^A-Za-z0-9._-]/g, '-');
  if (name === id && name.length <= NAME_MAX) return name;
  const hash = createHash('sha256').update(id).digest('hex').slice(0, HASH_DIGITS);
  return `${name.slice(0, NAME_MAX - HASH_DIGITS - 1)}-${hash}`;
}
