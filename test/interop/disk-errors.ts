/**
 * Failing disks under every store that reports bytes as durable: ext4 with and without a journal,
 * xfs and btrfs on loop devices, over a FUSE file that returns EIO or ENOSPC on demand, and over a
 * full tmpfs. After every error the power is cut, the file system is mounted again, and all bytes
 * of successful flushes are compared (disk/scenario.ts).
 *
 * Device mapper's targets `error` and `flakey` would do the same, if a kernel has them; FUSE and
 * loop devices are more common, and let a test choose the writes that fail.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { FILE_SYSTEMS } from './disk/failing-disk.js';
import type { Counts, Group } from './group.js';
import type { Tool } from './tool.js';
import { run, withFolder } from './tools.js';

const INSIDE = fileURLToPath(new URL('./disk/inside.js', import.meta.url));
/** Time limit of all checks, on a busy machine. */
const SECONDS_MAX = 1800;

function fileSystemTool(name: string, aptPackage: string): Tool {
  const version = async (): Promise<string> => {
    const { stdout, stderr } = await run(name, ['-V']);
    return (stdout || stderr).trim().split('\n', 1)[0]!;
  };
  return { name, aptPackage, version };
}

/** Needs root: to mount, and to open /dev/fuse and loop devices. */
const mounts: Tool = {
  name: 'mounts, FUSE and loop devices',
  aptPackage: 'mount util-linux',
  version: async () => {
    await run('unshare', ['--mount', 'true']);
    const known = readFileSync('/proc/filesystems', 'utf8');
    if (!/\tfuse$/m.test(known)) throw new Error('this kernel has no FUSE: modprobe fuse');
    await run('losetup', ['--find']);
    return 'there';
  },
};

const tools = new Map(FILE_SYSTEMS.map(({ make: [name], aptPackage }) => [name, aptPackage]));

export const diskErrorsGroup: Group = {
  name: 'disk-errors',
  tools: [mounts, ...[...tools].map(([name, aptPackage]) => fileSystemTool(name, aptPackage))],
  async run(report) {
    const counts = await withFolder(async (folder) => {
      const words = ['--mount', '--propagation', 'private', process.execPath, INSIDE, folder];
      const child = spawn('unshare', words, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
      let told: Counts | undefined;
      child.on('message', (message) => (told = message as Counts));
      const timer = setTimeout(() => child.kill('SIGKILL'), SECONDS_MAX * 1000);
      const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
      clearTimeout(timer);
      if (told && code === 0) return told;
      throw new Error(`the process in the mount namespace ended with ${code ?? signal}`);
    });
    report.add(counts);
  },
};
