import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { AsyncEvent, Opcode, OpcodeName, VendorError } from '#build/abi.js';
import {
  explainAsyncEvent,
  explainErrno,
  explainFields,
  explainPacket,
  explainPacketStatus,
  explainSyndrome,
  explainWcStatus,
  parseConfig,
} from '../../../host/engine/explain.js';
import { MisuseError } from '../../../host/errors/errors.js';

/** Bytes from text: hexadecimal digits, blanks as you like, an ICRC of `a1a2a3a4` at the end. */
function packet(...parts: string[]): Uint8Array {
  return Uint8Array.from(Buffer.from([...parts, 'a1a2a3a4'].join('').replace(/\s/g, ''), 'hex'));
}

/** A BTH to queue pair 25, PSN 256, default partition. */
function bth(opcode: number, { bits = '00', last = '00', pkey = 'ffff', congestion = '00' } = {}) {
  return `${hex(opcode, 2)}${bits}${pkey}${congestion}000019${last}000100`;
}

const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0');
const zeros = (count: number): string => '00'.repeat(count);
const RETH = '00007f23a4c01000 000013b7 00000400';
const TO = 'to queue pair 0x000019, PSN 256';

/** Opcodes and the bytes of their headers, after the table of the specification. */
const RC_HEADERS: [number, number][] = [
  ...[0x00, 0x01, 0x02, 0x04, 0x07, 0x08, 0x0e].map((op): [number, number] => [op, 12]),
  ...[0x03, 0x05, 0x09, 0x0d, 0x0f, 0x10, 0x11, 0x16, 0x17].map((op): [number, number] => [op, 16]),
  ...[0x06, 0x0a, 0x0c, 0x1d].map((op): [number, number] => [op, 28]),
  [0x0b, 32],
  [0x12, 24],
  [0x13, 40],
  [0x14, 40],
  [0x1c, 32],
];
const UC_HEADERS = RC_HEADERS.filter(([op]) => op <= 0x0b).map(([op, size]): [number, number] => [
  op + 0x20,
  size,
]);
const ALL_HEADERS: [number, number][] = [
  ...RC_HEADERS,
  ...UC_HEADERS,
  [0x64, 20],
  [0x65, 24],
  [0x81, 28],
  [0xe0, 32],
];

test('each opcode has its name', () => {
  for (const [opcode, size] of ALL_HEADERS) {
    const [title] = explainPacket(packet(bth(opcode), zeros(size - 12))).split(',');
    const words = title!.replace('immediate', 'imm').toUpperCase().split(' ').join('_');
    assert.is(words.split(':')[0], (OpcodeName as Record<number, string>)[opcode], title);
  }
  assert.is(ALL_HEADERS.length, Object.keys(Opcode).length);
});

test('a write says how much goes where, with which key', () => {
  const bytes = packet(bth(0x0a, { last: '80' }), RETH, zeros(1024));
  assert.is(
    explainPacket(bytes),
    'RC RDMA WRITE Only, 1024 bytes to address 0x7f23a4c01000, key 0x000013b7; ' +
      `${TO}, asks for an acknowledgement`,
  );
});

test('the first packet of a write says how much is still to come', () => {
  const reth = '00007f23a4c01000 000013b7 00010000';
  assert.is(
    explainPacket(packet(bth(0x26), reth, zeros(256))),
    'UC RDMA WRITE First, the first 256 bytes of 65536 to address 0x7f23a4c01000, ' +
      `key 0x000013b7; ${TO}`,
  );
});

test('a packet in the middle of a message that does not fill an MTU is noticed', () => {
  assert.match(explainPacket(packet(bth(0x01), zeros(100))), 'no path MTU');
  assert.not.match(explainPacket(packet(bth(0x01), zeros(1024))), 'no path MTU');
});

