/** `verbena/dgram` against plain UDP, UDP with acknowledgements in JavaScript, and SEND. */
import { execFileSync } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import dgram, { type Socket as RdpSocket } from '../../host/dgram/index.js';
import { root } from '../support/paths.js';
import { AcknowledgedUdp } from './acknowledged-udp.js';
import { flowFigures } from './flow.js';
import { atLeast, atMost, interleave, median, medianOf, medians } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Pace, Variant } from './harness.js';
import { MessagePair } from './messages.js';
import { startPartner, type OffloadReady, type OffloadWord } from './offload-partner.js';
import type { Partner } from './partner.js';
import { TripLog } from './trips.js';

const BURSTS = [100, 1500, 5000, 20_000];
const BLOCKED_MESSAGES = 3000;
const BLOCKED_MILLIS = 7000;
const FIRST_TRIALS = 40;
const [TRIPS, WARM_UP_TRIPS, SECONDS] = [3000, 20_000, 0.5];
const [SMALL, BLOCK] = [64, 8192];
const SETTLE_MILLIS = 100;

/** Ways from one process to the other: which side has RDP. */
const WAYS = [
  { name: 'plain', isOffloaded: false, isPeerOffloaded: false, here: 51, there: 52 },
  { name: 'peer_without', isOffloaded: true, isPeerOffloaded: false, here: 53, there: 54 },
  { name: 'peer_with', isOffloaded: true, isPeerOffloaded: true, here: 55, there: 56 },
] as const;

const addressOf = (host: number): string => `127.0.78.${host}`;

async function open(isOffloaded: boolean, address: string): Promise<Socket> {
  const socket = isOffloaded ? dgram.createSocket('udp4') : createSocket('udp4');
  socket.bind(0, address);
  await once(socket, 'listening');
  return socket;
}

async function ask(partner: Partner<OffloadReady>, word: OffloadWord): Promise<number> {
  partner.tell(word);
  return partner.next<number>();
}

/** Waits until no more datagrams arrive; returns their number. */
async function arrived(partner: Partner<OffloadReady>): Promise<number> {
  let before = -1;
  for (let count = await ask(partner, { word: 'count' }); count !== before;) {
    before = count;
    await sleep(SETTLE_MILLIS);
    count = await ask(partner, { word: 'count' });
  }
  return before;
}

/** Sends until datagrams go by RDP. */
async function warm(socket: Socket, port: number, address: string): Promise<void> {
  const { counters } = socket as RdpSocket;
  while (counters.rdpSent === 0) {
    socket.send('', port, address);
    await sleep(5);
  }
}

/** A pair of processes of one way. */
class Way {
  private constructor(
    readonly name: string,
    readonly socket: Socket,
    readonly partner: Partner<OffloadReady>,
    readonly address: string,
  ) {}

  static async open({ name, isOffloaded, isPeerOffloaded, here, there }: (typeof WAYS)[number]) {
    const address = addressOf(there);
    const task = { address, isOffloaded: isPeerOffloaded, answers: false };
    const partner = await startPartner(task);
    const socket = await open(isOffloaded, addressOf(here));
    if (isPeerOffloaded) await warm(socket, partner.ready.port, address);
    return new Way(name, socket, partner, address);
  }

  async burst(count: number): Promise<Figures> {
    const before = await arrived(this.partner);
    let errors = 0;
    for (let index = 0; index < count; index++) {
      this.socket.send(`${index}`, this.partner.ready.port, this.address, (error) => {
        if (error) errors++;
      });
    }
    await sleep(SETTLE_MILLIS);
    while (this.socket.getSendQueueCount() > 0) await sleep(5);
    const delivered = (await arrived(this.partner)) - before;
    return {
      [`burst_${count}_${this.name}_delivered`]: delivered,
      [`burst_${count}_${this.name}_errors`]: errors,
    };
  }

  /** The reader's thread computes for seconds. */
  async blocked(millis: number): Promise<Figures> {
    const before = await ask(this.partner, { word: 'block', millis });
    let failed = 0;
    for (let index = 0; index < BLOCKED_MESSAGES; index++) {
      this.socket.send(`${index}`, this.partner.ready.port, this.address, (error) => {
        if (error) failed++;
      });
      if (index % 5 === 4) await sleep((5 * millis) / BLOCKED_MESSAGES);
    }
    const delivered = (await arrived(this.partner)) - before;
    return {
      [`blocked_${this.name}_lost`]: BLOCKED_MESSAGES - delivered,
      [`blocked_${this.name}_failed`]: failed,
    };
  }

  async close(): Promise<void> {
    this.socket.close();
    this.partner.tell({ word: 'end' });
    await this.partner.ended();
  }
}

