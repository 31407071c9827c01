/**
 * `verbena pingpong [HOST]`: messages to and fro, as ibv_{rc,uc,ud,srq}_pingpong of rdma-core do and
 * with them: the options, the exchange over TCP and what is printed are theirs.
 */
import { Gid } from '../../link/endpoint.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { getDeviceList } from '../../verbs/queries/device-list.js';
import type { AuthOptions, Context } from '../../index.js';
import { ROCE_PORT } from '../../link/link.js';
import { openLocalDevice, type FaultPercents } from '../base/open-device.js';
import { faultsOf } from '../base/options.js';
import { askPeer, awaitPeer, type Destination, type PeerDestination } from './exchange.js';
import { PingpongSide, type PingpongSize, type Service } from './side.js';
import { readAuth, type PskOptions } from '../base/psk-file.js';
import { Exit, Interrupted, complain, printLine } from '../base/report.js';
import { addressBeside, resolveServer } from '../base/server-address.js';

export interface PingpongOptions extends FaultPercents, PskOptions {
  readonly rc?: boolean;
  readonly uc?: boolean;
  readonly ud?: boolean;
  readonly srq?: boolean;
  readonly port: number;
  readonly size?: number;
  readonly mtu: number;
  readonly numQp?: number;
  readonly rxDepth: number;
  readonly iters: number;
  readonly events?: boolean;
  readonly gidIdx?: number;
  readonly bind?: string;
  readonly chk?: boolean;
  readonly pcap?: string;
  readonly json?: boolean;
}

const MEMORY_BASE_BYTES = 16 * 2 ** 20;
/** ibv_srq_pingpong always exchanges this number of destinations, whatever `-q` says. */
const SRQ_DESTINATIONS = 256;
const SRQ_QPS = 16;
const SIZE = 4096;
const UD_SIZE = 2048;
const UNKNOWN: Destination = { qpn: 0, psn: 0, gid: new Gid(new Uint8Array(16)) };

export async function pingpong(
  host: string | undefined,
  options: PingpongOptions,
): Promise<number> {
  const size = sizeOf(options);
  const auth = await readAuth(options);
  const interrupt = new AbortController();
  const onSignal = (): void => interrupt.abort(new Interrupted('interrupted'));
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  const run = new Run(options, size, interrupt.signal, auth);
  try {
    const side = host === undefined ? await run.serve() : await run.call(host);
    const seconds = await side.run(host !== undefined, interrupt.signal);
    await side.linger();
    return await report(side, size, seconds, options);
  } catch (error) {
    throw interrupt.signal.aborted ? interrupt.signal.reason : error;
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    await run.close();
  }
}

/** From the start to the connected side. */
class Run {
  #context: Context | undefined;

  constructor(
    private readonly options: PingpongOptions,
    private readonly size: PingpongSize,
    private readonly signal: AbortSignal,
    private readonly auth: AuthOptions | undefined,
  ) {}

  async call(host: string): Promise<PingpongSide> {
    const server = await resolveServer({ host, port: this.options.port });
    const address = boundAddress(this.options) ?? (await addressBeside(server.host));
    const side = await this.#open(address);
    await this.#print('local address: ', side.destinations);
    const ours = this.#padded(side.destinations);
    await this.#connect(side, await askPeer(server, ours, this.signal, this.auth));
    return side;
  }