test('sends tell about immediate, invalidate, solicited event and partition', () => {
  const immediate = packet(bth(0x05, { bits: '90', pkey: '8001' }), 'deadbeef', '61626300');
  assert.is(
    explainPacket(immediate),
    'RC SEND Only with immediate, 3 bytes, immediate 0xdeadbeef; ' +
      `${TO}, partition 0x8001, solicited event`,
  );
  assert.is(
    explainPacket(packet(bth(0x17), '000013b7')),
    `RC SEND Only with invalidate, no payload, invalidates key 0x000013b7; ${TO}`,
  );
});

test('datagrams tell their Q_Key and where they come from', () => {
  const deth = '11111111 00000123';
  assert.is(
    explainPacket(packet(bth(0x65), deth, '00000007', '00000000')),
    'UD SEND Only with immediate, 4 bytes, immediate 0x00000007, from queue pair 0x000123, ' +
      `Q_Key 0x11111111; ${TO}`,
  );
});

test('acknowledgements are put in words', () => {
  const aeth = (syndrome: string): string => explainPacket(packet(bth(0x11), syndrome, '000005'));
  assert.is(aeth('1f'), `RC Acknowledge, ACK, message 5; ${TO}`);
  assert.is(aeth('07'), `RC Acknowledge, ACK with 12 credits, message 5; ${TO}`);
  assert.match(aeth('2e'), 'RNR NAK, receiver not ready, try again in 1.28 ms');
  assert.match(aeth('20'), 'try again in 655.36 ms');
  assert.match(aeth('21'), 'try again in 10 us');
  assert.match(aeth('60'), 'NAK 0x60, packet sequence error');
  assert.match(aeth('61'), 'NAK 0x61, invalid request');
  assert.match(aeth('62'), 'NAK 0x62, remote access error');
  assert.match(aeth('63'), 'NAK 0x63, remote operational error');
  assert.match(aeth('6f'), 'NAK 0x6f, reserved code 15');
  assert.match(aeth('47'), 'reserved syndrome 0x47');
  assert.match(aeth('9f'), 'reserved syndrome 0x9f');
});

test('atomics show their operands', () => {
  const target = '00007f23a4c01000 000013b7';
  const operands = '0000000000000005 fedcba9876543210';
  assert.is(
    explainPacket(packet(bth(0x13), target, operands)),
    'RC Compare Swap, puts 0x0000000000000005 where 0xfedcba9876543210 is ' +
      `at address 0x7f23a4c01000, key 0x000013b7; ${TO}`,
  );
  assert.is(
    explainPacket(packet(bth(0x14), target, operands)),
    `RC Fetch Add, adds 0x0000000000000005 at address 0x7f23a4c01000, key 0x000013b7; ${TO}`,
  );
  assert.is(
    explainPacket(packet(bth(0x12), '1f000005', '000000000000002a')),
    `RC ATOMIC Acknowledge, ACK, message 5, the value before was 0x000000000000002a; ${TO}`,
  );
});

test('an atomic write shows its eight bytes as they will lie in memory', () => {
  const reth = '00007f23a4c01000 000013b7 00000008';
  assert.is(
    explainPacket(packet(bth(0x1d), reth, '0102030405060708')),
    'RC ATOMIC WRITE, stores the bytes 01 02 03 04 05 06 07 08 ' +
      `at address 0x7f23a4c01000, key 0x000013b7; ${TO}`,
  );
  assert.match(explainPacket(packet(bth(0x1d), reth, '01020304')), '4 bytes where there must be 8');
});

test('a flush says what becomes visible or persistent', () => {
  const flush = (feth: string): string => explainPacket(packet(bth(0x1c), feth, RETH));
  assert.is(
    flush('00000003'),
    'RC FLUSH, makes 1024 bytes at address 0x7f23a4c01000, key 0x000013b7, ' +
      `globally visible and persistent; ${TO}`,
  );
  assert.match(flush('00000001'), ', globally visible;');
  assert.match(flush('00000012'), 'the whole memory region of key 0x000013b7, persistent;');
  assert.match(flush('00000000'), 'no placement type');
  assert.match(flush('00000021'), 'reserved selectivity 2');
});

