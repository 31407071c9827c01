/**
 * `verbena rds-stress`: messages between the tasks of two sides. Options and columns have the names
 * of rds-tools' rds-stress; the protocol is different: both sides first exchange JSON over TCP.
 */
import { once } from 'node:events';
import { createConnection, createServer, type Socket } from 'node:net';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { timerMillis } from '../../base/timer.js';
import type { Context } from '../../index.js';
import * as rds from '../../rds/index.js';
import { RefusalError } from '../../errors/errors.js';
import { openDevice } from '../../verbs/open-device.js';
import { lookUp } from '../../cm/address-info.js';
import { connectRefusal, listenRefusal } from '../../link/tcp-refusal.js';
import { publishNode } from '../../rds/info-server.js';
import { STRESS_BYTES_MIN, STRESS_DEPTH_MAX, STRESS_TASKS_MAX } from '../base/limits.js';
import { authOption, readAuth, type PskOptions } from '../base/psk-file.js';
import { Exit, printLine } from '../base/report.js';
import { addressBeside, formatServerAddress } from '../base/server-address.js';
import { StressTask, noCounts, type StressCounts } from './stress-task.js';

export interface RdsStressOptions extends PskOptions {
  readonly port: number;
  readonly recvAddr?: string;
  readonly sendAddr?: string;
  readonly reqBytes: number;
  readonly ackBytes: number;
  readonly depth: number;
  readonly tasks: number;
  readonly time?: number;
  readonly oneWay?: boolean;
  readonly verify?: boolean;
  readonly reportCpu?: boolean;
  readonly reportSummary?: boolean;
  readonly connectRetries: number;
  readonly udpPort: number;
  readonly json?: boolean;
}

/** Parameters that the active side sends to the passive one; both use them. */
interface Agreement {
  readonly verbenaRdsStress: 1;
  readonly port: number;
  readonly udpPort: number;
  readonly reqBytes: number;
  readonly ackBytes: number;
  readonly depth: number;
  readonly tasks: number;
  readonly oneWay: boolean;
  readonly verify: boolean;
}

const LINE_BYTES_MAX = 1024;
const SECOND_MILLIS = 1000;
/** For the other side's next word. */
const TIMEOUT_MILLIS = 20_000;
/** A client that has sent nothing after this time waits for a greeting. */
const QUIET_MILLIS = 200;
const OTHER_KIND =
  'the peer does not speak the protocol of "verbena rds-stress" (rds-tools have another): start verbena there';
const TITLE = 'tsks   tx/s   rx/s  tx+rx K/s    mbi K/s    mbo K/s tx us/c   rtt us cpu %';

export async function rdsStress(options: RdsStressOptions): Promise<number> {
  const isActive = options.sendAddr !== undefined;
  const auth = await readAuth(options);
  const control = isActive ? await connectTo(options) : await waitFor(options);
  control.setNoDelay(true);
  const lines = new Lines(control);
  const local = plainAddress(options.recvAddr ?? control.localAddress!);
  const context = await openDevice({ address: local, port: options.udpPort }).catch((error) => {
    // A silent peer keeps the connection, and so this process, open.
    control.destroy();
    throw error;
  });
  try {
    publishNode(rds.RdsNode.of(context, authOption(auth)));
    const { reqBytes, ackBytes, depth, tasks, port } = options;
    const udpPort = context.local.port;
    const ours: Agreement = {
      verbenaRdsStress: 1,
      ...{ port, udpPort, reqBytes, ackBytes, depth, tasks },
      oneWay: options.oneWay ?? false,
      verify: options.verify ?? false,
    };
    if (isActive) await lines.next();
    else await lines.greet();
    let agreed = ours;
    if (!isActive) agreed = checkAgreement(await lines.next());
    const stress = new Stress(context, options, agreed, isActive);
    control.write(`${JSON.stringify(ours)}\n`);
    const theirs = isActive ? checkAgreement(await lines.next()) : agreed;
    stress.bind(plainAddress(control.remoteAddress!), theirs);
    // Both have their sockets before either side sends.
    control.write('"ready"\n');
    await lines.next();
    await stress.run(lines.ended);
    return Exit.OK;
  } finally {
    control.destroy();
    await context.close();
  }
}

class Stress {
  readonly #options: RdsStressOptions;
  readonly #agreed: Agreement;
  readonly #isActive: boolean;
  readonly #sockets: rds.RdsSocket[];
  #tasks: StressTask[] = [];

