/**
 * Memory layouts: every worked example and figure of their proposal ("Non-contiguous memory
 * registration", OpenFabrics workshop 2018), with bytes written by hand.
 */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MisuseError,
  SendFlag,
  WcStatusName,
  WrOpcode,
  imageTile,
  matrixBlock,
  matrixColumn,
  mpiIndexed,
  mpiVector,
  structsAsArrays,
  type LayoutMemoryRegion,
  type MrLayoutInterleaved,
  type Sge,
} from '../../../../host/index.js';
import { ALL_ACCESS, makePair, type Pair } from '../../../support/pair.js';
import { testsIn } from '../../../support/tests-in.js';

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, ZERO_BASED } = AccessFlag;
const READABLE = ZERO_BASED | REMOTE_READ;
const EVERY = ZERO_BASED | LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE;

async function onPair(body: (pair: Pair) => void | Promise<void>, bytes = 1 << 20): Promise<void> {
  const pair = await makePair({ bytes });
  try {
    await body(pair);
  } finally {
    await pair.close();
  }
}

const test = testsIn(onPair);

/** Completion statuses of side a, when all that was posted is done. */
function statuses(pair: Pair, count: number): string[] {
  pair.settle();
  return pair.a.cq.poll(count).map(({ status }) => WcStatusName[status]!);
}

/** One SEND of these bytes from a; what b received. */
function send(pair: Pair, sge: Sge): Uint8Array {
  const { a, b } = pair;
  const room = b.context.alloc(Number(sge.length) + 64);
  const mr = b.pd.regMr(room, ALL_ACCESS);
  b.qp.postRecv({ sgList: [{ addr: mr.addr, length: room.length, lkey: mr.lkey }] });
  a.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList: [sge] });
  assert.equal(statuses(pair, 1), ['SUCCESS']);
  const [received] = b.cq.poll(1);
  assert.is(received!.byteLen, sge.length);
  return room.slice(0, Number(sge.length));
}

/** The whole stream, as a SEND shows it. */
function shown(pair: Pair, layout: LayoutMemoryRegion): number[] {
  return [...send(pair, { addr: 0, length: layout.length, lkey: layout.lkey })];
}

test('the column: 8 data of 8 bytes at stride 64, from addr + 8', (pair) => {
  const { a } = pair;
  a.buffer.set(Array.from({ length: 512 }, (_, at) => (at >> 6) * 16 + ((at >> 3) & 7)));
  const column = a.pd.regMr(null, 0, READABLE);
  const first = { addr: a.mr.addr + 8n, length: 8, lkey: a.mr.lkey };
  const dims = [{ offsetStride: 64, datumCount: 8 }];
  column.setLayoutInterleaved(0, [{ firstDatum: first, numRepeated: 1, dims }]);
  assert.is(column.length, 64);
  // Row r holds 16 r + c in every byte of its column c; this is column 1.
  const rows = [0x01, 0x11, 0x21, 0x31, 0x41, 0x51, 0x61, 0x71];
  assert.equal(
    shown(pair, column),
    rows.flatMap((byte) => new Array<number>(8).fill(byte)),
  );
});

test('the column as a list of N entries, which is the way of today', (pair) => {
  const { a } = pair;
  a.buffer.set(Array.from({ length: 512 }, (_, at) => (at >> 6) * 16 + ((at >> 3) & 7)));
  const column = a.pd.regMr(null, 0, READABLE);
  const list = Array.from({ length: 8 }, (_, row) => ({
    addr: a.mr.addr + 8n + 64n * BigInt(row),
    length: 8,
    lkey: a.mr.lkey,
  }));
  column.setLayoutSg(0, list);
  const rows = [0x01, 0x11, 0x21, 0x31, 0x41, 0x51, 0x61, 0x71];
  assert.equal(
    shown(pair, column),
    rows.flatMap((byte) => new Array<number>(8).fill(byte)),
  );
});

