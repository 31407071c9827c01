/**
 * Capsules, completions and structures: those that Linux's initiator and target exchanged
 * (nvme-connect-write-read), and malformed ones.
 */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { parseMad } from '../../../host/cm/mad.js';
import { NvmeStatus, nvmeStatusName, readPcap } from '../../../host/index.js';
import {
  buildCommand,
  buildCompletion,
  explainCapsule,
  explainCompletion,
  parseCommand,
  parseCompletion,
  type Command,
} from '../../../host/nvme/command.js';
import { NvmeEavesdropper } from '../../../host/nvme/eavesdropper.js';
import { namesOf } from '../../../host/nvme/identity.js';
import { Structure, text, u16, u64, u8 } from '../../../host/nvme/structure.js';
import {
  ConnectData,
  DiscoveryEntry,
  DiscoveryHeader,
  IdentifyController,
  IdentifyNamespace,
  RdmaAcceptData,
  RdmaRequestData,
  discoveryLog,
  namespaceDescriptors,
  namespaceList,
} from '../../../host/nvme/structures.js';
import { Random } from '../../simulation/random.js';
import { vectors } from '../../support/paths.js';
import { expectMisuse } from '../../support/refusal.js';

const [BTH, DETH, IETH, RETH, AETH, ICRC, IP_CM] = [12, 8, 4, 16, 4, 4, 36];
const HOST = '10.88.0.3';
/** The admin queue pairs: of the target, of the host. */
const ADMIN_TARGET = 0x4b;

interface Heard {
  readonly frame: number;
  readonly opcode: number;
  readonly fromHost: boolean;
  readonly qpn: number;
  /** Behind all headers. */
  readonly bytes: Uint8Array;
}

const HEADERS: Readonly<Record<number, number>> = {
  [Opcode.RC_SEND_ONLY]: BTH,
  [Opcode.RC_SEND_FIRST]: BTH,
  [Opcode.RC_SEND_ONLY_WITH_INVALIDATE]: BTH + IETH,
  [Opcode.RC_RDMA_WRITE_ONLY]: BTH + RETH,
  [Opcode.RC_RDMA_READ_RESPONSE_ONLY]: BTH + AETH,
  [Opcode.UD_SEND_ONLY]: BTH + DETH,
};

const capture: Heard[] = [];
const file = new URL('linux/nvme-connect-write-read.pcap', vectors);
for (const { frameNumber, payload, source } of readPcap(new Uint8Array(readFileSync(file)))) {
  const opcode = payload[0]!;
  const from = HEADERS[opcode];
  if (from === undefined) continue;
  const end = payload.length - ICRC - ((payload[1]! >> 4) & 3);
  const qpn = (payload[5]! << 16) | (payload[6]! << 8) | payload[7]!;
  const fromHost = source.gid.toString() === HOST;
  capture.push({ frame: frameNumber, opcode, fromHost, qpn, bytes: payload.slice(from, end) });
}

function frame(number: number): Heard {
  return capture.find((heard) => heard.frame === number)!;
}

const capsules = capture.filter(
  ({ opcode, fromHost }) =>
    fromHost && (opcode === Opcode.RC_SEND_ONLY || opcode === Opcode.RC_SEND_FIRST),
);

function parsed(number: number): Command {
  const { bytes, qpn } = frame(number);
  const command = parseCommand(bytes, qpn === ADMIN_TARGET);
  if (command.name === undefined) throw new Error(`frame ${number}: status ${command.status}`);
  return command;
}

test('every command of Linux’s initiator is known', () => {
  const names = capsules.map(({ frame: number }) => parsed(number).name);
  assert.is(names.length, 29);
  assert.equal(names.slice(0, 8), [
    'CONNECT',
    'PROPERTY_GET',
    'PROPERTY_SET',
    'PROPERTY_GET',
    'PROPERTY_SET',
    'PROPERTY_GET',
    'PROPERTY_GET',
    'IDENTIFY',
  ]);
  for (const name of ['SET_FEATURES', 'ASYNC_EVENT_REQUEST', 'GET_LOG_PAGE', 'FLUSH'] as const) {
    assert.ok(names.includes(name), name);
  }
});

test('a parsed command is built again, byte for byte', () => {
  for (const { frame: number, bytes } of capsules) {
    const command = parsed(number);
    const { name, cid, sgl, ...fields } = command;
    const again = buildCommand(name, cid, fields as never, sgl);
    const sent = bytes.slice(0, 64);
    // Linux leaves three bytes of an in-capsule descriptor as they were.
    if (sgl.kind === 'capsule') sent.fill(0, 36, 39);
    assert.equal(Buffer.from(again).toString('hex'), Buffer.from(sent).toString('hex'));
  }
});

