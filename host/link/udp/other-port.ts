/**
 * Warns about a device with another UDP port than 4791, because port 4791 of its address is taken.
 * Verbena peers answer to that port. Linux and RoCE cards send every packet to port 4791 (IBA annex
 * A17.4.3): their answers reach the process that holds port 4791, and the connection times out.
 */
import { warn } from '../../base/warning.js';
import { Endpoint, Gid } from '../endpoint.js';
import { isOurs } from '../interface.js';
import { ROCE_PORT } from '../link.js';
import { describeHolder } from './port-holder.js';

/** Addresses with a warning: one warning per address and process. */
const reported = new Set<string>();

/**
 * UDP port of a device that connects to `target`. Linux and RoCE cards answer to 4791 only. A peer
 * on this machine runs Verbena and answers to any port: 4791 is left to servers, whose clients look
 * for them there after a restart.
 */
export function portTowards(target: string): number {
  return isOurs(Gid.parse(target)) ? 0 : ROCE_PORT;
}

/**
 * Prints the warning, unless `target` is an address of this machine: that peer runs Verbena.
 */
export async function warnOfOtherPort({ gid, port }: Endpoint, target: string): Promise<void> {
  if (port === ROCE_PORT || reported.has(`${gid}`) || isOurs(Gid.parse(target))) return;
  reported.add(`${gid}`);
  warn(await otherPortSentence(gid, port));
}

/** `port`: the device's port; undefined: the device is not open yet. */
export async function otherPortSentence(gid: Gid, port?: number): Promise<string> {
  const holder = await describeHolder(gid, ROCE_PORT);
  const has =
    port === undefined
      ? 'a device there gets another port'
      : `the device at ${gid} has port ${port} instead`;
  return (
    `UDP port ${ROCE_PORT} of ${gid} is ${holder}, so ${has}: peers that run Verbena answer ` +
    `there, Linux and RoCE cards always send to port ${ROCE_PORT}, so connections with them time ` +
    `out. Take another address of this machine (device.address, --bind), share one device ` +
    `between the processes (name), or end that process`
  );
}
