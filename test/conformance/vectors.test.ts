/** Every packet that Linux put on the wire: taken apart, put together again, byte for byte. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Header, OpcodeName, PacketStatus, PacketStatusName } from '#build/abi.js';
import { explainFields, explainPacket } from '../../host/engine/explain.js';
import type { CapturedPacket } from '../../host/link/capture/pcap.js';
import {
  Codec,
  flowOf,
  ipIdEffect,
  wireIcrc,
  zlibIcrc,
  type Fields,
  type IcrcForm,
} from '../support/codec.js';
import { EXPECTED, INDEX_CUT, loadAllCaptures, type VectorCapture } from '../vectors/captures.js';

const FLUSH = 0x1c;
/** Words that no sentence about a packet from Linux may have. */
const DOUBT = /malformed|though|reserved|no path MTU|no placement|unknown/i;

const codec = new Codec();
const captures = loadAllCaptures();
/** Where the ICRC was not the standard one. */
const quirks: string[] = [];

interface Seen {
  readonly packet: CapturedPacket;
  readonly fields: Fields;
}

const hex = (value: number): string => value.toString(16).padStart(2, '0');
const where = ({ set, name }: VectorCapture, { frameNumber }: CapturedPacket): string =>
  `${set}/${name} packet ${frameNumber}`;

/** Parses, or throws with the packet of the capture that is malformed. */
function parse(capture: VectorCapture, packet: CapturedPacket): Fields {
  const { status, fields } = codec.parse(packet.payload);
  const name = PacketStatusName[status] ?? String(status);
  assert.is(status, PacketStatus.OK, `${where(capture, packet)}: ${name}`);
  return fields;
}

/** The operation, in the words of the opcode's name. */
function assertExplained(at: string, packet: Uint8Array, opcode: number): void {
  const name = OpcodeName[opcode]!;
  const sentence = explainPacket(packet);
  const title = sentence.split(/[,;]/, 1)[0]!;
  const words = title.toUpperCase().replaceAll(' ', '_').replace('IMMEDIATE', 'IMM');
  assert.is(words, name, `${at}: ${sentence}`);
  assert.not.match(sentence, DOUBT, `${at}: ${sentence}`);
  const description = explainFields(packet);
  assert.is(description.status, 'OK', at);
  assert.is(description.bth?.name, name, at);
}

/** Which of the two forms the packet has. Fails for neither, and where engine and zlib differ. */
function icrcForm(at: string, { payload, ...packet }: CapturedPacket): IcrcForm {
  const flow = flowOf({ payload, ...packet });
  const onWire = wireIcrc(payload);
  const forms = (['standard', 'doubled'] as const).filter((form) => {
    const withoutId = codec.icrc(flow, payload, form);
    const engine = (withoutId ^ ipIdEffect(flow, payload.length, form)) >>> 0;
    assert.is(hex(engine), hex(zlibIcrc(flow, payload, form)), `${at}: ${form} ICRC against zlib`);
    return engine === onWire;
  });
  assert.is(forms.length, 1, `${at}: ICRC ${hex(onWire)} fits ${forms.join(' and ') || 'no form'}`);
  const form = forms[0]!;
  if (flow.ipVersion === 4) {
    const difference = codec.icrc(flow, payload, form) ^ onWire;
    assert.is(codec.ipIdOf(difference, payload.length, form), flow.ipId, `${at}: IP id solved for`);
  }
  return form;
}

function assertRebuilt(at: string, packet: CapturedPacket, fields: Fields, form: IcrcForm): void {
  const { headersLength, payloadLength } = fields;
  const payload = packet.payload.slice(headersLength, headersLength + payloadLength);
  const rebuilt = codec.build(fields, payload, flowOf(packet), form);
  assert.is(rebuilt.length, packet.payload.length, `${at}: bytes`);
  const differs = rebuilt.findIndex((byte, index) => byte !== packet.payload[index]);
  if (differs < 0) return;
  const [got, wanted] = [rebuilt[differs]!, packet.payload[differs]!];
  assert.unreachable(`${at}: byte ${differs} became ${hex(got)}, was ${hex(wanted)}`);
}

