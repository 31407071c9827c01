/** `verbena pingpong` with ibv_{rc,uc,ud,srq}_pingpong of rdma-core, each as server and as client. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { Gid } from '../../host/link/endpoint.js';
import type { Ended, Program } from '../support/processes.js';
import { judge, open } from './capture.js';
import type { GuestGroup, Report } from './group.js';
import type { GuestProgram } from './rxe/guest.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';
import { scapy, tshark } from './tools.js';

const SERVICES = ['rc', 'uc', 'ud', 'srq'] as const;
type Service = (typeof SERVICES)[number];

interface Game {
  readonly service: Service;
  readonly isIpv6: boolean;
  readonly mtuBytes: number;
  readonly weServe: boolean;
  readonly iters: number;
  /** More words for our side. */
  readonly extra?: readonly string[];
}

const SECONDS_MAX = 60;
/** TCP, of both programs. */
const PORT = 18515;
/** It has our message, and we have acknowledged its last one: what is missing is its next one. */
const RXE_STOPPED = /no message from the peer for 10 s; all sent messages completed/;
const TURNS = 3;
/** The first of a game: after them it goes on for longer than a timeout. */
const LOSSY_PACKETS = 800;
/** Last lines that both print. */
const RESULT = new RegExp(
  '^\\d+ bytes in [\\d.]+ seconds = [\\d.]+ Mbit/sec\n' +
    '(\\d+) iters in [\\d.]+ seconds = ([\\d.]+) usec/iter$',
  'm',
);

function wordsOf({ service, mtuBytes, iters }: Game): string[] {
  // A datagram is one packet; others are several, the last one short.
  if (service === 'ud') return ['-n', `${iters}`, '-s', `${mtuBytes - 24}`, '-c'];
  return ['-n', `${iters}`, '-s', '10001', '-m', `${mtuBytes}`, '-c'];
}

function linuxCommand(game: Game, host: string): string {
  const gidIndex = game.isIpv6 ? 2 : 1;
  return `ibv_${game.service}_pingpong -g ${gidIndex} ${wordsOf(game).join(' ')} ${host}`;
}

/** Our side has ended well and says so as rdma-core's programs do. */
function assertDone({ code, stdout, stderr }: Ended, { iters }: Game): string {
  assert.equal(stderr, '');
  assert.equal(code, 0);
  assert.match(
    stdout,
    /^ {2}local address: {2}LID 0x0000, QPN 0x[\da-f]{6}, PSN 0x[\da-f]{6}, GID /,
  );
  const found = RESULT.exec(stdout);
  assert.equal(Number(found?.[1]), iters, stdout);
  return found![2]!;
}

function assertLinuxDone(output: string, { iters }: Game): void {
  assert.equal(Number(RESULT.exec(output)?.[1]), iters, output);
  assert.doesNotMatch(output, /invalid data/);
}

async function start(lab: Lab, game: Game): Promise<{ ours: Program; linux: GuestProgram }> {
  const { guest } = lab;
  const us = game.isIpv6 ? lab.ipv6 : lab.ipv4;
  const words = [`--${game.service}`, ...wordsOf(game), ...(game.extra ?? [])];
  if (game.weServe) {
    const ours = lab.verbena('pingpong', ...words, '--bind', us);
    await ours.printed('stdout', /local address/);
    return { ours, linux: guest.spawn(linuxCommand(game, us)) };
  }
  const linux = guest.spawn(linuxCommand(game, ''));
  await guest.listening(PORT);
  // rdma-core's servers listen at IPv4 addresses only, whatever the packets are.
  const bind = game.isIpv6 ? ['--bind', us] : [];
  return { ours: lab.verbena('pingpong', ...words, ...bind, guest.ipv4), linux };
}

/** Plays to the end; returns our microseconds per exchange. */
async function play(lab: Lab, game: Game): Promise<string> {
  const { ours, linux } = await start(lab, game);
  try {
    // The failing program has the reason; the other one may only wait for it.
    const output = linux.finished(SECONDS_MAX);
    const [micros] = await Promise.all([
      ours.ended.then((ended) => assertDone(ended, game)),
      output.then((text) => assertLinuxDone(text, game)),
    ]);
    return micros;
  } finally {
    ours.kill();
    await linux.stop();
  }
}

function describe({ service, isIpv6, mtuBytes, weServe, iters }: Game): string {
  const roles = weServe ? 'Linux to Verbena' : 'Verbena to Linux';
  return `${service}, ${isIpv6 ? 'IPv6' : 'IPv4'}, MTU ${mtuBytes}: ${roles}: ${iters} exchanges`;
}