test('a selective acknowledgement says what it acknowledges, and what has only arrived', () => {
  const said = (syndrome: string, low: string): string =>
    explainPacket(packet(bth(0xe0), syndrome, '000005', low, zeros(8))).split('; ')[0]!;
  const missing = 'this packet has not, 2 of the 128 behind it have';
  const [one, two] = [zeros(8), `${zeros(7)}06`];
  assert.match(
    said('60', two),
    new RegExp(`everything before has arrived, ${missing}, message 5$`),
  );
  assert.match(said('1f', one), /everything before has arrived, and waits for a FLUSH, message 5$/);
  assert.match(said('1f', two), new RegExp(`, and waits for a FLUSH, ${missing}, message 5$`));
});

test('congestion is named, in notifications and in marks', () => {
  assert.match(explainPacket(packet(bth(0x81), zeros(16))), /^CNP, congestion notification/);
  const marked = explainPacket(packet(bth(0x04, { congestion: 'c0' })));
  assert.match(marked, 'FECN');
  assert.match(marked, 'BECN');
});

test('malformed bytes are explained by their defect, with the numbers', () => {
  assert.is(explainPacket(new Uint8Array(11)), 'truncated: 11 bytes, a BTH and an ICRC need 16');
  assert.is(explainPacket(new Uint8Array(0)), 'truncated: 0 bytes, a BTH and an ICRC need 16');
  assert.match(explainPacket(new Uint8Array(4996)), 'too long: 4996 bytes');
  assert.match(explainPacket(new Uint8Array(17)), 'unaligned: 17 bytes');
  assert.match(explainPacket(packet(bth(0x15))), 'unknown opcode 0x15: the RC service has no such');
  assert.match(explainPacket(packet(bth(0x44))), 'RD service, which is not supported');
  assert.match(explainPacket(packet(bth(0xcf))), 'name no transport service');
  assert.match(explainPacket(packet(bth(0x04, { bits: '03' }))), 'transport version 3');
  assert.is(
    explainPacket(packet(bth(0x0a))),
    'cut short: 16 bytes, the headers of RC RDMA WRITE Only (28), a pad of 0 and the ICRC (4) ' +
      'need 32',
  );
  assert.is(
    explainPacket(packet(bth(0x11), '1f000005', zeros(8))),
    'unexpected payload: RC Acknowledge has none, but 8 bytes lie between headers and ICRC',
  );
});

test('every opcode has a title and a name, and fields in wire order', () => {
  const names = new Set<string>();
  for (const [opcode, size] of ALL_HEADERS) {
    const bytes = packet(bth(opcode), zeros(size - 12));
    assert.match(explainPacket(bytes), /^(RC|UC|UD|MSP|CNP)/);
    const fields = explainFields(bytes);
    if (fields.status !== 'OK') throw new Error(`${opcode}: ${fields.reason}`);
    assert.is(fields.payload.offset, size);
    assert.match(fields.bth.name ?? '', /^(RC|UC|UD|MSP)_[A-Z_]+[A-Z]$|^CNP$/);
    names.add(fields.bth.name ?? '');
  }
  assert.is(names.size, 41);
});

test('fields come as typed numbers, 64-bit ones as text', () => {
  const bytes = packet(bth(0x1c, { last: '80', bits: 'c0' }), '00000013', RETH);
  const fields = explainFields(bytes);
  assert.equal(fields, {
    status: 'OK',
    length: 36,
    bth: {
      opcode: 0x1c,
      name: 'RC_FLUSH',
      solicited: true,
      migration: true,
      padCount: 0,
      version: 0,
      pkey: 0xffff,
      fecn: false,
      becn: false,
      targetQp: 25,
      ackRequest: true,
      psn: 256,
    },
    feth: { selectivity: 'MR', placement: ['GLOBAL', 'PERSISTENT'] },
    reth: { virtualAddress: '0x00007f23a4c01000', key: 0x13b7, dmaLength: 1024 },
    payload: { offset: 32, length: 0 },
    icrc: '0xa4a3a2a1',
  });
  assert.equal(Object.keys(fields), ['status', 'length', 'bth', 'feth', 'reth', 'payload', 'icrc']);
});