test('a write in the capsule, one to be fetched, a read, as the capture has them', () => {
  const inside = parsed(133);
  assert.is(inside.name, 'WRITE');
  assert.equal(inside.sgl, { kind: 'capsule', offset: 0, length: 4096 });
  const fetched = parsed(144);
  assert.ok(fetched.name === 'WRITE');
  assert.is(fetched.slba, 16n);
  assert.is(fetched.nlb, 1);
  assert.equal(fetched.sgl, {
    kind: 'keyed',
    address: 0xff41990f06eb4000n,
    length: 8192,
    key: 0xcad5,
    invalidate: true,
  });
  const read = parsed(151);
  assert.ok(read.name === 'READ');
  assert.is(read.nsid, 1);
});

test('every completion of Linux’s target is read, and built again', () => {
  const sends: readonly number[] = [Opcode.RC_SEND_ONLY, Opcode.RC_SEND_ONLY_WITH_INVALIDATE];
  const answers = capture.filter(({ opcode, fromHost }) => !fromHost && sends.includes(opcode));
  assert.is(answers.length, 28);
  for (const { bytes } of answers) {
    const completion = parseCompletion(bytes);
    assert.is(completion.status, NvmeStatus.SUCCESS);
    assert.equal(buildCompletion(completion), bytes);
  }
  assert.is(parseCompletion(frame(12).bytes).result, 0x8200f00007fn);
});

test('private data of requests and replies, as Linux has them', () => {
  const of = (number: number): Uint8Array => {
    const mad = parseMad(frame(number).bytes);
    if (typeof mad === 'string' || (mad.name !== 'REQ' && mad.name !== 'REP')) throw new Error();
    return mad.privateData.subarray(mad.name === 'REQ' ? IP_CM : 0);
  };
  assert.equal(RdmaRequestData.read(of(1)), {
    ...{ recfmt: 0, qid: 0, hrqsize: 32, hsqsize: 31, cntlid: 0 },
  });
  assert.equal(RdmaRequestData.read(of(64)), {
    ...{ recfmt: 0, qid: 1, hrqsize: 16, hsqsize: 15, cntlid: 1 },
  });
  assert.equal(RdmaAcceptData.read(of(2)), { recfmt: 0, crqsize: 32 });
  assert.equal(RdmaAcceptData.read(of(65)), { recfmt: 0, crqsize: 16 });
  const built = RdmaRequestData.build({ qid: 1, hrqsize: 16, hsqsize: 15, cntlid: 1 });
  assert.equal(built, of(64).slice(0, 32));
});

test('the data of Connect, from memory and from a capsule', () => {
  const { subnqn, hostnqn, cntlid, hostid } = ConnectData.read(frame(7).bytes);
  assert.is(subnqn, 'nqn.test');
  assert.is(cntlid, 0xffff);
  assert.is(hostid[15], 0x88);
  assert.match(hostnqn, /^nqn\.2014-08\.org\.nvmexpress:uuid:0+/);
  const again = ConnectData.build({ subnqn, hostnqn, cntlid, hostid });
  assert.equal(again, frame(7).bytes);
  assert.is(ConnectData.read(frame(67).bytes.subarray(64)).cntlid, 1);
});

test('an eavesdropper decodes the commands of a capture', () => {
  const ear = new NvmeEavesdropper();
  const said = new Map<number, string>();
  for (const packet of readPcap(new Uint8Array(readFileSync(file)))) {
    const { payload, source, destination, frameNumber } = packet;
    const words = ear.hear(payload, `${source.gid}`, `${destination.gid}`);
    if (words !== '') said.set(frameNumber, words);
  }
  assert.is(said.size, 29 + 28);
  assert.match(said.get(10)!, 'NVMe PROPERTY_GET');
  assert.match(said.get(46)!, 'NVMe GET_LOG_PAGE');
  assert.match(said.get(107)!, 'NVMe READ 13 namespace 1');
  assert.match(said.get(133)!, 'NVMe WRITE');
  assert.match(said.get(149)!, 'NVMe completion of 20494 in queue 1: SUCCESS');
  assert.is(ear.hear(new Uint8Array(3), '', ''), '');
});

test('the identity of Linux’s target is parsed at its offsets', () => {
  const controller = IdentifyController.read(frame(36).bytes);
  assert.is(controller.mn, 'Linux');
  assert.is(controller.fr, '6.12.117');
  assert.is(controller.cntlid, 1);
  assert.is(controller.ver, 0x10300);
  assert.is(controller.cntrltype, 1);
  assert.is(controller.kas, 10);
  assert.is(controller.sqes, 0x66);
  assert.is(controller.cqes, 0x44);
  assert.is(controller.sgls & 0x100005, 0x100005);
  const namespace = IdentifyNamespace.read(frame(97).bytes);
  assert.is(namespace.nsze, 1024n);
  assert.is(namespace.lbads, 12);
  assert.equal(namespaceList([1], 0), frame(85).bytes);
});

