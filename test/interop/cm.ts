/** Our connection manager with Linux's: rping, ours and rdma-core's, and its other examples. */
import assert from 'node:assert/strict';
import { pingMessage } from '../../host/cli/rping.js';
import type { Program } from '../support/processes.js';
import type { GuestGroup, Report } from './group.js';
import { cmListening, withMtu } from './rxe/cm-peer.js';
import {
  SERVER_PORT,
  UDADDY_PORT,
  askRdmaServer,
  askUcmatose,
  askUdaddy,
  serveRdmaServer,
  serveUcmatose,
  serveUdaddy,
  withDevice,
  type Exchange,
  type Half,
} from './rxe/cm-programs.js';
import { NETWORK_MTU, type GuestProgram } from './rxe/guest.js';
import { disagreements, firstOf, losses, many } from './rxe/handshakes.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';

interface Game {
  readonly isIpv6: boolean;
  readonly weServe: boolean;
  readonly size: number;
  readonly count: number;
  /** Every message is printed, and all that is printed is looked at. */
  readonly verbose?: boolean;
}

const RPING_PORT = 7174;
const SECONDS_MAX = 60;

/**
 * rping prints to two streams, so standard error is shown behind the turns, if it fails. When all
 * turns are done, one of its threads may read from the channel that another one has destroyed.
 */
const AT_ITS_END = `{
  code=$?
  expected='DISCONNECT EVENT\\|rdma_get_cm_event: Bad file descriptor'
  grep -q 'Bad file' /tmp/rping && ! grep -qv "$expected" /tmp/rping || { cat /tmp/rping; exit $code; }
}`;

/** Output of rping for `count` turns, `prefix` before each. */
function transcript(prefix: string, { size, count }: Game): string {
  const lines = Array.from({ length: count }, (_, turn) => {
    const text = Buffer.from(pingMessage(turn, size).subarray(0, -1)).toString('latin1');
    return `${prefix}ping data: ${text}\n`;
  });
  return lines.join('');
}

/** The turns among what a program says otherwise. */
function turnsOf(output: string): string {
  return output
    .split('\n')
    .filter((line) => line.includes('ping data: '))
    .map((line) => `${line}\n`)
    .join('');
}

async function playRping(lab: Lab, game: Game): Promise<string> {
  const { isIpv6, weServe, size, count, verbose } = game;
  const { guest } = lab;
  const server = weServe ? lab : guest;
  const words = ['-a', isIpv6 ? server.ipv6 : server.ipv4, '-S', size, ...(verbose ? ['-v'] : [])];
  const asServer = ['rping', '-s', ...words];
  const asClient = ['rping', '-c', ...words, '-C', count, '-V'];
  const startLinux = (command: readonly (string | number)[]): GuestProgram =>
    guest.spawn(`${command.join(' ')} 2>/tmp/rping || ${AT_ITS_END}`);
  let ours: Program | undefined;
  let linux: GuestProgram | undefined;
  try {
    if (weServe) {
      ours = lab.verbena(...asServer);
      await ours.printed('stdout', /listening/);
      linux = startLinux(asClient);
    } else {
      linux = startLinux(asServer);
      await cmListening(guest, RPING_PORT);
      ours = lab.verbena(...asClient);
    }
    const started = performance.now();
    const [ended, output] = await Promise.all([ours.ended, linux.finished(SECONDS_MAX)]);
    const micros = ((performance.now() - started) * 1000) / count;
    assert.equal(ended.stderr, '');
    assert.equal(ended.code, 0);
    if (verbose) {
      const [served, pinged] = weServe ? [ended.stdout, output] : [output, ended.stdout];
      assert.equal(turnsOf(served), transcript('server ', game));
      assert.equal(turnsOf(pinged), transcript('', game));
    }
    return micros.toFixed(0);
  } finally {
    ours?.kill();
    await linux?.stop();
  }
}

function describe({ isIpv6, weServe, size, count }: Game): string {
  const roles = weServe ? 'Linux to Verbena' : 'Verbena to Linux';
  return `rping, ${isIpv6 ? 'IPv6' : 'IPv4'}: ${roles}: ${count} turns of ${size} bytes`;
}

const GAMES = [
  { size: 64, count: 1000, verbose: true },
  { size: 4096, count: 100 },
  { size: 65535, count: 20 },
];

async function rpings(report: Report, lab: Lab): Promise<void> {
  for (const isIpv6 of [false, true]) {
    for (const weServe of [false, true]) {
      for (const shape of GAMES) {
        const game: Game = { ...shape, isIpv6, weServe };
        await report.check(describe(game), async () => {
          report.note(`${await playRping(lab, game)} microseconds a turn`);
        });
      }
    }
  }
}

interface ProgramPair {
  readonly name: string;
  readonly serve: Half;
  readonly ask: Half;
  readonly port: number;
  readonly exchange: Exchange;
  linux(role: 'serve' | 'ask', address: string): string;
}

function cmatose(name: string): ProgramPair['linux'] {
  return (role, address) => {
    const { connections, messages, bytes } = EXCHANGES[name]!;
    const words = `-c ${connections} -C ${messages} -S ${bytes}`;
    return `${name} ${role === 'serve' ? '-b' : '-s'} ${address} ${words}`;
  };
}

const EXCHANGES: Readonly<Record<string, Exchange>> = {
  // Several packets each, the last one short.
  ucmatose: { connections: 5, messages: 10, bytes: 10_001 },
  // A datagram is one packet.
  udaddy: { connections: 3, messages: 10, bytes: 1000 },
  rdma_server: { connections: 1, messages: 1, bytes: 16 },
};