test('fields of a syndrome follow its kind', () => {
  const aeth = (syndrome: string) => {
    const fields = explainFields(packet(bth(0x11), syndrome, '000005'));
    return fields.status === 'OK' ? fields.aeth : undefined;
  };
  assert.equal(aeth('1f'), { syndrome: 0x1f, kind: 'ACK', msn: 5 });
  assert.equal(aeth('1e'), { syndrome: 0x1e, kind: 'ACK', credits: 32768, msn: 5 });
  assert.equal(aeth('2e'), { syndrome: 0x2e, kind: 'RNR_NAK', waitMicros: 1280, msn: 5 });
  assert.equal(aeth('62'), { syndrome: 0x62, kind: 'NAK', code: 'REMOTE_ACCESS_ERROR', msn: 5 });
});

test('fields of malformed bytes have a reason, and a BTH when there is one', () => {
  assert.equal(explainFields(new Uint8Array(3)), {
    status: 'TRUNCATED',
    length: 3,
    reason: 'truncated: 3 bytes, a BTH and an ICRC need 16',
  });
  const fields = explainFields(packet(bth(0x15)));
  assert.is(fields.status, 'UNKNOWN_OPCODE');
  assert.is(fields.bth?.name, null);
  assert.is(fields.bth?.targetQp, 25);
});

test('random bytes of any length get a sentence and valid JSON, never a trap', () => {
  let seed = 0x9e3779b9;
  const random = (): number => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed >>> 8;
  };
  for (let round = 0; round < 6000; round++) {
    // Half of them short, where the headers are; half of those with a known opcode.
    const length = round & 1 ? random() % 5001 : random() % 80;
    const bytes = Uint8Array.from({ length }, () => random());
    if (round & 2 && length > 1) {
      bytes[0] = ALL_HEADERS[random() % ALL_HEADERS.length]![0];
      bytes[1]! &= 0xf0;
    }
    assert.ok(explainPacket(bytes).length > 20);
    assert.is(explainFields(bytes).length, length);
  }
});

test('a subarray is explained from its own first byte', () => {
  const bytes = packet(bth(0x04));
  const larger = new Uint8Array(100).fill(0xee);
  larger.set(bytes, 37);
  assert.is(explainPacket(larger.subarray(37, 37 + bytes.length)), explainPacket(bytes));
});

test('every completion status says what it means and what to try', () => {
  const sentences = Array.from({ length: 22 }, (_, status) => explainWcStatus(status));
  assert.is(new Set(sentences).size, 22);
  for (const [status, sentence] of sentences.entries()) {
    if (status > 0) assert.match(sentence, 'Try: ');
  }
  assert.match(sentences[12]!, 'The peer did not answer within timeout x (retry_cnt + 1) tries.');
  const silent = sentences[12]!;
  const dropped = explainWcStatus(12, VendorError.PATH_MTU + 4096);
  assert.match(dropped, /none of path MTU 4096.* IP MTU of 4208 .*pathMtu MTU_1024/);
  // Of the payload beside a path MTU the remedy is a path MTU.
  for (const [bytes, remedy] of [
    [1344, 1024],
    [600, 512],
    [512, 256],
  ] as const) {
    assert.match(explainWcStatus(12, VendorError.PATH_MTU + bytes), `MTU_${remedy} `);
  }
  const refused = explainWcStatus(12, VendorError.PATH_MTU_REFUSED + 1024);
  assert.match(refused, /refused packets of path MTU 1024 \(EMSGSIZE\).*pathMtu MTU_512/);
  assert.equal([explainWcStatus(12, 0), explainWcStatus(10, 0x10400)], [silent, sentences[10]]);
  for (const unknown of [-1, 22, 2 ** 31 - 1]) {
    assert.is(
      explainWcStatus(unknown),
      `There is no completion status ${unknown}; they are 0 to 21.`,
    );
  }
});