function assertIndexed(capture: VectorCapture, seen: readonly Seen[]): void {
  const sequence = seen
    .map(({ fields: { opcode, headers, syndrome } }) =>
      headers & Header.AETH ? `${hex(opcode)}/s${hex(syndrome)} ` : `${hex(opcode)} `,
    )
    .join('');
  const isCut = capture.set === 'rxe' && capture.index.length === INDEX_CUT;
  assert.is(isCut ? sequence.slice(0, INDEX_CUT) : sequence, capture.index);
}

/** First and later packets of each direction, with what the programs said about themselves. */
function assertLogged({ name, log }: VectorCapture, seen: readonly Seen[]): void {
  if (/^requester /m.test(log)) assertRxecapLog(name, log, seen);
  else if (/^ *local address: /m.test(log)) assertAddressLog(log, seen);
}

/** Our queue pair and PSN; then the peer's queue pair, key and address, and the path MTU. */
const REQUESTER = new RegExp(
  /^requester \w+: qpn (\w+) psn (\w+) .*; /.source +
    /peer qpn (\w+) psn \w+ rkey (\w+) addr (\w+) mtu (\d+)/.source,
  'm',
);
/** -P of the requester made it begin elsewhere than its log says. */
const FIRST_PSN: Record<string, number> = { nak_psn_ahead: 0x105, dup_psn_behind: 0xff };
/** Scenarios with a key that does not exist. */
const WRONG_KEY = new Set(['nak_write_badrkey', 'nak_read_badrkey', 'nak_atomic_badrkey']);
const REGION_BYTES = 65536n;
/** Scenarios that reach beyond the responder's region. */
const OUTSIDE = new Set(['nak_flush_badrkey', 'nak_write_bounds', 'nak_write_multi_bounds']);

function assertRxecapLog(name: string, log: string, seen: readonly Seen[]): void {
  const line = REQUESTER.exec(log);
  assert.ok(line, 'its log has queue pairs and keys');
  const [qpn, psn, peerQpn, key, , mtu] = line.slice(1).map(Number) as number[];
  const address = BigInt(line[5]!);
  const windows = [...log.matchAll(/^mw type 2 rkey (\w+)/gm)].map((found) => Number(found[1]));
  const requester = seen[0]!.packet.source.gid.toString();
  assert.is(seen[0]!.fields.psn, FIRST_PSN[name] ?? psn, 'the PSN of the first packet');
  for (const { packet, fields } of seen) {
    const at = `packet ${packet.frameNumber}`;
    const isRequest = packet.source.gid.toString() === requester;
    assert.is(fields.targetQp, isRequest ? peerQpn : qpn, `${at}: queue pair`);
    assert.ok(fields.payloadLength <= mtu!, `${at}: payload within the path MTU`);
    if (!(fields.headers & (Header.RETH | Header.ATOMIC_ETH))) continue;
    assert.ok([key, ...windows].includes(fields.key) !== WRONG_KEY.has(name), `${at}: key`);
    // Flushing a whole region takes neither address nor length.
    if (name === 'rc_flush_global_zero_mr') assert.is(fields.virtualAddress, 0n, `${at}: address`);
    else assertReach(at, fields, address, OUTSIDE.has(name));
  }
  assertLoggedValues(log, seen);
}

function assertReach(at: string, fields: Fields, address: bigint, isOutside: boolean): void {
  const offset = fields.virtualAddress - address;
  const size = fields.headers & Header.ATOMIC_ETH ? 8n : BigInt(fields.dmaLength);
  assert.ok(offset >= 0n && offset < REGION_BYTES, `${at}: begins in the region`);
  assert.is(offset + size > REGION_BYTES, isOutside, `${at}: ends beyond the region`);
}

