/** Two strangers look at the captures of Linux (test/vectors): do they see what we see? */
import { fileURLToPath } from 'node:url';
import { Codec } from '../support/codec.js';
import { vectors } from '../support/paths.js';
import { loadAllCaptures, type VectorCapture } from '../vectors/captures.js';
import type { Group, Report } from './group.js';
import { checkIcrcs } from './scapy.js';
import { scapy, tshark } from './tools.js';
import { disagreements, dissect } from './tshark.js';

const FLUSH = 0x1c;

const fileOf = ({ set, name }: VectorCapture): string =>
  fileURLToPath(new URL(`${set}/${name}.pcap`, vectors));

/** Frame numbers of FLUSH requests: rxe gives them an ICRC of its own kind. */
function flushes(codec: Codec, { packets }: VectorCapture): number[] {
  return packets
    .filter(({ payload }) => codec.parse(payload).fields.opcode === FLUSH)
    .map(({ frameNumber }) => frameNumber);
}

async function checkFields(report: Report, captures: readonly VectorCapture[]): Promise<void> {
  const codec = new Codec();
  for (const capture of captures) {
    const name = `tshark reads the ${capture.packets.length} packets of ${capture.name} as we do`;
    await report.check(name, async () => {
      const found = disagreements(codec, capture.packets, await dissect(fileOf(capture)));
      if (found.length > 0) throw new Error(found.slice(0, 10).join('\n'));
    });
  }
}

async function checkChecksums(report: Report, captures: readonly VectorCapture[]): Promise<void> {
  const codec = new Codec();
  const verdicts = await checkIcrcs(captures.map(fileOf));
  await report.check('scapy computes every ICRC over IPv4 as Linux did, but FLUSH', () => {
    let [checked, other] = [0, 0];
    for (const capture of captures) {
      const verdict = verdicts.get(fileOf(capture));
      if (!verdict) throw new Error(`${capture.name}: scapy said nothing`);
      checked += verdict.checked;
      other += verdict.other;
      const [got, wanted] = [verdict.wrong.join(), flushes(codec, capture).join()];
      if (got !== wanted) throw new Error(`${capture.name}: wrong [${got}], FLUSH [${wanted}]`);
    }
    const packets = captures.flatMap((capture) => capture.packets);
    const ipv6 = packets.filter(({ ipVersion }) => ipVersion === 6).length;
    const counts = `${checked} of ${packets.length}, ${other} others, ${ipv6} over IPv6`;
    if (checked + other !== packets.length || other !== ipv6) throw new Error(counts);
    report.note(counts);
  });
}

export const vectorsGroup: Group = {
  name: 'vectors',
  tools: [tshark, scapy],
  async run(report) {
    const captures = loadAllCaptures();
    await checkFields(report, captures);
    await checkChecksums(report, captures);
  },
};