test('interleaved: 512 of every 3072 bytes with 8 of every 48, 100 times', (pair) => {
  const { a } = pair;
  const [one, two] = [a.context.alloc(100 * 3072), a.context.alloc(100 * 48)];
  // Every datum is filled with its number; what lies between is 0xee.
  one.fill(0xee);
  two.fill(0xee);
  for (let index = 0; index < 100; index++) {
    one.fill(index, index * 3072, index * 3072 + 512);
    two.fill(100 + index, index * 48, index * 48 + 8);
  }
  const [mr1, mr2] = [a.pd.regMr(one, REMOTE_READ), a.pd.regMr(two, REMOTE_READ)];
  const layout = a.pd.regMr(null, 0, READABLE);
  layout.setLayoutInterleaved(0, [
    {
      firstDatum: { addr: mr1.addr, length: 512, lkey: mr1.lkey },
      numRepeated: 1,
      dims: [{ offsetStride: 3072, datumCount: 100 }],
    },
    {
      firstDatum: { addr: mr2.addr, length: 8, lkey: mr2.lkey },
      numRepeated: 1,
      dims: [{ offsetStride: 48, datumCount: 100 }],
    },
  ]);
  assert.is(layout.length, 52_000);
  const stream = shown(pair, layout);
  for (let cycle = 0; cycle < 100; cycle++) {
    const bytes = stream.slice(cycle * 520, cycle * 520 + 520);
    assert.ok(bytes.slice(0, 512).every((byte) => byte === cycle));
    assert.ok(bytes.slice(512).every((byte) => byte === 100 + cycle));
  }
});

test('three dimensions: of a cube, the face that lies across all rows and planes', (pair) => {
  const { a } = pair;
  // M = 5 numbers a row, N = 3 rows a plane, O = 2 planes; at (m, n, o) is 100 o + 10 n + m.
  const [M, N, O] = [5, 3, 2];
  const cube = new Uint32Array(a.buffer.buffer, a.buffer.byteOffset, M * N * O);
  cube.set(
    Array.from({ length: M * N * O }, (_, at) => {
      const [m, n, o] = [at % M, Math.floor(at / M) % N, Math.floor(at / (M * N))];
      return 100 * o + 10 * n + m;
    }),
  );
  const face = a.pd.regMr(null, 0, READABLE);
  face.setLayoutInterleaved(0, [
    {
      firstDatum: { addr: a.mr.addr + 4n * 2n, length: 4, lkey: a.mr.lkey },
      numRepeated: 1,
      dims: [
        { offsetStride: 4 * M, datumCount: N },
        { offsetStride: 4 * M * N, datumCount: O },
      ],
    },
  ]);
  const bytes = new Uint8Array(shown(pair, face));
  assert.equal([...new Uint32Array(bytes.buffer)], [2, 12, 22, 102, 112, 122]);
});

/**
 * The figure's strides are counted in elements of 4 bytes (2, 4 and 5: the columns of its three
 * tables); offsetStride is bytes, so they are 8, 16 and 20 here. Its counts are of data: 18 are 6
 * cycles of 3.
 */
function vertices({ a }: Pair): MrLayoutInterleaved[] {
  const table = (address: bigint, numRepeated: number, columns: number): MrLayoutInterleaved => ({
    firstDatum: { addr: address, length: 4, lkey: a.mr.lkey },
    numRepeated,
    dims: [{ offsetStride: 4 * columns, datumCount: 6 * numRepeated }],
  });
  return [table(a.mr.addr, 3, 2), table(a.mr.addr + 1024n, 3, 4), table(a.mr.addr + 2048n, 2, 5)];
}