  constructor(context: Context, options: RdsStressOptions, agreed: Agreement, isActive: boolean) {
    this.#options = options;
    this.#agreed = agreed;
    this.#isActive = isActive;
    this.#sockets = Array.from({ length: agreed.tasks }, (_, index) => {
      const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
      socket.bind({ port: options.port + 1 + index });
      return socket;
    });
  }

  bind(address: string, { port, udpPort }: Agreement): void {
    const { tasks, reqBytes, ackBytes, depth, oneWay, verify } = this.#agreed;
    const peers = Array.from({ length: tasks }, (_, index) => {
      return { address, port: port + 1 + index, udpPort };
    });
    const asks = this.#isActive || !oneWay;
    const plan = { requestBytes: reqBytes, ackBytes, depth, asks, verify };
    this.#tasks = this.#sockets.map((socket) => new StressTask(socket, peers, plan));
  }

  async run(ended: Promise<void>): Promise<void> {
    const { time = Infinity, reportSummary = false, json = false } = this.#options;
    if (!json) {
      await printLine('Starting up....');
      await printLine(TITLE);
    }
    for (const task of this.#tasks) task.start();
    const total = noCounts();
    const begun = performance.now();
    const cpu = process.cpuUsage();
    let isOver = false;
    void ended.then(() => (isOver = true));
    for (let turn = 0; turn < time && !isOver; turn++) {
      const [before, used] = [performance.now(), process.cpuUsage()];
      // Whole seconds since the beginning: what was late is not added up.
      const left = begun + (turn + 1) * SECOND_MILLIS - before;
      await Promise.race([sleep(timerMillis(left)), ended]);
      const counts = this.#take();
      add(total, counts);
      const { trouble } = this.#tasks.find((task) => task.trouble !== undefined) ?? {};
      // Different keys end both sides. Other errors are expected when the other side ends first.
      if (trouble && (!isOver || trouble.code === 'EACCES')) throw trouble;
      if (!reportSummary) await this.#print(counts, performance.now() - before, used, '');
    }
    if (!this.#isActive && time === Infinity) return;
    if (!json) await printLine('---------------------------------------------');
    await this.#print(total, performance.now() - begun, cpu, '  (average)');
  }

  #take(): StressCounts {
    const sum = noCounts();
    for (const task of this.#tasks) add(sum, task.takeCounts());
    return sum;
  }

  async #print(
    counts: StressCounts,
    millis: number,
    cpu: NodeJS.CpuUsage,
    note: string,
  ): Promise<void> {
    const seconds = millis / SECOND_MILLIS;
    const { user, system } = process.cpuUsage(cpu);
    const isReported = this.#options.reportCpu === true;
    const row = {
      tasks: this.#tasks.length,
      txPerSecond: Math.round(counts.sent / seconds),
      rxPerSecond: Math.round(counts.received / seconds),
      kibPerSecond: counts.bytes / 1024 / seconds,
      sendMicros: counts.callMicros / Math.max(counts.sent, 1),
      rttMicros: counts.rttMicros / Math.max(counts.answers, 1),
      cpuPercent: isReported ? (user + system) / millis / 10 / availableParallelism() : -1,
    };
    if (this.#options.json) {
      await printLine(JSON.stringify({ ...row, isAverage: note !== '' }));
      return;
    }
    const whole = (value: number, width: number) => `${value}`.padStart(width);
    const part = (value: number, width: number) => value.toFixed(2).padStart(width);
    const columns = [
      whole(row.tasks, 4),
      whole(row.txPerSecond, 6),
      whole(row.rxPerSecond, 6),
      part(row.kibPerSecond, 10),
      part(0, 10),
      part(0, 10),
      part(row.sendMicros, 7),
      part(row.rttMicros, 8),
      part(row.cpuPercent, 5),
    ];
    await printLine(columns.join(' ') + note);
  }
}

/** JSON values of a connection, one a line. */
class Lines {
  readonly ended: Promise<void>;
  readonly #socket: Socket;
  #text = '';

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8');
    socket.on('error', () => {});
    socket.on('data', (text: string) => {
      this.#text += text;
      if (this.#text.length > LINE_BYTES_MAX) socket.destroy();
    });
    this.ended = once(socket, 'close').then(() => {});
  }