test('every syndrome, packet status, event and errno has a sentence of its own', () => {
  const syndromes = Array.from({ length: 256 }, (_, syndrome) => explainSyndrome(syndrome));
  assert.is(new Set(syndromes).size, 256);
  assert.match(explainSyndrome(0x2e), '1.28 ms (timer code 14)');
  assert.match(explainSyndrome(256), '256 is not a syndrome');
  const events = Array.from({ length: 20 }, (_, event) => explainAsyncEvent(event));
  events.push(explainAsyncEvent(AsyncEvent.PATH_MTU_ERR));
  assert.is(new Set(events).size, 21);
  assert.match(explainAsyncEvent(20), 'There is no asynchronous event 20');
  const statuses = Array.from({ length: 8 }, (_, status) => explainPacketStatus(status));
  assert.is(new Set(statuses).size, 8);
  assert.match(explainPacketStatus(8), 'There is no packet status 8');
  for (const [errno, name] of [
    [1, 'EPERM'],
    [11, 'EAGAIN'],
    [12, 'ENOMEM'],
    [13, 'EACCES'],
    [16, 'EBUSY'],
    [22, 'EINVAL'],
    [28, 'ENOSPC'],
    [95, 'EOPNOTSUPP'],
  ] as const) {
    assert.match(explainErrno(errno), new RegExp(`^${name}: .* Try: `));
  }
  assert.match(explainErrno(7), 'No verb answers with the errno 7');
});

test('options are read with sizes, durations, booleans, hexadecimal and text', () => {
  const text = `
    address=10.0.0.1, port = 4791; # the usual port
    peer=fe80::1%eth0, name="a, b # \\"c\\"" , empty=""
    arenaBytes=64M
    windowBytes=1.5k, timeoutMicros=16ms, idle=2s, short=250us
    qkey=0x11111111, loss=0.25, offset=-3, on=yes, off=false, mtu=4k, umlaut=äöü`;
  assert.equal(parseConfig(text), {
    address: '10.0.0.1',
    port: 4791,
    peer: 'fe80::1%eth0',
    name: 'a, b # "c"',
    empty: '',
    arenaBytes: 64 * 1024 * 1024,
    windowBytes: 1536,
    timeoutMicros: 16000,
    idle: 2000000,
    short: 250,
    qkey: 0x11111111,
    loss: 0.25,
    offset: -3,
    on: true,
    off: false,
    mtu: 4096,
    umlaut: 'äöü',
  });
  assert.equal(parseConfig(''), {});
  assert.equal(parseConfig('# nothing\n;,'), {});
});

test('a mistake in the options is found by line and column', () => {
  const wrong = (text: string): string => {
    try {
      parseConfig(text);
    } catch (error) {
      assert.instance(error, MisuseError);
      return (error as MisuseError).message;
    }
    throw new Error('accepted');
  };
  assert.is(wrong('a=1\nb 2'), 'config: line 2, column 3: expected "=" after b');
  assert.is(wrong('a=1, a=2'), 'config: line 1, column 6: duplicate name a');
  assert.match(wrong('a=1,\n b=10x'), 'line 2, column 6: "x" is no unit');
  assert.match(wrong('a="b'), 'line 1, column 3: this quotation mark is never closed');
  assert.match(wrong('a="b\\'), 'never closed');
  assert.match(wrong('a="b"c'), 'line 1, column 6');
  assert.match(wrong('a='), 'line 1, column 3: expected a value');
  assert.match(wrong('=1'), 'line 1, column 1: an option begins with its name');
  assert.match(wrong('a=0xfg'), 'line 1, column 6: 0xfg is no hexadecimal number');
  assert.match(wrong('a=0x'), '0x is no hexadecimal number');
  assert.match(wrong('a=0.3us'), '0.3us is no whole number of us');
  assert.match(wrong('a=9007199254740993'), 'beyond 2^53 - 1');
});

test.run();