async function playAll(report: Report, lab: Lab): Promise<void> {
  for (const isIpv6 of [false, true]) {
    for (const mtuBytes of [1024, 4096]) {
      for (const weServe of [false, true]) {
        const micros: string[] = [];
        for (const service of SERVICES) {
          const game: Game = { service, isIpv6, mtuBytes, weServe, iters: 100 };
          await report.check(describe(game), async () => {
            micros.push(`${service} ${await play(lab, game)}`);
          });
        }
        report.note(`microseconds an exchange: ${micros.join(', ')}`);
      }
    }
  }
  const events: Game = {
    service: 'srq',
    isIpv6: false,
    mtuBytes: 1024,
    weServe: false,
    iters: 200,
    extra: ['-e'],
  };
  await report.check(`${describe(events)}, by events`, async () => void (await play(lab, events)));
}

async function playWithLoss(report: Report, lab: Lab): Promise<void> {
  for (const percent of [1, 5]) {
    for (const service of ['rc', 'srq'] as const) {
      for (const weServe of [false, true]) {
        // Of 16 queue pairs one may wait for its timeout while the others play on to the end.
        const iters = service === 'srq' ? 2000 : 100;
        const game: Game = { service, isIpv6: false, mtuBytes: 1024, weServe, iters };
        await report.check(`${percent} % lost: ${describe(game)}`, async () => {
          for (let turn = 1; ; turn++) {
            try {
              // Except of the last packets: a finished program repeats no ACK.
              const use = () => play(lab, game);
              const { lost } = await lab.withLoss(percent, use, LOSSY_PACKETS);
              report.note(`${lost} packets were lost`);
              return;
            } catch (error) {
              // On a busy machine rxe may stop where it is its turn (README.md).
              if (turn === TURNS || !RXE_STOPPED.test((error as Error).message)) throw error;
              report.note('rxe stopped where it was its turn: played again');
            }
          }
        });
      }
    }
  }
}

/** UC repeats nothing: a lost message ends the game, and our side says so instead of waiting. */
async function loseOne(report: Report, lab: Lab): Promise<void> {
  const game: Game = { service: 'uc', isIpv6: false, mtuBytes: 1024, weServe: false, iters: 200 };
  await report.check('a message that UC loses ends it with a sentence', async () => {
    const lose = 'udp dport 4791 numgen inc mod 1000000 100 counter drop';
    await lab.withDrops([lose], async () => {
      const { ours, linux } = await start(lab, game);
      try {
        const { code, stderr } = await ours.ended;
        assert.match(
          stderr,
          /^verbena pingpong: no message from the peer for 10 s; .*: a message is lost/,
        );
        assert.equal(code, 1);
      } finally {
        ours.kill();
        await linux.stop();
      }
    });
  });
}

/**
 * Packets of Linux have IP identifications, covered by their ICRCs: our capture must have them.
 *
 * Linux counts them from a random number modulo 65,536, so one packet of a capture may have 0.
 */
async function record(report: Report, lab: Lab): Promise<void> {
  for (const service of ['rc', 'ud'] as const) {
    const file = join(lab.folder, `pingpong-${service}.pcap`);
    const extra = ['--pcap', file];
    const game: Game = { service, isIpv6: false, mtuBytes: 1024, weServe: true, iters: 200, extra };
    const played = await report.check(`${describe(game)}, captured`, async () => {
      await play(lab, game);
    });
    if (!played) continue;
    const recording = open(file);
    const name = `${service} with Linux`;
    await report.check(`the packets of Linux have identifications in ${name}`, () => {
      const theirs = recording.packets.filter(({ source }) => `${source.gid}` !== us(lab));
      assert.ok(theirs.length >= 200, `${theirs.length} packets`);
      const bare = theirs.filter(({ ipId }) => ipId === 0);
      assert.ok(bare.length <= 1, `${bare.length} of ${theirs.length} have none`);
    });
    await judge(report, name, recording);
    await report.check(`verbena decode finds every ICRC of ${name} right`, async () => {
      const { code, stdout } = await lab.verbena('decode', file).ended;
      assert.equal(code, 0);
      const lines = stdout.trimEnd().split('\n');
      assert.equal(lines.length, recording.packets.length);
      assert.deepEqual(
        lines.filter((line) => !/\[ICRC ok/.test(line)),
        [],
      );
    });
  }
}

function us(lab: Lab): string {
  return `${Gid.parse(lab.ipv4)}`;
}

export const pingpongGroup: GuestGroup = {
  name: 'pingpong',
  tools: [...guestTools, tshark, scapy],
  guests: 1,
  async run(report, lab) {
    await playAll(report, lab);
    await playWithLoss(report, lab);
    await loseOne(report, lab);
    await record(report, lab);
  },
};