  async serve(): Promise<PingpongSide> {
    const address = boundAddress(this.options);
    let side = address === undefined ? undefined : await this.#open(address);
    const client = await awaitPeer(this.options.port, this.signal, async () => {
      if (side) await this.#print('local address: ', side.destinations);
    });
    const answer = async (peerDestination: PeerDestination, localAddress: string) => {
      // Not told which address is ours: the one that the client knows.
      const made = side ?? (await this.#open(localAddress));
      if (!side) await this.#print('local address: ', made.destinations);
      side = made;
      await this.#connect(made, peerDestination);
      return { ours: this.#padded(made.destinations), result: made };
    };
    return client.answer(this.#padded([]).length, answer, this.auth);
  }

  async close(): Promise<void> {
    await this.#context?.close();
  }

  async #open(address: string): Promise<PingpongSide> {
    const { pcap } = this.options;
    const memoryBytes = MEMORY_BASE_BYTES + 2 * this.size.size;
    this.#context = await openLocalDevice(
      {
        address,
        port: ROCE_PORT,
        faults: faultsOf(this.options),
        ...(pcap === undefined ? {} : { pcap }),
      },
      { memoryBytes },
    );
    const side = new PingpongSide(this.#context, this.size);
    if (this.options.chk) side.mark();
    return side;
  }

  async #connect(side: PingpongSide, { theirs, session }: PeerDestination): Promise<void> {
    const used = theirs.slice(0, this.size.numQp);
    side.connect(used, session);
    await this.#print('remote address:', used);
  }

  #padded(list: readonly Destination[]): readonly Destination[] {
    const count = this.size.service === 'srq' ? SRQ_DESTINATIONS : 1;
    return Array.from({ length: count }, (_, index) => list[index] ?? UNKNOWN);
  }

  async #print(label: string, list: readonly Destination[]): Promise<void> {
    if (this.options.json) return;
    const hex = (value: number): string => value.toString(16).padStart(6, '0');
    for (const { qpn, psn, gid } of list) {
      const text = gid.isIpv4 ? `::ffff:${gid}` : `${gid}`;
      await printLine(`  ${label} LID 0x0000, QPN 0x${hex(qpn)}, PSN 0x${hex(psn)}, GID ${text}`);
    }
  }
}

async function report(
  side: PingpongSide,
  { size, iters }: PingpongSize,
  seconds: number,
  { chk, json }: PingpongOptions,
): Promise<number> {
  const bytes = size * iters * 2;
  const microsPerIter = (seconds * 1e6) / iters;
  const megabits = (bytes * 8) / (seconds * 1e6);
  if (json) {
    await printLine(JSON.stringify({ bytes, iters, seconds, microsPerIter }));
  } else {
    const took = `in ${seconds.toFixed(2)} seconds`;
    await printLine(`${bytes} bytes ${took} = ${megabits.toFixed(2)} Mbit/sec`);
    await printLine(`${iters} iters ${took} = ${microsPerIter.toFixed(2)} usec/iter`);
  }
  if (!chk) return Exit.OK;
  const wrong = side.wrongPages();
  for (const page of wrong) complain('pingpong', `invalid data in page ${page}`);
  return wrong.length > 0 ? Exit.FAILED : Exit.OK;
}

function sizeOf(options: PingpongOptions): PingpongSize {
  const chosen = (['rc', 'uc', 'ud', 'srq'] as const).filter((name) => options[name]);
  if (chosen.length > 1)
    throw new MisuseError(`--${chosen[1]}`, `is not valid with --${chosen[0]}`);
  const service: Service = chosen[0] ?? 'rc';
  if (options.numQp !== undefined && service !== 'srq') {
    throw new MisuseError('--num-qp', 'is only valid with --srq');
  }
  if (service === 'ud' && options.pskFile !== undefined) {
    throw new MisuseError('--psk-file', 'is not valid with --ud: datagrams have no authentication');
  }
  const numQp = service === 'srq' ? (options.numQp ?? SRQ_QPS) : 1;
  if (options.rxDepth < numQp) {
    throw new MisuseError('--rx-depth', `must be at least the number of queue pairs, ${numQp}`);
  }
  return {
    service,
    size: options.size ?? (service === 'ud' ? UD_SIZE : SIZE),
    mtu: options.mtu,
    rxDepth: options.rxDepth,
    iters: options.iters,
    numQp,
    events: options.events ?? false,
  };
}

/** By `--bind`, or `-g`: an index in the list of this machine's addresses, IPv4 first. */
function boundAddress({ bind, gidIdx }: PingpongOptions): string | undefined {
  if (gidIdx === undefined) return bind;
  if (bind !== undefined) throw new MisuseError('--gid-idx', 'is not valid with --bind');
  const list = getDeviceList();
  const entry = list[gidIdx];
  if (entry) return entry.gid.toString();
  const known = list.map(({ gid }, index) => `${index}: ${gid}`).join(', ');
  throw new RefusalError('EINVAL', `--gid-idx: there is no GID ${gidIdx}; known: ${known}`);
}