/** The peer of a first datagram: its port 4791 is silent, or it has RDP. */
type FirstPeer = 'silent' | 'peer_with';

/** The first datagram of a socket to a peer, and its answer. */
async function firstTrips(
  name: string,
  isOffloaded: boolean,
  peer: FirstPeer,
  count: number,
): Promise<Figures> {
  const isSilent = peer === 'silent';
  const task = { address: addressOf(58), isOffloaded: !isSilent, answers: true, isSilent };
  const partner = await startPartner(task);
  const micros: number[] = [];
  for (let trial = 0; trial < count; trial++) {
    const socket = await open(isOffloaded, addressOf(57));
    const since = performance.now();
    socket.send('question', partner.ready.port, addressOf(58));
    await once(socket, 'message');
    micros.push((performance.now() - since) * 1000);
    socket.close();
  }
  partner.tell({ word: 'end' } satisfies OffloadWord);
  await partner.ended();
  return { [`first_${peer}_${name}_p50_us`]: median(micros) };
}

/** Bytes to and fro between two sockets of this process at one address, one at a time. */
async function sameDevice(name: string, ends: SameEnds, count: number): Promise<Figures> {
  const micros: number[] = [];
  const cpu = process.cpuUsage();
  for (let trip = 0; trip < count; trip++) {
    const since = performance.now();
    await ends.trip();
    micros.push((performance.now() - since) * 1000);
  }
  const { user, system } = process.cpuUsage(cpu);
  return {
    [`same_${name}_p50_us`]: median(micros),
    [`same_${name}_cpu_us`]: (user + system) / count,
  };
}

interface SameEnds {
  trip(): Promise<void>;
  close(): void;
}

const SAME_ADDRESS = addressOf(59);

async function openSameOffload(): Promise<SameEnds> {
  const [one, other] = [await open(true, SAME_ADDRESS), await open(true, SAME_ADDRESS)];
  const [here, there] = [one.address().port, other.address().port];
  await warm(one, there, SAME_ADDRESS);
  await warm(other, here, SAME_ADDRESS);
  let done = (): void => {};
  const message = new Uint8Array(SMALL);
  other.on('message', (data) => {
    if (data.length > 0) other.send(data, here, SAME_ADDRESS);
  });
  one.on('message', (data) => {
    if (data.length > 0) done();
  });
  return {
    trip: () =>
      new Promise((resolve) => {
        done = resolve;
        one.send(message, there, SAME_ADDRESS);
      }),
    close: () => [one, other].forEach((socket) => socket.close()),
  };
}

async function openSameAcks(): Promise<SameEnds> {
  const [one, other] = [await open(false, SAME_ADDRESS), await open(false, SAME_ADDRESS)];
  one.connect(other.address().port, SAME_ADDRESS);
  other.connect(one.address().port, SAME_ADDRESS);
  await Promise.all([once(one, 'connect'), once(other, 'connect')]);
  const [here, there] = [new AcknowledgedUdp(one, 64), new AcknowledgedUdp(other, 64)];
  const message = new Uint8Array(SMALL);
  there.heard = (data) => void there.send(data);
  return {
    trip: () =>
      new Promise((resolve) => {
        here.heard = () => resolve();
        void here.send(message);
      }),
    close: () => [here, there].forEach((end) => end.close()),
  };
}

const STARTUP = `
const since = performance.now();
const socket = require('dgram').createSocket('udp4');
socket.bind(0, () => {
  const millis = performance.now() - since;
  setTimeout(() => {
    console.log(JSON.stringify([millis, process.memoryUsage().rss / 2 ** 20]));
    process.exit();
  }, 500);
});`;

/** A bound wildcard socket: time until it listens, and memory of its process. */
function startup(name: string, options: readonly string[]): Figures {
  const args = [...options, '-e', STARTUP];
  const said = execFileSync(process.execPath, args, { encoding: 'utf8' });
  const [millis, mib] = JSON.parse(said) as [number, number];
  return { [`bind_${name}_ms`]: millis, [`bind_${name}_mib`]: mib };
}