const PROGRAMS: readonly ProgramPair[] = [
  {
    name: 'ucmatose',
    serve: serveUcmatose,
    ask: askUcmatose,
    port: SERVER_PORT,
    exchange: EXCHANGES['ucmatose']!,
    linux: cmatose('ucmatose'),
  },
  {
    name: 'udaddy',
    serve: serveUdaddy,
    ask: askUdaddy,
    port: UDADDY_PORT,
    exchange: EXCHANGES['udaddy']!,
    linux: cmatose('udaddy'),
  },
  {
    name: 'rdma_server',
    serve: serveRdmaServer,
    ask: askRdmaServer,
    port: SERVER_PORT,
    exchange: EXCHANGES['rdma_server']!,
    linux: (role, address) => {
      return `${role === 'serve' ? 'rdma_server' : 'rdma_client'} -s ${address} -p ${SERVER_PORT}`;
    },
  },
];

/** Runs a program of rdma-core and our half, to the end of both. */
async function playProgram(
  lab: Lab,
  program: ProgramPair,
  { isIpv6, weServe }: { readonly isIpv6: boolean; readonly weServe: boolean },
): Promise<void> {
  const { guest } = lab;
  const { exchange, port } = program;
  const us = isIpv6 ? lab.ipv6 : lab.ipv4;
  const them = isIpv6 ? guest.ipv6 : guest.ipv4;
  await withDevice(us, async (context) => {
    let linux: GuestProgram | undefined;
    try {
      if (weServe) {
        let ready = (): void => undefined;
        const listening = new Promise<void>((resolve) => (ready = resolve));
        const served = program.serve(context, us, exchange, ready);
        await Promise.race([listening, served]);
        linux = guest.spawn(program.linux('ask', us));
        await Promise.all([served, linux.finished(SECONDS_MAX)]);
      } else {
        linux = guest.spawn(program.linux('serve', them));
        await cmListening(guest, port);
        const asked = program.ask(context, them, exchange, () => undefined);
        await Promise.all([asked, linux.finished(SECONDS_MAX)]);
      }
    } catch (error) {
      throw new Error(`${(error as Error).message}\n${linux?.output ?? ''}`, { cause: error });
    } finally {
      await linux?.stop();
    }
  });
}

async function programs(report: Report, lab: Lab): Promise<void> {
  const settings = [
    { isIpv6: false, mtu: NETWORK_MTU, pathMtu: 4096 },
    { isIpv6: true, mtu: NETWORK_MTU, pathMtu: 4096 },
    { isIpv6: false, mtu: 1500, pathMtu: 1024 },
  ];
  for (const { isIpv6, mtu, pathMtu } of settings) {
    await withMtu(lab, { ours: mtu, theirs: mtu }, async () => {
      for (const program of PROGRAMS) {
        for (const weServe of [false, true]) {
          const roles = weServe ? 'Linux to Verbena' : 'Verbena to Linux';
          const { connections, messages, bytes } = program.exchange;
          const what = `${connections} × ${messages} messages of ${bytes} bytes`;
          const wire = `${isIpv6 ? 'IPv6' : 'IPv4'}, MTU ${pathMtu}`;
          await report.check(`${program.name}, ${wire}: ${roles}: ${what}`, () =>
            playProgram(lab, program, { isIpv6, weServe }),
          );
        }
      }
    });
  }
}

/** A service's resolution, with its question and its answer lost once. */
async function serviceLosses(report: Report, lab: Lab): Promise<void> {
  const udaddy = PROGRAMS.find(({ name }) => name === 'udaddy')!;
  // Linux keeps no record of its answer: a retried REQ is a new one, for a queue pair that gets no
  // message.
  const askedTwice: ProgramPair = {
    ...udaddy,
    exchange: { connections: 1, messages: 0, bytes: 1000 },
    linux: (_, address) => `udaddy -b ${address} -c 2 -C 0`,
  };
  for (const weServe of [false, true]) {
    for (const message of ['SIDR_REQ', 'SIDR_REP'] as const) {
      const isOurs = weServe === (message === 'SIDR_REP');
      const [from, source] = isOurs ? ['Verbena', lab.ipv4] : ['Linux', lab.guest.ipv4];
      const roles = weServe ? 'Linux to Verbena' : 'Verbena to Linux';
      await report.check(`${roles}: the first ${message} of ${from} is lost`, async () => {
        const program = message === 'SIDR_REP' && !weServe ? askedTwice : udaddy;
        const use = (): Promise<void> => playProgram(lab, program, { isIpv6: false, weServe });
        const { lost } = await lab.withDrops([firstOf(message, source)], use);
        assert.equal(lost, 1);
      });
    }
  }
}

/** rping with losses, except of its last packets: a finished program does not retransmit. */
async function rpingLosses(report: Report, lab: Lab): Promise<void> {
  for (const { percent, count } of [
    { percent: 1, count: 40 },
    { percent: 5, count: 15 },
  ]) {
    for (const weServe of [false, true]) {
      const game: Game = { isIpv6: false, weServe, size: 10_000, count };
      await report.check(`${percent} % lost: ${describe(game)}`, async () => {
        const { lost } = await lab.withLoss(percent, () => playRping(lab, game), count * 6);
        report.note(`${lost} packets were lost`);
      });
    }
  }
}

export const cmGroup: GuestGroup = {
  name: 'cm',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    await rpings(report, lab);
    await rpingLosses(report, lab);
    await programs(report, lab);
    await disagreements(report, lab);
    await many(report, lab);
    await losses(report, lab);
    await serviceLosses(report, lab);
  },
};