test('vertices: X Y Z, R G B, S T from three tables, 3 : 3 : 2 in six cycles', (pair) => {
  const { a } = pair;
  a.buffer.fill(0xee);
  const letter = (at: number, name: string, vertex: number): void => {
    a.buffer.set([name.charCodeAt(0), 0x30 + vertex, 0, 0], at);
  };
  for (let vertex = 1; vertex <= 6; vertex++) {
    [...'XYZ'].forEach((name, row) => letter(8 * (3 * (vertex - 1) + row), name, vertex));
    [...'RGB'].forEach((name, row) => letter(1024 + 16 * (3 * (vertex - 1) + row), name, vertex));
    [...'ST'].forEach((name, row) => letter(2048 + 20 * (2 * (vertex - 1) + row), name, vertex));
  }
  const layout = a.pd.regMr(null, 0, READABLE);
  layout.setLayoutInterleaved(0, vertices(pair));
  assert.is(layout.length, 192);
  const stream = shown(pair, layout);
  const words = Array.from({ length: 48 }, (_, at) =>
    String.fromCharCode(stream[4 * at]!, stream[4 * at + 1]!),
  );
  // The map of the figure: three vertices, 96 bytes.
  assert.is(
    words.slice(0, 24).join(' '),
    'X1 Y1 Z1 R1 G1 B1 S1 T1 X2 Y2 Z2 R2 G2 B2 S2 T2 X3 Y3 Z3 R3 G3 B3 S3 T3',
  );
  assert.is(words.slice(40).join(' '), 'X6 Y6 Z6 R6 G6 B6 S6 T6');
});

test('varm: imap 4 and 22 pick a … l out of a buffer of 7 by 11', (pair) => {
  const { a } = pair;
  // The map of ncmpi_put_varm: in the figure's buffer of 7 rows and 11 columns, imap[0] = 4 goes
  // from letter to letter and imap[1] = 22 from one row of letters to the next.
  const rows = [
    'a...b...c..',
    '...........',
    'd...e...f..',
    '...........',
    'g...h...i..',
    '...........',
    'j...k...l..',
  ];
  a.buffer.set([...rows.join('')].map((cell) => cell.charCodeAt(0)));
  const layout = a.pd.regMr(null, 0, READABLE);
  layout.setLayoutInterleaved(0, [
    {
      firstDatum: { addr: a.mr.addr, length: 1, lkey: a.mr.lkey },
      dims: [
        { offsetStride: 4, datumCount: 3 },
        { offsetStride: 22, datumCount: 4 },
      ],
    },
  ]);
  assert.is(String.fromCharCode(...shown(pair, layout)), 'abcdefghijkl');
});

test('composite: three regions, each with a key of its own', (pair) => {
  const { a } = pair;
  const parts = [1, 2, 3].map((number) => {
    const buffer = a.context.alloc(4096).fill(number);
    return a.pd.regMr(buffer, REMOTE_READ);
  });
  const layout = a.pd.regMr(null, 0, READABLE);
  const lengths = [10, 4096, 7];
  layout.setLayoutSg(
    0,
    parts.map((mr, index) => ({ addr: mr.addr, length: lengths[index]!, lkey: mr.lkey })),
  );
  const expected = lengths.flatMap((length, index) => new Array<number>(length).fill(index + 1));
  assert.equal(shown(pair, layout), expected);
});

