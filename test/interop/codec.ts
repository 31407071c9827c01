/** Packets of every opcode with any values in their fields: does a stranger read what we wrote? */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { splitmix32 } from '../../host/link/faults/fault.js';
import { readPcap } from '../../host/link/capture/pcap.js';
import { Codec, ipPacket, type Fields, type Flow } from '../support/codec.js';
import { FIELD_BITS, OPCODES, type OpcodeSpecification } from '../unit/wire/specification.js';
import type { Group } from './group.js';
import { checkIcrcs } from './scapy.js';
import { scapy, tshark, withFolder } from './tools.js';
import { complaints, disagreements, dissect } from './tshark.js';

const ROUNDS = 25;
const LINKTYPE_RAW = 101;
const ROCE_PORT = 4791;

type Random = () => number;

function randomFields({ opcode, hasPayload }: OpcodeSpecification, random: Random): Fields {
  const fields = Object.entries(FIELD_BITS).map(([name, bits]) => {
    const wide = (BigInt(random()) << 32n) | BigInt(random());
    const value = BigInt.asUintN(bits, wide);
    return [name, bits === 64 ? value : Number(value)];
  });
  const given = Object.fromEntries(fields) as Fields;
  // Queue pairs 0 and 1 speak another language, and 0xffffff is multicast.
  const qpn = 2 + (random() % 0xfffff0);
  return { ...given, opcode, padCount: hasPayload ? given.padCount : 0, targetQp: qpn };
}

function randomFlow(ipVersion: 4 | 6, random: Random): Flow {
  const address = (last: number): Uint8Array =>
    ipVersion === 4
      ? Uint8Array.from([10, random() & 255, random() & 255, last])
      : Uint8Array.from([0xfd, ...Array.from({ length: 14 }, () => random() & 255), last]);
  return {
    ipVersion,
    source: address(1),
    destination: address(2),
    sourcePort: 0xc000 | (random() & 0x3fff),
    destinationPort: ROCE_PORT,
    ipId: ipVersion === 4 ? random() & 0xffff : 0,
  };
}

/** A pcap file with `ROUNDS` packets of each opcode. */
function pcapOfEveryOpcode(ipVersion: 4 | 6): Uint8Array {
  const codec = new Codec();
  const random = splitmix32(ipVersion);
  const header = Buffer.alloc(24);
  header.writeUInt32LE(0xa1b2c3d4);
  header.writeUInt16LE(2, 4);
  header.writeUInt16LE(4, 6);
  header.writeUInt32LE(65535, 16);
  header.writeUInt32LE(LINKTYPE_RAW, 20);
  const parts: Uint8Array[] = [header];
  for (const row of OPCODES) {
    for (let round = 0; round < ROUNDS; round++) {
      const fields = randomFields(row, random);
      // Payload and pad together are whole words.
      const words = row.hasPayload ? 1 + (random() % 1024) : 0;
      const payload = Uint8Array.from({ length: words * 4 - fields.padCount }, () => random());
      const flow = randomFlow(ipVersion, random);
      const frame = ipPacket(flow, codec.build(fields, payload, flow));
      const record = Buffer.alloc(16);
      record.writeUInt32LE(frame.length, 8);
      record.writeUInt32LE(frame.length, 12);
      parts.push(record, frame);
    }
  }
  return Buffer.concat(parts);
}

export const codecGroup: Group = {
  name: 'codec',
  tools: [tshark, scapy],
  async run(report) {
    await withFolder(async (folder) => {
      const codec = new Codec();
      for (const ipVersion of [4, 6] as const) {
        const file = join(folder, `codec-${ipVersion}.pcap`);
        const bytes = pcapOfEveryOpcode(ipVersion);
        writeFileSync(file, bytes);
        const packets = [...readPcap(bytes)];
        const told = `${packets.length} packets of ${OPCODES.length} opcodes over IPv${ipVersion}`;
        await report.check(`tshark reads ${told} as they were meant`, async () => {
          const dissected = await dissect(file);
          const found = [...complaints(dissected), ...disagreements(codec, packets, dissected)];
          if (found.length > 0) throw new Error(found.slice(0, 10).join('\n'));
        });
        if (ipVersion === 6) continue;
        await report.check(`scapy computes the ICRC of ${told} as the engine did`, async () => {
          const verdict = (await checkIcrcs([file])).get(file);
          const good = verdict?.checked === packets.length && verdict.wrong.length === 0;
          if (!good) throw new Error(JSON.stringify(verdict));
        });
      }
    });
  },
};
