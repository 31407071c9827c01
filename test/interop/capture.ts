/**
 * Captures of Verbena's packets, recorded with `--pcap`: Wireshark must find nothing wrong with
 * them.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readPcap, type CapturedPacket } from '../../host/link/capture/pcap.js';
import { Mtu } from '../../host/index.js';
import { Codec } from '../support/codec.js';
import { icrcMatches } from '../support/icrc.js';
import { root } from '../support/paths.js';
import type { Group, Report } from './group.js';
import { checkIcrcs } from './scapy.js';
import { run, scapy, tshark, withFolder } from './tools.js';
import { complaints, disagreements, dissect, packetComments } from './tshark.js';
import { recordVerbs } from './verbs.js';

const CLI = fileURLToPath(new URL('build/verbena.js', root));
const FILE_BYTES = 3 * 2 ** 20 + 4567;
const MESSAGES_MAX = 10;

export interface Recording {
  readonly file: string;
  readonly bytes: Uint8Array;
  readonly packets: readonly CapturedPacket[];
}

export function open(file: string): Recording {
  const bytes = readFileSync(file);
  return { file, bytes, packets: [...readPcap(bytes)] };
}

function assertNone(found: readonly string[]): void {
  if (found.length === 0) return;
  const more = found.length > MESSAGES_MAX ? [`… ${found.length} in all`] : [];
  throw new Error([...found.slice(0, MESSAGES_MAX), ...more].join('\n'));
}

function payloadBytes(packets: readonly CapturedPacket[]): number {
  const codec = new Codec();
  const lengths = packets.map(({ payload }) => codec.parse(payload).fields.payloadLength);
  return lengths.reduce((sum, length) => sum + length, 0);
}

/** Checks a capture with three independent programs. */
export async function judge(report: Report, name: string, recording: Recording): Promise<void> {
  const { file, bytes, packets } = recording;
  const codec = new Codec();
  const told = `the ${packets.length} packets of ${name}`;
  await report.check(`both peers are in ${told}`, () => {
    const sources = new Set(packets.map(({ source }) => source.toString()));
    if (sources.size !== 2) throw new Error(`they have the sources ${[...sources].join()}`);
  });
  const dissected = await dissect(file);
  await report.check(`tshark finds nothing malformed, and only InfiniBand, in ${told}`, () => {
    if (dissected.length === 0) throw new Error('no packets');
    assertNone(complaints(dissected));
  });
  await report.check(`tshark reads ${told} as we do`, () => {
    assertNone(disagreements(codec, packets, dissected));
  });
  await report.check(`scapy computes every ICRC over IPv4 of ${told} as we did`, async () => {
    const verdict = (await checkIcrcs([file])).get(file);
    if (!verdict || verdict.checked === 0) throw new Error('scapy checked none');
    if (verdict.checked !== packets.length) throw new Error(`scapy checked ${verdict.checked}`);
    assertNone(verdict.wrong.map((number) => `packet ${number} has another ICRC`));
  });
  await report.check(`zlib computes every ICRC of ${told} as we did`, () => {
    const wrong = packets.filter((packet) => !icrcMatches(bytes, packet));
    assertNone(wrong.map(({ frameNumber }) => `packet ${frameNumber} has another ICRC`));
  });
}

async function tour(report: Report, folder: string): Promise<void> {
  const [sent, pcap] = [join(folder, 'file.bin'), join(folder, 'tour.pcap')];
  writeFileSync(sent, randomBytes(FILE_BYTES));
  let recording: Recording | undefined;
  await report.check(`verbena tour carries ${FILE_BYTES} bytes and records them`, async () => {
    await run(process.execPath, [CLI, 'tour', '--pcap', pcap, sent]);
    const opened = open(pcap);
    const carried = payloadBytes(opened.packets);
    if (carried < FILE_BYTES) throw new Error(`the packets carry ${carried} bytes`);
    recording = opened;
  });
  if (recording) await judge(report, 'the tour', recording);
}

/** Our pcapng file for tshark, and tshark's for us: the same packets, with our sentences. */
async function pcapng(report: Report, folder: string): Promise<void> {
  const [sent, ours, theirs] = ['file.bin', 'tour.pcapng', 'theirs.pcapng'].map((name) =>
    join(folder, name),
  ) as [string, string, string];
  writeFileSync(sent, randomBytes(FILE_BYTES));
  await report.check('verbena tour records a pcapng file', async () => {
    await run(process.execPath, [CLI, 'tour', '--pcap', ours, sent]);
  });
  const recording = open(ours);
  await judge(report, 'the tour in pcapng', recording);
  const told = `the ${recording.packets.length} packets of a pcapng file`;
  await report.check(`tshark shows our sentence as the comment of each of ${told}`, async () => {
    const shown = await packetComments(ours);
    const differ = recording.packets.filter(({ comment }, index) => comment !== shown[index]);
    assertNone(differ.map(({ frameNumber }) => `packet ${frameNumber} has another comment`));
    if (shown.some((comment) => !/^(RC|UD) .*\[ICRC /.test(comment)))
      throw new Error('no sentence');
  });
  await report.check(`what tshark writes of ${told} decodes unchanged`, async () => {
    await run('tshark', ['-n', '-r', ours, '-F', 'pcapng', '-w', theirs]);
    const [mine, other] = await Promise.all([ours, theirs].map((file) => decoded(file)));
    if (mine !== other) throw new Error('verbena decode prints other lines');
  });
  await report.check('the nanosecond pcap file that tshark writes decodes unchanged', async () => {
    const classic = join(folder, 'classic.pcap');
    await run('tshark', ['-n', '-r', ours, '-F', 'nsecpcap', '-w', classic]);
    if ((await decoded(ours)) !== (await decoded(classic))) throw new Error('other lines');
  });
}

async function decoded(file: string): Promise<string> {
  return (await run(process.execPath, [CLI, 'decode', file])).stdout;
}

async function verbs(report: Report, folder: string): Promise<void> {
  for (const [name, mtu] of [
    ['a path MTU of 256', Mtu.MTU_256],
    ['a path MTU of 1024', Mtu.MTU_1024],
    ['a path MTU of 4096', Mtu.MTU_4096],
  ] as const) {
    const pcap = join(folder, 'verbs.pcap');
    const recorded = await report.check(`requests of all kinds run with ${name}`, async () => {
      report.note(`${await recordVerbs(pcap, mtu)} requests`);
    });
    if (recorded) await judge(report, name, open(pcap));
  }
}

export const captureGroup: Group = {
  name: 'capture',
  tools: [tshark, scapy],
  async run(report) {
    await withFolder(async (folder) => {
      await tour(report, folder);
      await pcapng(report, folder);
      await verbs(report, folder);
    });
  },
};
