/**
 * Attributes of queue pairs from messages, checked against those that Linux set after it had sent
 * them.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { caGuidOf } from '../../../host/cm/address.js';
import { agreementOfReply, agreementOfRequest, checkOptions } from '../../../host/cm/agreement.js';
import { MisuseError } from '../../../host/errors/errors.js';
import { parseMad, type Message, type MessageName } from '../../../host/cm/mad.js';
import { isRxe } from '../../../host/cm/rdma-rxe.js';
import type { CapturedPacket } from '../../../host/link/capture/pcap.js';
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
  assert.ok(first, `${source} sent no request`);
  const { payload } = first;
  return (payload[9]! << 16) | (payload[10]! << 8) | payload[11]!;
}

test('each side begins with the PSN that the other one told', () => {
  const { packets } = loadAllCaptures().find(({ name }) => name === 'cm_rping')!;
  const request = messageOf(packets, 'REQ');
  const reply = messageOf(packets, 'REP');
  const [asking, answering] = packets as [CapturedPacket, CapturedPacket];
  const doubledFlushIcrc = false;
  const active = agreementOfReply(request, reply, { peer: answering.source, doubledFlushIcrc });
  const passive = agreementOfRequest(request, reply, { peer: asking.source, doubledFlushIcrc });
  const ofActive = firstPsn(packets, asking);
  const ofPassive = firstPsn(packets, answering);
  assert.is.not(ofActive, ofPassive);
  assert.equal([active.sqPsn, active.rqPsn], [ofActive, ofPassive]);
  assert.equal([passive.sqPsn, passive.rqPsn], [ofPassive, ofActive]);
});

test('a peer’s ack timeout of 0 (never), of microseconds, or of hours, is bounded for our own requests', () => {
  const { packets } = loadAllCaptures().find(({ name }) => name === 'cm_rping')!;
  const request = messageOf(packets, 'REQ');
  const reply = messageOf(packets, 'REP');
  const remote = { peer: (packets as [CapturedPacket])[0].source, doubledFlushIcrc: false };
  const timeoutOf = (primaryLocalAckTimeout: number): number =>
    agreementOfRequest({ ...request, primaryLocalAckTimeout }, reply, remote).timeout;
  assert.equal([0, 1, 7, 8, 14, 19, 21, 22, 31].map(timeoutOf), [21, 8, 8, 8, 14, 19, 21, 21, 21]);
});

test('path parameters of a REQ change nothing of our own queue pair', () => {
  const { packets } = loadAllCaptures().find(({ name }) => name === 'cm_rping')!;
  const request = messageOf(packets, 'REQ');
  const reply = messageOf(packets, 'REP');
  const remote = { peer: (packets as [CapturedPacket])[0].source, doubledFlushIcrc: false };
  const hostile = {
    ...request,
    primaryFlowLabel: 0xfffff,
    primaryPacketRate: 63,
    primaryTrafficClass: 255,
    primaryHopLimit: 0,
    primarySl: 15,
    primaryLocalGid: new Uint8Array(16).fill(9),
    alternateHopLimit: 255,
    alternateLocalAckTimeout: 31,
  };
  const wanted = agreementOfRequest(request, reply, remote);
  assert.equal(agreementOfRequest(hostile, reply, remote), wanted);
});

/** CA GUID and UDP source port of each REQ and REP. */
function introductions(packets: Packets): { readonly guid: bigint; readonly port: number }[] {
  return packets.flatMap((packet) => {
    if (packet.payload[0] !== Opcode.UD_SEND_ONLY) return [];
    const { payload, source } = packet;
    const message = parseMad(Uint8Array.from(payload.subarray(BTH_DETH, payload.length - ICRC)));
    if (typeof message === 'string' || !('localCaGuid' in message)) return [];
    return [{ guid: message.localCaGuid, port: source.port }];
  });
}

test('Linux rxe is detected by both the port and the CA GUID of its messages', () => {
  const all = loadAllCaptures().flatMap(({ packets }) => introductions(packets));
  assert.ok(all.length > 15, `${all.length} messages`);
  for (const { guid, port } of all) assert.ok(isRxe(guid, port), `${guid.toString(16)}, ${port}`);
  const [{ guid, port }] = all as [{ guid: bigint; port: number }];
  assert.not(isRxe(guid, 4791));
  // A hardware adapter: no MAC address in its GUID.
  assert.not(isRxe(0x0c42a10300123456n, port));
  assert.not(isRxe(0n, port));
  assert.not(isRxe(caGuidOf({ local: { port: 4791 }, receiveBufferBytes: 1 } as never, 0), port));
});

test('a FLUSH to rxe gets rxe’s form of the ICRC, unless an option selects the other form', () => {
  const { packets } = loadAllCaptures().find(({ name }) => name === 'cm_rping')!;
  const reply = messageOf(packets, 'REP');
  const request = messageOf(packets, 'REQ');
  const peer = packets[1]!.source;
  for (const doubledFlushIcrc of [true, false]) {
    const { ahAttr } = agreementOfReply(request, reply, { peer, doubledFlushIcrc });
    assert.is(ahAttr.doubledFlushIcrc, doubledFlushIcrc);
  }
  checkOptions({ doubledFlushIcrc: true, pathMtu: 5 });
  const isMisuse = (error: unknown) => error instanceof MisuseError;
  assert.throws(() => checkOptions({ doubledFlushIcrc: 1 as never }), isMisuse);
});

test.run();