test('a peer reads and writes through the layout’s key, and sees bytes in a row', (pair) => {
  const { a, b } = pair;
  b.buffer.set(Array.from({ length: 4096 }, (_, at) => at >> 3));
  const column = b.pd.regMr(null, 0, EVERY);
  const firstDatum = { addr: b.mr.addr + 8n, length: 8, lkey: b.mr.lkey };
  column.setLayoutInterleaved(0, [{ firstDatum, dims: [{ offsetStride: 64, datumCount: 8 }] }]);
  const whole: Sge = { addr: a.mr.addr, length: 64, lkey: a.mr.lkey };
  const rdma = { remoteAddr: 0, rkey: column.rkey };
  const sendFlags = SendFlag.SIGNALED;
  a.qp.postSend({ opcode: WrOpcode.RDMA_READ, sendFlags, sgList: [whole], rdma });
  assert.equal(statuses(pair, 1), ['SUCCESS']);
  const rows = [1, 9, 17, 25, 33, 41, 49, 57];
  assert.equal(
    [...a.buffer.subarray(0, 64)],
    rows.flatMap((byte) => new Array<number>(8).fill(byte)),
  );
  // Into the middle of the fourth datum and beyond: bytes 28 to 43 of the stream.
  a.buffer.fill(0xff, 0, 16);
  a.qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags,
    sgList: [{ ...whole, length: 16 }],
    rdma: { remoteAddr: 28, rkey: column.rkey },
  });
  assert.equal(statuses(pair, 1), ['SUCCESS']);
  const expected = Uint8Array.from({ length: 4096 }, (_, at) => at >> 3);
  expected.fill(0xff, 8 + 3 * 64 + 4, 8 + 3 * 64 + 8);
  expected.fill(0xff, 8 + 4 * 64, 8 + 4 * 64 + 8);
  expected.fill(0xff, 8 + 5 * 64, 8 + 5 * 64 + 4);
  assert.equal(b.buffer.slice(0, 4096), expected);
  assert.equal(
    [column.counters().reads, column.counters().writes, column.counters().writeBytes],
    [1, 1, 16n],
  );
});

test('makers: a column, a block, structs as arrays, a tile, MPI’s vector and indexed', (pair) => {
  const { a } = pair;
  // Byte n of memory is n.
  a.buffer.set(Array.from({ length: 256 }, (_, at) => at));
  const shape = { rows: 3, columns: 4, elementBytes: 2 };
  const layout = a.pd.regMr(null, 0, READABLE);
  const interleaved = (list: readonly MrLayoutInterleaved[]): number[] => {
    layout.setLayoutInterleaved(0, list);
    return shown(pair, layout);
  };
  assert.equal(interleaved(matrixColumn(a.mr, shape, 3)), [6, 7, 14, 15, 22, 23]);
  const block = { row: 1, column: 1, rows: 2, columns: 2 };
  assert.equal(
    interleaved(matrixBlock(a.mr, { ...shape, rowBytes: 10 }, block)),
    [12, 13, 14, 15, 22, 23, 24, 25],
  );
  const fields = [
    { offset: 0, length: 1 },
    { offset: 4, length: 2 },
  ];
  assert.equal(interleaved(structsAsArrays(a.mr, 3, 8, fields)), [0, 8, 16, 4, 5, 12, 13, 20, 21]);
  const image = { width: 5, height: 4, pixelBytes: 3, lineBytes: 16 };
  assert.equal(
    interleaved(imageTile(a.mr, image, { x: 4, y: 2, width: 1, height: 2 })),
    [44, 45, 46, 60, 61, 62],
  );
  assert.equal(interleaved(mpiVector(a.mr, 3, 2, 5, 1)), [0, 1, 5, 6, 10, 11]);
  layout.setLayoutSg(0, mpiIndexed(a.mr, [2, 0, 1], [3, 9, 0], 4));
  assert.equal(shown(pair, layout), [12, 13, 14, 15, 16, 17, 18, 19, 0, 1, 2, 3]);
  const misuse = (error: unknown): boolean => error instanceof MisuseError;
  assert.throws(() => matrixColumn(a.mr, shape, 4), misuse);
  const named = { addr: 'x', lkey: 1 } as never;
  assert.throws(() => matrixColumn(named, shape, 0), /^base\.addr: must be a whole number from 0/);
  assert.throws(() => matrixBlock(a.mr, shape, { ...block, row: 2 }), misuse);
  assert.throws(() => matrixColumn(a.mr, { ...shape, rowBytes: 7 }, 0), misuse);
  assert.throws(() => structsAsArrays(a.mr, 3, 5, fields), misuse);
  assert.throws(() => mpiVector(a.mr, 3, 2, -5, 1), misuse);
  assert.throws(() => mpiIndexed(a.mr, [1], [1, 2], 4), misuse);
});

test.run();
