/** Linux's list of mounts (/proc/self/mountinfo, proc(5)), and the meaning of mount options. */

export interface Mount {
  readonly id: number;
  /**
   * Position in the list. A later mount has a higher position; a new mount namespace lists its
   * copies by depth.
   */
  readonly order: number;
  /** Device of the file system: MAJOR:MINOR, as in /sys/dev/block. */
  readonly device: string;
  readonly fileSystem: string;
  /** The mounted source: a device's path, or any other text. */
  readonly source: string;
  /** Options of the mount and of its file system: `rw`, `dax=always`, `upperdir=/a`. */
  readonly options: readonly string[];
}

/** Finds a mount by its id. */
export function mountIn(mountinfo: string, id: number): Mount | undefined {
  const lines = mountinfo.split('\n');
  const order = lines.findIndex((text) => text.startsWith(`${id} `));
  const [mount = '', rest = ''] = lines[order]?.split(' - ') ?? [];
  const [, , device = '', , , flags = ''] = mount.split(' ');
  const [fileSystem = '', source = '', superOptions = ''] = rest.split(' ');
  if (fileSystem === '') return undefined;
  const options = [...flags.split(','), ...superOptions.split(',')].map(unescaped);
  return { id, order, device, fileSystem, source: unescaped(source), options };
}

/** Decodes spaces, commas and backslashes, which mountinfo writes in octal. */
function unescaped(text: string): string {
  const bytes = text.replace(/\\([0-7]{3})/g, (_, octal: string) =>
    String.fromCharCode(parseInt(octal, 8)),
  );
  return Buffer.from(bytes, 'latin1').toString('utf8');
}

/** Value of the option `name=value`. */
export function optionOf({ options }: Mount, name: string): string | undefined {
  return options.find((option) => option.startsWith(`${name}=`))?.slice(name.length + 1);
}

/** Options with which a file system never flushes the write cache of its device. */
const NO_BARRIER = new Set(['nobarrier', 'barrier=0', 'barrier=none', 'fsync_mode=nobarrier']);

export function barrierOption({ options }: Mount): string | undefined {
  return options.find((option) => NO_BARRIER.has(option));
}

export function isDax({ options }: Mount): boolean {
  return options.some((option) => option === 'dax' || option === 'dax=always');
}

/** File systems in the kernel's memory. */
export const MEMORY = new Set(['tmpfs', 'ramfs', 'devtmpfs', 'hugetlbfs', 'rootfs']);

/** File systems on block devices of this machine. */
export const ON_DEVICES = new Set([
  ...['ext2', 'ext3', 'ext4', 'xfs', 'btrfs', 'f2fs', 'jfs', 'reiserfs', 'nilfs2', 'bcachefs'],
  ...['vfat', 'exfat', 'msdos', 'ntfs3', 'hfsplus', 'udf', 'gfs2', 'ocfs2', 'minix', 'ufs'],
]);

/** Network file systems: another machine decides what a sync does. */
export const NETWORK = new Set([
  ...['nfs', 'nfs4', 'cifs', 'smb3', 'smbfs', 'ceph', 'afs', 'coda', '9p', 'virtiofs', 'lustre'],
  ...['glusterfs', 'beegfs', 'orangefs', 'gpfs', 'vboxsf', 'prl_fs', 'vmhgfs'],
]);

export function isFuse(fileSystem: string): boolean {
  return /^fuse(blk|ctl)?(\.|$)/.test(fileSystem);
}

/**
 * File systems that write a changed block to a new place (copy on write): every write needs free
 * space, and a write to a mapping without free space ends the process (SIGBUS).
 */
export const COPIES_ON_WRITE = new Set(['btrfs', 'zfs', 'bcachefs', 'nilfs2']);
