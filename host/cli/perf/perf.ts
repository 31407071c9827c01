/**
 * `verbena perf`: bandwidth and latency of WRITE, READ, SEND and atomics between two sides, as
 * perftest measures them (man ib_write_bw), and with perftest's programs on the other side.
 */
import type { AuthOptions, Context, EventChannel, RdmaListener } from '../../index.js';
import { LinkError, MisuseError, RefusalError } from '../../errors/errors.js';
import { listen } from '../../cm/connect.js';
import { openDevice } from '../../verbs/open-device.js';
import { localAddressTowards } from '../../link/interface.js';
import { ROCE_PORT } from '../../link/link.js';
import { warnOfOtherPort } from '../../link/udp/other-port.js';
import { CmControl, TcpControl, acceptTcp, type PerfControl } from './control.js';
import { planOf, type PerfOptions, type PerfPlan, type PerfServer } from './options.js';
import type { PerfTest, PerfVerb } from './options.js';
import { listenForDatagrams, memoryOf } from './path.js';
import { PerfSession, type SessionOptions } from './session.js';
import { authOption, readAuth } from '../base/psk-file.js';
import { Exit, Interrupted, complain, printLine } from '../base/report.js';
import {
  addressBeside,
  formatServerAddress,
  resolveServer,
  type ServerAddress,
} from '../base/server-address.js';

const LOOPBACK = '127.0.0.1';

export async function perf(
  verb: PerfVerb,
  test: PerfTest,
  host: string | undefined,
  options: PerfOptions,
): Promise<number> {
  const plan = planOf(verb, test, options);
  const auth = await readAuth(options);
  const interrupt = new AbortController();
  const run = new Run(plan, options, interrupt.signal, auth);
  const onSignal = (): void => {
    interrupt.abort(new Interrupted('interrupted'));
    void run.close();
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    await (host === undefined ? run.serve() : run.call(host));
    return Exit.OK;
  } catch (error) {
    throw interrupt.signal.aborted ? interrupt.signal.reason : error;
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    await run.close();
  }
}

/** From the command line to two sides that know each other. */
class Run {
  #context: Context | undefined;

  constructor(
    private readonly plan: PerfPlan,
    private readonly options: PerfOptions,
    private readonly signal: AbortSignal,
    private readonly auth: AuthOptions | undefined,
  ) {}

  async call(host: string): Promise<void> {
    const { port, peerUdpPort: udpPort, bind, exchange } = this.options;
    const server = await resolveServer({ host, port });
    // Only the connection manager announces this side's UDP port.
    const towards = exchange === 'cm' ? localAddressTowards : addressBeside;
    const address = bind ?? (await towards(server.host));
    const context = await this.#openClient(address, server.host);
    const auth = authOption(this.auth);
    const control =
      exchange === 'cm'
        ? await CmControl.connect(server, { context, udpPort, ...auth })
        : await this.#callTcp(server, address);
    await this.#measure(control, { server: { address: server.host, port, udpPort, ...auth } });
  }

