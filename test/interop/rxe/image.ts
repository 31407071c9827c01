/** The guest's kernel and files: made once by build-guest.sh, kept outside of the checkout. */
import { homedir } from 'node:os';
import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { root } from '../../support/paths.js';
import type { Tool } from '../tool.js';
import { run } from '../tools.js';

const CACHE = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
/** Of Debian packages: 40 MB to fetch, 250 MB when it is unpacked. */
export const IMAGE = join(CACHE, 'verbena', 'rxe-guest');
const SCRIPT = fileURLToPath(new URL('test/interop/rxe/build-guest.sh', root));
const BUILD_SECONDS = 600;

/** Makes the image where it is missing or old. */
const guestImage: Tool = {
  name: 'guest image',
  aptPackage: 'cpio xz-utils kmod',
  version: async () => {
    await run('bash', [SCRIPT, IMAGE], BUILD_SECONDS);
    return `${IMAGE} (${readFileSync(join(IMAGE, 'key'), 'latin1').slice(0, 12)})`;
  },
};

function program(name: string, aptPackage: string, command: readonly [string, ...string[]]): Tool {
  const [file, ...args] = command;
  const version = async (): Promise<string> => {
    const { stdout, stderr } = await run(file, args);
    return (stdout || stderr).split('\n', 1)[0]!;
  };
  return { name, aptPackage, version };
}

/** Tools of every group that has guests. */
export const guestTools: readonly Tool[] = [
  program('qemu', 'qemu-system-x86', ['qemu-system-x86_64', '--version']),
  program('gcc', 'gcc libc6-dev', ['gcc', '--version']),
  program('ip', 'iproute2', ['ip', '-V']),
  program('nft', 'nftables', ['nft', '--version']),
  program('setpriv', 'util-linux', ['setpriv', '--version']),
  guestImage,
];

/** Tool of groups that make disks for a guest. */
export const diskTool: Tool = program('mke2fs', 'e2fsprogs', ['mke2fs', '-V']);
