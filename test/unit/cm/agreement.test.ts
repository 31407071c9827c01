/** What messages mean for queue pairs, by what Linux did after it had sent them. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { agreementOfReply, agreementOfRequest } from '../../../host/cm/agreement.js';
import { parseMad, type Message, type MessageName } from '../../../host/cm/mad.js';
import type { CapturedPacket } from '../../../host/link/pcap.js';
import { loadAllCaptures } from '../../vectors/captures.js';

const BTH_DETH = 20;
const ICRC = 4;

type Packets = readonly CapturedPacket[];

function messageOf<Name extends MessageName>(packets: Packets, name: Name): Message<Name> {
  const found = packets
    .map(({ payload }) => payload)
    .filter((bytes) => bytes[0] === Opcode.UD_SEND_ONLY)
    .map((bytes) => parseMad(Uint8Array.from(bytes.subarray(BTH_DETH, bytes.length - ICRC))))
    .find((message) => typeof message !== 'string' && message.name === name);
  assert.ok(found, name);
  return found as unknown as Message<Name>;
}

/** The PSN of the first request that comes from there. */
function firstPsn(packets: Packets, { source }: CapturedPacket): number {
  const requests: readonly number[] = [Opcode.RC_SEND_ONLY, Opcode.RC_RDMA_READ_REQUEST];
  const first = packets.find(
    (packet) => packet.source.gid.equals(source.gid) && requests.includes(packet.payload[0]!),
  );
  assert.ok(first, `nothing was asked by ${source}`);
  const { payload } = first;
  return (payload[9]! << 16) | (payload[10]! << 8) | payload[11]!;
}

test('each side begins with the PSN that the other one told', () => {
  const { packets } = loadAllCaptures().find(({ name }) => name === 'cm_rping')!;
  const request = messageOf(packets, 'REQ');
  const reply = messageOf(packets, 'REP');
  const [asking, answering] = packets as [CapturedPacket, CapturedPacket];
  const active = agreementOfReply(request, reply, answering.source);
  const passive = agreementOfRequest(request, reply, asking.source);
  const ofActive = firstPsn(packets, asking);
  const ofPassive = firstPsn(packets, answering);
  assert.is.not(ofActive, ofPassive);
  assert.equal([active.sqPsn, active.rqPsn], [ofActive, ofPassive]);
  assert.equal([passive.sqPsn, passive.rqPsn], [ofPassive, ofActive]);
});

test.run();
