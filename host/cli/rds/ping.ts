/** `verbena rds-ping`: empty messages to port 0 of a node, ours or Linux, as rds-ping of rds-tools. */
import { setTimeout as sleep } from 'node:timers/promises';
import { timerMillis } from '../../base/timer.js';
import * as rds from '../../rds/index.js';
import { RefusalError } from '../../errors/errors.js';
import { openDevice } from '../../verbs/open-device.js';
import { lookUp } from '../../cm/address-info.js';
import { authOption, nodeRefusal, readAuth, type PskOptions } from '../base/psk-file.js';
import { Exit, printLine } from '../base/report.js';
import { addressBeside } from '../base/server-address.js';

export interface RdsPingOptions extends PskOptions {
  readonly count?: number;
  /** Seconds between pings. */
  readonly interval: number;
  /** Our address. Default: the one that the system would send from. */
  readonly bind?: string;
  readonly udpPort: number;
  readonly peerUdpPort: number;
  readonly json?: boolean;
}

/** A ping that takes longer has no answer. */
const ANSWER_MILLIS = 2000;

export async function rdsPing(host: string, options: RdsPingOptions): Promise<number> {
  const address = await lookUp(host);
  const auth = await readAuth(options);
  const local = options.bind ?? (await addressBeside(address));
  const context = await openDevice({ address: local, port: options.udpPort });
  try {
    rds.RdsNode.of(context, authOption(auth));
    const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
    socket.bind({ port: 0 });
    const to = { address, port: 0, udpPort: options.peerUdpPort };
    let answers = 0;
    const { count = Infinity, interval, json } = options;
    const tell = (number: number, micros: number | null): Promise<void> => {
      const answer = micros === null ? 'no answer' : `${micros} usec`;
      const line = `${`${number}`.padStart(4)}: ${answer}`;
      return printLine(json ? JSON.stringify({ host, number, micros }) : line);
    };
    for (let number = 1; number <= count; number++) {
      if (number > 1) await sleep(timerMillis(interval * 1000));
      // A late answer belongs to an earlier ping.
      while (socket.revents & rds.PollEvent.IN) socket.recvmsg([]);
      const started = performance.now();
      await sendPing(socket, to);
      if ((await socket.poll(rds.PollEvent.IN, ANSWER_MILLIS)) === 0) {
        await tell(number, null);
        continue;
      }
      socket.recvmsg([]);
      const micros = Math.round((performance.now() - started) * 1000);
      await tell(number, micros);
      answers++;
    }
    socket.close();
    return answers === count ? Exit.OK : Exit.FAILED;
  } finally {
    await context.close();
  }
}

async function sendPing(socket: rds.RdsSocket, to: rds.RdsAddress): Promise<void> {
  try {
    await socket.send(to);
  } catch (error) {
    if (!(error instanceof RefusalError)) throw error;
    if (error.code === 'EACCES') throw nodeRefusal(to.address, error);
    if (error.code !== 'EFAULT') throw error;
    throw new RefusalError('EFAULT', `no RDS node answers at ${to.address}: start one there`);
  }
}