  async #callTcp(server: ServerAddress, address: string): Promise<TcpControl> {
    const control = await TcpControl.connect(server, this.signal, undefined, address);
    await this.#agree(control);
    return control;
  }

  async #agree(control: TcpControl): Promise<void> {
    try {
      if (this.auth) await control.agree(this.auth);
    } catch (error) {
      await control.close();
      throw error;
    }
  }

  async serve(): Promise<void> {
    if (this.options.exchange === 'tcp') return this.#serveTcp();
    const { port, bind: address = LOOPBACK, udpPort = ROCE_PORT } = this.options;
    const context = await this.#open(address, udpPort);
    const listener = await listen({ address, port }, { context, ...authOption(this.auth) });
    const datagrams =
      this.plan.connection === 'UD' ? listenForDatagrams(context, address, port) : undefined;
    await this.#waiting({ host: address, port });
    const request = await listener.getRequest({ signal: this.signal });
    if (!request)
      throw (
        this.signal.reason ?? new RefusalError('EIO', 'the device was closed; see the first error')
      );
    const peer = request.peer.address;
    await this.#measure(await CmControl.accept(request), { listener, datagrams, peer });
  }

  async #serveTcp(): Promise<void> {
    const { port, bind, udpPort = ROCE_PORT } = this.options;
    // Without --bind the device uses the address to which the client connects.
    if (bind !== undefined) await this.#open(bind, udpPort);
    // perftest speaks TCP over IPv4, whatever the packets are.
    const place = bind?.includes(':') ? undefined : bind;
    const waiting = (): Promise<void> => this.#waiting({ host: bind ?? '0.0.0.0', port });
    const socket = await acceptTcp(place, port, this.signal, waiting);
    const control = new TcpControl(socket, false);
    await this.#agree(control);
    if (!this.#context) {
      await this.#open((socket.localAddress ?? LOOPBACK).replace(/^::ffff:/, ''), udpPort);
    }
    await this.#measure(control, {});
  }

  async close(): Promise<void> {
    await this.#context?.close();
  }

  async #measure(control: PerfControl, way: Partial<Way>): Promise<void> {
    const session = new PerfSession({
      context: this.#context!,
      control,
      plan: this.plan,
      options: this.options,
      signal: this.signal,
      say: async (line) => {
        if (!this.options.json) await printLine(line);
      },
      complain: (line) => complain('perf', line),
      ...way,
    } satisfies SessionOptions);
    try {
      const result = await session.run();
      if (this.options.json) await printLine(JSON.stringify(result));
      await session.end();
    } finally {
      control.abandon();
    }
  }

  /** Whose device works only when it is polled polls it while nothing is measured, too. */
  #keepPolled({ device }: Context): void {
    const turn = (): void => {
      if (device.closed) return;
      device.poll();
      setImmediate(turn);
    };
    if (device.polled) turn();
  }

  async #waiting({ host, port }: ServerAddress): Promise<void> {
    if (this.options.json)
      return complain('perf', `waiting at ${formatServerAddress({ host, port })}`);
    const where = this.#context ? `, UDP port ${this.#context.local.port}` : '';
    const line = `* Waiting for client to connect at ${formatServerAddress({ host, port })}${where} *`;
    const stars = '*'.repeat(line.length);
    for (const text of ['', stars, line, stars]) await printLine(text);
  }

  /** Opens a device at port 4791 if it is free: then the peer needs no other port number. */
  async #openClient(address: string, server: string): Promise<Context> {
    const { udpPort } = this.options;
    try {
      return await this.#open(address, udpPort ?? ROCE_PORT);
    } catch (error) {
      const isTaken = error instanceof LinkError && error.code === 'EADDRINUSE';
      if (!isTaken || udpPort !== undefined) throw error;
      const context = await this.#open(address, 0);
      await warnOfOtherPort(context.local, server);
      return context;
    }
  }

  async #open(address: string, port: number): Promise<Context> {
    const { progress, dscp } = this.options;
    const memoryBytes = memoryOf(this.plan);
    if (memoryBytes > 2 ** 32 - 2 ** 20) {
      throw new MisuseError(
        '--size',
        `with --qp and the depths requires ${memoryBytes} bytes; the limit is 2^32`,
      );
    }
    this.#context = await openDevice({
      address,
      port,
      dscp,
      memoryBytes: Math.ceil(memoryBytes / 65536) * 65536,
      queuePairsMax: this.plan.qps + 8,
      rdAtomicMax: 2 ** Math.ceil(Math.log2(Math.max(16, this.plan.outs))),
      ...(progress === undefined ? {} : { progress }),
    });
    // Interrupted meanwhile: there was no context to close yet.
    this.signal.throwIfAborted();
    this.#keepPolled(this.#context);
    return this.#context;
  }
}

interface Way {
  readonly server: PerfServer;
  readonly listener: RdmaListener;
  readonly datagrams: EventChannel | undefined;
  readonly peer: string;
}