async function run(pace: Pace): Promise<BenchResult> {
  const log = new TripLog();
  const offload = fileURLToPath(new URL('build/package/offload.js', root));
  const ways: Way[] = [];
  const pairs: MessagePair[] = [];
  const variants: Variant[] = [
    () => startup('plain', []),
    () => startup('offload', ['--import', offload]),
    ...(['silent', 'peer_with'] as const).flatMap((peer) => [
      () => firstTrips('plain', false, peer, FIRST_TRIALS * pace.share),
      () => firstTrips('offload', true, peer, FIRST_TRIALS * pace.share),
    ]),
  ];
  let rounds: Figures[];
  let blocked: Figures = {};
  const same: SameEnds[] = [];
  try {
    for (const [name, openSame] of [
      ['offload', openSameOffload],
      ['acks', openSameAcks],
    ] as const) {
      const ends = await openSame();
      same.push(ends);
      await sameDevice(name, ends, WARM_UP_TRIPS * pace.share);
      variants.push(() => sameDevice(name, ends, TRIPS * pace.share));
    }
    for (const way of WAYS) ways.push(await Way.open(way));
    for (const count of BURSTS) for (const way of ways) variants.push(() => way.burst(count));
    for (const [name, way] of [
      ['offload', 'dgram'],
      ['acks', 'acks'],
      ['send', 'send'],
    ] as const) {
      const pair = await MessagePair.open(name, { way, progress: 'thread', bytesMax: BLOCK });
      pairs.push(pair);
      await pair.trips(SMALL, WARM_UP_TRIPS * pace.share);
      variants.push(
        async () => log.keep(`${name}_${SMALL}`, await pair.trips(SMALL, TRIPS * pace.share)),
        async () => flowFigures(`${name}_${BLOCK}`, await pair.flow(BLOCK, SECONDS * pace.share)),
      );
    }
    rounds = await interleave('dgram-offload', variants, pace);
    // Seconds each: once.
    for (const way of ways) {
      blocked = { ...blocked, ...(await way.blocked(BLOCKED_MILLIS * pace.share)) };
    }
  } finally {
    for (const ends of same) ends.close();
    for (const pair of pairs) await pair.close();
    for (const way of ways) await way.close();
  }
  const figures = { ...medians(rounds), ...blocked };
  return {
    rounds,
    counts: 'messages',
    figures,
    distributions: log.distributions,
    bars: barsOf(rounds, figures),
  };
}

function barsOf(rounds: readonly Figures[], figures: Figures): Bar[] {
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures) => figures[one]! / figures[other]!);
  const bursts = BURSTS.flatMap((count) =>
    ['peer_without', 'peer_with'].flatMap((name) => [
      atLeast(
        `burst of ${count}, ${name}: delivered against plain UDP`,
        ratio(`burst_${count}_${name}_delivered`, `burst_${count}_plain_delivered`),
        1,
      ),
      atMost(`burst of ${count}, ${name}: errors`, figures[`burst_${count}_${name}_errors`]!, 0),
    ]),
  );
  return [
    ...bursts,
    atMost(
      'first datagram to a silent peer against plain UDP, p50',
      ratio('first_silent_offload_p50_us', 'first_silent_plain_p50_us'),
      1.2,
    ),
    atMost(
      'first datagram to a peer with RDP against plain UDP, p50',
      ratio('first_peer_with_offload_p50_us', 'first_peer_with_plain_p50_us'),
      1.2,
    ),
    atMost(
      '64 B on one device against UDP with acknowledgements in JavaScript, p50',
      ratio('same_offload_p50_us', 'same_acks_p50_us'),
      0.5,
    ),
    atMost(
      'processor time of a message of 64 B on one device against the same',
      ratio('same_offload_cpu_us', 'same_acks_cpu_us'),
      0.5,
    ),
    atMost(
      '64 B to and fro against UDP with acknowledgements in JavaScript, p50',
      ratio('offload_64_p50_us', 'acks_64_p50_us'),
      1,
    ),
    atMost(
      'processor time of a message of 64 B against the same',
      ratio('offload_64_cpu_s_per_million', 'acks_64_cpu_s_per_million'),
      1,
    ),
    atLeast('8 KiB one way against SEND', ratio('offload_8192_mps', 'send_8192_mps'), 0.95),
    atMost('a reader that is blocked for 7 s: lost', figures['blocked_peer_with_lost']!, 0),
    atMost('a reader that is blocked for 7 s: failed', figures['blocked_peer_with_failed']!, 0),
    atLeast(
      'a reader without RDP that is blocked for 7 s: delivered against plain UDP',
      (BLOCKED_MESSAGES - figures['blocked_peer_without_lost']!) /
        (BLOCKED_MESSAGES - figures['blocked_plain_lost']!),
      1,
    ),
    atMost(
      'a reader without RDP that is blocked for 7 s: failed',
      figures['blocked_peer_without_failed']!,
      0,
    ),
    atMost('bind until listening against plain', ratio('bind_offload_ms', 'bind_plain_ms'), 2),
    atMost(
      'memory of a bound wildcard socket beyond plain, MiB',
      medianOf(rounds, (round) => round['bind_offload_mib']! - round['bind_plain_mib']!),
      8,
    ),
  ];
}

export const bench: Bench = {
  name: 'dgram-offload',
  description: 'verbena/dgram against plain UDP, UDP with acknowledgements, and SEND',
  run,
};