/** Immediates, invalidated keys and the old values of atomics, as the completions had them. */
function assertLoggedValues(log: string, seen: readonly Seen[]): void {
  const values = new Set<number>();
  for (const { fields } of seen) {
    if (fields.headers & Header.IMM_DT) values.add(fields.immediate);
    // The program prints the union of immediate and key as if it were big-endian.
    if (fields.headers & Header.IETH) values.add(swap32(fields.key));
  }
  const logged = [...log.matchAll(/flags [0-9]* imm (\w+)/g)].map((found) =>
    parseInt(found[1]!, 16),
  );
  assert.equal([...values].sort(), [...new Set(logged)].filter(Boolean).sort(), 'immediates, keys');
  const originals = seen
    .filter(({ fields }) => fields.headers & Header.ATOMIC_ACK_ETH)
    .map(({ fields }) => fields.original);
  for (const [, old] of log.matchAll(/^old .*?(\w+)$/gm)) {
    assert.ok(originals.includes(BigInt(`0x${old}`)), `an answer has the old value ${old}`);
  }
}

function swap32(value: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, value);
  return view.getUint32(0, true);
}

/**
 * pingpong and perftest print queue pair and first PSN of both ends. Where rdma_cm connects them,
 * it also picks the PSN, and the one that is printed is never used.
 */
function assertAddressLog(log: string, seen: readonly Seen[]): void {
  const ends = [
    ...log.matchAll(/(local|remote) address:\s+LID \w+,? QPN (\w+),? PSN (\w+)[^]*?GID:? (\S+)/g),
  ];
  assert.ok(ends.length >= 4, 'its log has both ends twice');
  for (const [, , qpn, psn, gid] of ends) {
    // The last two numbers of the GID: enough to tell the two guests.
    const host = Number(/[:.]0?(\d+)$/.exec(gid!)![1]);
    assert.ok(
      seen.some(({ fields }) => fields.targetQp === Number(qpn)),
      `packets go to queue pair ${qpn}`,
    );
    if (/rdma_cm QPs\s+: ON/.test(log)) continue;
    const first = seen.find(
      ({ packet, fields }) =>
        packet.source.gid.bytes[15] === host && !(fields.headers & Header.AETH),
    );
    assert.is(first?.fields.psn, Number(psn), `the first PSN of ${gid}`);
  }
}

for (const capture of captures) {
  test(`${capture.set}/${capture.name} is taken apart and put together again`, () => {
    const seen = capture.packets.map((packet) => {
      const at = where(capture, packet);
      const fields = parse(capture, packet);
      assertExplained(at, packet.payload, fields.opcode);
      const form = icrcForm(at, packet);
      if (form === 'doubled') quirks.push(at);
      // The one peer with the quirk has it on every FLUSH request and on nothing else.
      assert.is(form, fields.opcode === FLUSH ? 'doubled' : 'standard', `${at}: form of the ICRC`);
      assertRebuilt(at, packet, fields, form);
      return { packet, fields };
    });
    assertIndexed(capture, seen);
    assertLogged(capture, seen);
  });
}

test('no capture and no packet is missing', () => {
  for (const set of ['rxe', 'linux'] as const) {
    const ofSet = captures.filter((capture) => capture.set === set);
    const expected = EXPECTED[set];
    assert.is(ofSet.length, expected.captures, `captures of ${set}`);
    const packets = ofSet.reduce((sum, capture) => sum + capture.packets.length, 0);
    assert.is(packets, expected.packets, `packets of ${set}`);
    const quirky = quirks.filter((at) => at.startsWith(`${set}/`));
    assert.is(quirky.length, expected.flushes, `ICRCs that cover a packet of ${set} twice`);
    const skipped = ofSet.reduce((sum, capture) => sum + capture.skipped, 0);
    assert.is(skipped, 0, `frames of ${set} that are no packet`);
  }
  const cut = captures.filter(({ set, index }) => set === 'rxe' && index.length === INDEX_CUT);
  assert.equal(
    cut.map(({ name }) => name),
    ['cm_rping', 'perftest_write_lat_cm', 'rds_kernel'],
  );
});

test.run();
