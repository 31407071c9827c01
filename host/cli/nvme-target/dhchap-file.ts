/**
 * The file of `nvme-target --dhchap-file`: a line for each host, `HOSTNQN SECRET` or
 * `HOSTNQN SECRET CONTROLLER-SECRET`, secrets as `nvme gen-dhchap-key` prints them.
 */
import type { DhchapSecrets } from '../../index.js';
import { MisuseError } from '../../errors/errors.js';
import { readPrivateFile } from '../base/private-file.js';

/** Rejects with MisuseError, which names the line and no secret; RefusalError EACCES, ENOENT. */
export async function readDhchapFile(path: string): Promise<Record<string, DhchapSecrets>> {
  const hosts: Record<string, DhchapSecrets> = {};
  const text = await readPrivateFile(path, 'secret');
  text.split('\n').forEach((line, index) => {
    const words = line.trim().split(/\s+/);
    const [nqn, secret, controllerSecret] = words;
    if (nqn === undefined || nqn === '' || nqn.startsWith('#')) return;
    const refuse = (rule: string): never => {
      throw new MisuseError('--dhchap-file', `${path}, line ${index + 1}: ${rule}`);
    };
    if (secret === undefined || words.length > 3) {
      return refuse('must be HOSTNQN SECRET, or HOSTNQN SECRET CONTROLLER-SECRET');
    }
    if (Object.hasOwn(hosts, nqn)) return refuse(`names ${nqn} twice`);
    hosts[nqn] = { secret, ...(controllerSecret !== undefined && { controllerSecret }) };
  });
  return hosts;
}