  /**
   * The passive side sends first, and the active side waits. In rds-tools' rds-stress the active
   * side sends first, and reads any answer as its own options. So this side sends nothing to it.
   * Throws RefusalError EPROTO.
   */
  async greet(): Promise<void> {
    const came = once(this.#socket, 'data').catch(() => {});
    await Promise.race([came, sleep(QUIET_MILLIS), this.ended]);
    if (this.#text !== '') throw new RefusalError('EPROTO', OTHER_KIND);
    this.#socket.write('"verbena rds-stress"\n');
  }

  /** Throws RefusalError ECONNRESET, EPROTO, ETIMEDOUT. */
  async next(): Promise<unknown> {
    let isLate = false;
    const late = setTimeout(() => {
      isLate = true;
      this.#socket.destroy();
    }, TIMEOUT_MILLIS);
    try {
      return await this.#next();
    } catch (error) {
      if (!isLate) throw error;
      const sentence = `no message from the peer for ${TIMEOUT_MILLIS / SECOND_MILLIS} s; check that it runs`;
      throw new RefusalError('ETIMEDOUT', sentence, { cause: error });
    } finally {
      clearTimeout(late);
    }
  }

  async #next(): Promise<unknown> {
    for (;;) {
      const at = this.#text.indexOf('\n');
      if (at >= 0) {
        const line = this.#text.slice(0, at);
        this.#text = this.#text.slice(at + 1);
        try {
          return JSON.parse(line) as unknown;
        } catch {
          throw new RefusalError('EPROTO', OTHER_KIND);
        }
      }
      if (this.#socket.destroyed || this.#socket.readableEnded) {
        throw new RefusalError('ECONNRESET', 'the peer closed the connection; see its error line');
      }
      await Promise.race([once(this.#socket, 'data'), this.ended]);
    }
  }
}

function checkAgreement(value: unknown): Agreement {
  const found = value as Partial<Agreement> | null;
  const isWhole = (number: unknown, least: number, most: number): boolean =>
    Number.isInteger(number) && Number(number) >= least && Number(number) <= most;
  const isRight =
    found?.verbenaRdsStress === 1 &&
    isWhole(found.port, 1, 65535 - STRESS_TASKS_MAX) &&
    isWhole(found.udpPort, 1, 65535) &&
    isWhole(found.reqBytes, STRESS_BYTES_MIN, 1 << 20) &&
    isWhole(found.ackBytes, STRESS_BYTES_MIN, 1 << 20) &&
    isWhole(found.depth, 1, STRESS_DEPTH_MAX) &&
    isWhole(found.tasks, 1, STRESS_TASKS_MAX) &&
    typeof found.oneWay === 'boolean' &&
    typeof found.verify === 'boolean';
  if (!isRight)
    throw new RefusalError(
      'EPROTO',
      'the peer requests invalid parameters; check that both sides run the same version',
    );
  return found as Agreement;
}

async function waitFor({ recvAddr, port, json }: RdsStressOptions): Promise<Socket> {
  const server = createServer({ pauseOnConnect: true });
  server.listen({ port, exclusive: true, ...(recvAddr === undefined ? {} : { host: recvAddr }) });
  await once(server, 'listening').catch((error: unknown) => {
    throw listenRefusal(error, { address: recvAddr, port, option: '-p' });
  });
  if (!json) await printLine(`waiting for incoming connection on ${recvAddr ?? '*'}:${port}`);
  const [socket] = (await once(server, 'connection')) as [Socket];
  server.close();
  socket.resume();
  return socket;
}

async function connectTo(options: RdsStressOptions): Promise<Socket> {
  const { sendAddr, recvAddr, port, connectRetries } = options;
  const host = await lookUp(sendAddr!);
  const localAddress = recvAddr ?? (await addressBeside(host));
  for (let attempt = 0; ; attempt++) {
    const socket = createConnection({ host, port, localAddress });
    try {
      await once(socket, 'connect');
      return socket;
    } catch (error) {
      const place = formatServerAddress({ host: sendAddr!, port });
      const refusal = connectRefusal(error, place, 'verbena rds-stress');
      if (attempt >= connectRetries) throw refusal;
      await sleep(SECOND_MILLIS);
    }
  }
}

function plainAddress(address: string): string {
  return address.replace(/^::ffff:/, '');
}

function add(sum: StressCounts, counts: StressCounts): void {
  for (const name of Object.keys(sum) as (keyof StressCounts)[]) sum[name] += counts[name];
}
