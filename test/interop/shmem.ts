/** SHMEM jobs that Open MPI starts; as on two machines, they exchange addresses through Redis. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { SHMEM_CASES } from '../support/shmem-cases.js';
import type { Group } from './group.js';
import type { Tool } from './tool.js';
import { run } from './tools.js';

const PE = fileURLToPath(new URL('build/test/support/shmem-pe.js', root));
const PES = 4;
const PORT = 26_379;

const mpirun: Tool = {
  name: 'mpirun',
  aptPackage: 'openmpi-bin',
  version: async () => (await run('mpirun', ['--version'])).stdout.split('\n')[0]!,
};
const redisServer: Tool = {
  name: 'redis-server',
  aptPackage: 'redis-server',
  version: async () => (await run('redis-server', ['--version'])).stdout.trim(),
};

async function startRedis(): Promise<ChildProcess> {
  const words = [
    '--port',
    `${PORT}`,
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--requirepass',
    'secret',
  ];
  const child = spawn('redis-server', words, { stdio: ['ignore', 'pipe', 'ignore'] });
  for await (const text of child.stdout) if (String(text).includes('Ready to accept')) break;
  return child;
}

/** Runs the conformance cases in PEs of mpirun, `command` in each. */
async function cases(command: string, ...words: string[]): Promise<void> {
  const launch = ['--allow-run-as-root', '--oversubscribe', '-n', `${PES}`, ...words];
  const { stdout } = await run('mpirun', [...launch, 'sh', '-c', command], 200);
  const lines = stdout.split('\n').filter((line) => line.startsWith('{'));
  const said = lines.map((line) => JSON.parse(line) as { name: string; error?: string });
  const wrong = said.find(({ error }) => error !== undefined);
  if (wrong) throw new Error(`${wrong.name}: ${wrong.error}`);
  const wanted = PES * (Object.keys(SHMEM_CASES).length + 1);
  if (said.length !== wanted) throw new Error(`${said.length} of ${wanted} cases ended\n${stdout}`);
}

export const shmemGroup: Group = {
  name: 'shmem',
  tools: [mpirun, redisServer],
  async run(report) {
    const node = `exec "${process.execPath}" "${PE}"`;
    await report.check('mpirun starts four PEs of one machine', () => cases(node));
    const redis = await startRedis();
    try {
      const url = `VERBENA_SHMEM_REDIS=redis://:secret@127.0.0.1:${PORT}`;
      const place = 'export VERBENA_SHMEM_NODE=machine-$((OMPI_COMM_WORLD_RANK % 2))';
      await report.check('mpirun and Redis: four PEs of two machines', () =>
        cases(`${place}; ${node}`, '-x', url),
      );
    } finally {
      redis.kill();
      await once(redis, 'exit');
    }
  },
};