test('a structure refuses what does not fit, and reads nothing that is not there', () => {
  const small = new Structure(16, { a: u8(0), b: u16(2), c: u64(4), d: text(12, 4) });
  expectMisuse(() => small.build({ a: 256 }));
  expectMisuse(() => small.build({ b: -1 }));
  expectMisuse(() => small.build({ b: 1.5 }));
  expectMisuse(() => small.build({ c: 1n << 64n }));
  expectMisuse(() => small.build({ d: 'four' }));
  expectMisuse(() => small.build({ d: '\n' }));
  expectMisuse(() => small.read(new Uint8Array(15)));
  const values = { a: 255, b: 65535, c: (1n << 64n) - 1n, d: 'abc' };
  assert.equal(small.read(small.build(values)), values);
});

test('a discovery log has a header and an entry for each subsystem', () => {
  const at = { traddr: '192.0.2.7', trsvcid: '4420', isIpv4: true, portid: 1, asqsz: 32 };
  const page = discoveryLog([{ subnqn: 'nqn.a', ...at }], 3n);
  assert.is(page.length, 2048);
  assert.equal(DiscoveryHeader.read(page), { genctr: 3n, numrec: 1n, recfmt: 0 });
  const entry = DiscoveryEntry.read(page.subarray(1024));
  assert.is(entry.subnqn, 'nqn.a');
  assert.is(entry.traddr, '192.0.2.7');
  assert.is(entry.trtype, 1);
  assert.is(entry.adrfam, 1);
});

test('names of a subsystem are its own, and the same again', () => {
  assert.equal(namesOf('nqn.a'), namesOf('nqn.a'));
  assert.not.equal(namesOf('nqn.a').uuid, namesOf('nqn.b').uuid);
  const list = namespaceDescriptors([{ nidt: 3, nid: namesOf('nqn.a').uuid }]);
  assert.equal([...list.subarray(0, 4)], [3, 16, 0, 0]);
  assert.equal(list.slice(4, 20), namesOf('nqn.a').uuid);
});

test('hostile entries get a status or a command, and never more than they have', () => {
  const random = new Random(7);
  const known = capsules.map(({ bytes }) => bytes.subarray(0, 64));
  let refused = 0;
  for (let turn = 0; turn < 20_000; turn++) {
    const entry = new Uint8Array(64);
    const model = known[random.below(known.length)]!;
    if (turn % 2 === 0) for (let at = 0; at < 64; at++) entry[at] = random.below(256);
    else {
      entry.set(model);
      for (let flips = random.between(1, 4); flips > 0; flips--) {
        entry[random.below(64)] = random.below(256);
      }
    }
    const command = parseCommand(entry, turn % 3 === 0);
    if (command.name === undefined) {
      refused++;
      assert.ok(nvmeStatusName(command.status).length > 0);
      assert.ok(command.status > 0 && command.status < 0x800);
    } else {
      const { name, cid, sgl, ...fields } = command;
      const again = parseCommand(buildCommand(name, cid, fields as never, sgl), turn % 3 === 0);
      assert.equal(again, command);
    }
  }
  assert.ok(refused > 5000 && refused < 19_000, `${refused}`);
});

test('an unknown command, or one of another queue type, is refused with its status', () => {
  const entry = buildCommand('READ', 1, { nsid: 1 });
  const status = (change: (entry: Uint8Array) => void, isAdmin = false): number | undefined => {
    const copy = entry.slice();
    change(copy);
    const command = parseCommand(copy, isAdmin);
    return command.name === undefined ? command.status : undefined;
  };
  assert.is(
    status(() => {}),
    undefined,
  );
  assert.is(
    status((copy) => (copy[0] = 0x7e)),
    NvmeStatus.INVALID_OPCODE,
  );
  assert.is(
    status((copy) => (copy[0] = 0x06)),
    NvmeStatus.INVALID_OPCODE,
  );
  assert.is(
    status((copy) => (copy[1] = 0x00)),
    NvmeStatus.INVALID_FIELD,
  );
  assert.is(
    status((copy) => (copy[1] = 0x41)),
    NvmeStatus.INVALID_FIELD,
  );
  assert.is(
    status((copy) => (copy[39] = 0x20)),
    NvmeStatus.SGL_DESCRIPTOR_TYPE_INVALID,
  );
  assert.is(
    status((copy) => {
      copy[39] = 0x01;
      copy[31] = 1;
    }),
    NvmeStatus.SGL_OFFSET_INVALID,
  );
  assert.is(
    status((copy) => (copy[0] = 0x01), true),
    NvmeStatus.INVALID_OPCODE,
  );
});

test('capsules and completions in words', () => {
  assert.is(
    explainCapsule(frame(144).bytes, false),
    'NVMe WRITE 20494 namespace 1 slba 0x10 nlb 0x1, 8192 bytes at 0xff41990f06eb4000 with key 0xcad5 (to be invalidated)',
  );
  assert.is(
    explainCompletion(frame(62).bytes),
    'NVMe completion of 4114 in queue 0: SUCCESS, result 0x7f007f',
  );
  assert.is(explainCapsule(new Uint8Array(63), false), undefined);
  assert.is(explainCompletion(new Uint8Array(15)), undefined);
});

test.run();
