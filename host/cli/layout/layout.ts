/**
 * `verbena layout FILE.json`: draws the bytes of a memory layout. A device sends through the
 * layout, and the received bytes show their origin, so the drawing is what the engine does.
 */
import { readFile, writeFile } from 'node:fs/promises';
import type { Context, MemoryRegion, MrLayoutInterleaved, QueuePair, Sge } from '../../index.js';
import { AccessFlag, Mtu, QpState, SendFlag, WcStatusName, WrOpcode } from '../../verbs/enums.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { createLoopbackPair } from '../../link/loopback.js';
import { explainLayout } from '../../verbs/layouts/explain-layout.js';
import { openDevice } from '../../verbs/open-device.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { drawLayout } from './layout-drawing.js';
import { Exit, printLine } from '../base/report.js';

export interface LayoutOptions {
  readonly output?: string;
  /** Bytes a row of the drawing. */
  readonly width: number;
  readonly json?: boolean;
}

/** Bytes of a place: in `area`, by name. */
interface Place {
  readonly area: string;
  readonly addr: number;
  readonly length: number;
}

/** Contents of a file: areas, and one of both lists. */
interface Description {
  readonly areas: { readonly [name: string]: number };
  readonly sg?: readonly Place[];
  readonly interleaved?: readonly (Pick<MrLayoutInterleaved, 'numRepeated' | 'dims'> & {
    readonly firstDatum: Place;
  })[];
}

/** Of areas and of the row: more would be no drawing. */
const BYTES_MAX = 65536;
const HOST_BYTES = 8 * 2 ** 20;

function isObject(value: unknown): value is { readonly [name: string]: unknown } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function checkPlace(
  name: string,
  place: unknown,
  areas: Description['areas'],
  refuse: (sentence: string) => RefusalError,
): void {
  if (!isObject(place)) throw refuse(`${name} must be an object with area, addr and length`);
  if (!Object.hasOwn(areas, String(place['area']))) {
    throw refuse(`${name}.area must be one of ${Object.keys(areas).join(', ')}`);
  }
  for (const field of ['addr', 'length']) {
    if (!Number.isSafeInteger(place[field]))
      throw refuse(`${name}.${field} must be a whole number`);
  }
}

/** Checks the shape; what the numbers mean, the device checks. */
function parse(path: string, text: string): Description {
  const refuse = (sentence: string) => new RefusalError('EINVAL', `${path}: ${sentence}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw refuse(`not JSON: ${(error as Error).message}`);
  }
  if (!isObject(value) || !isObject(value['areas'])) {
    throw refuse('areas must be an object of names and sizes in bytes');
  }
  const areas = value['areas'] as Description['areas'];
  for (const [name, bytes] of Object.entries(areas)) {
    if (!Number.isInteger(bytes) || bytes < 1 || bytes > BYTES_MAX) {
      throw refuse(`areas.${name} must be 1 to ${BYTES_MAX} bytes`);
    }
  }
  const lists = ['sg', 'interleaved'].filter((list) => value[list] !== undefined);
  const entries = value[lists[0]!];
  if (lists.length !== 1 || !Array.isArray(entries)) {
    throw refuse('one list is required: sg or interleaved');
  }
  entries.forEach((entry: unknown, index) => {
    const name = `${lists[0]}[${index}]`;
    if (lists[0] === 'sg') return checkPlace(name, entry, areas, refuse);
    if (!isObject(entry)) throw refuse(`${name} must be an object`);
    checkPlace(`${name}.firstDatum`, entry['firstDatum'], areas, refuse);
    const dims = entry['dims'];
    if (!Array.isArray(dims) || !dims.every(isObject)) {
      throw refuse(`${name}.dims must be a list of objects with offsetStride and datumCount`);
    }
  });
  return value as unknown as Description;
}

/** A device and its queue pair, not yet connected. */
async function openSide(link: ReturnType<typeof createLoopbackPair>['a']) {
  const context = await openDevice({ link, memoryBytes: HOST_BYTES });
  const pd = context.allocPd();
  const cq = context.createCq(16);
  return { context, pd, cq, qp: pd.createQp({ sendCq: cq, recvCq: cq }) };
}

function connect(qp: QueuePair, destQpNum: number, to: Context): void {
  const { gid, port } = to.local;
  qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  const ahAttr = { dgid: gid, port };
  const rest = { pathMtu: Mtu.MTU_1024, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 12 };
  qp.modify({ qpState: QpState.RTR, ahAttr, destQpNum, ...rest });
  const timeouts = { timeout: 14, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 1 };
  qp.modify({ qpState: QpState.RTS, sqPsn: 0, ...timeouts });
}

interface Laid {
  readonly sentence: string;
  readonly names: readonly string[];
  /** Where the row's bytes come from. */
  readonly stream: readonly (readonly [area: number, place: number])[];
}

/** Sets the layout on a device, and sends through it. */
async function layOut({ areas, sg, interleaved }: Description): Promise<Laid> {
  const { network, a: linkA, b: linkB } = createLoopbackPair({ auto: false });
  const [a, b] = [await openSide(linkA), await openSide(linkB)];
  try {
    connect(a.qp, b.qp.qpNum, b.context);
    connect(b.qp, a.qp.qpNum, a.context);
    const names = Object.keys(areas);
    const regions = names.map((name) =>
      a.pd.regMr(a.context.alloc(areas[name]!), AccessFlag.ZERO_BASED),
    );
    const sgeOf = ({ area, addr, length }: Place): Sge => {
      if (addr < 0) throw new MisuseError('addr', `must be at least 0, got ${addr}`);
      return { addr, length, lkey: regions[names.indexOf(area)]!.lkey };
    };
    const nameOf = (lkey: number): string => names[regions.findIndex((mr) => mr.lkey === lkey)]!;
    const layout = a.pd.regMr(null, 0, AccessFlag.ZERO_BASED);
    let sentence: string;
    if (sg) {
      const list = sg.map(sgeOf);
      layout.setLayoutSg(0, list);
      sentence = explainLayout(list, nameOf);
    } else {
      const list = interleaved!.map(({ firstDatum, ...rest }) => ({
        ...rest,
        firstDatum: sgeOf(firstDatum),
      }));
      layout.setLayoutInterleaved(0, list);
      sentence = explainLayout(list, nameOf);
    }
    const { length, lkey } = layout;
    if (length > BYTES_MAX) {
      const sentence = `the row has ${length} bytes, more than ${BYTES_MAX}; choose fewer or shorter fields`;
      throw new RefusalError('EINVAL', sentence);
    }
    const room = b.context.alloc(length);
    const { addr, lkey: to } = b.pd.regMr(room, AccessFlag.LOCAL_WRITE);
    /** The row, where each byte of memory holds a part of its number. */
    const row = (part: (area: number, place: number) => number): Uint8Array => {
      regions.forEach(({ buffer }: MemoryRegion, area) =>
        buffer.forEach((_, place) => (buffer[place] = part(area, place))),
      );
      b.qp.postRecv({ sgList: [{ addr, length, lkey: to }] });
      const sgList = [{ addr: 0, length, lkey }];
      a.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
      while (network.deliver() > 0);
      const [completion] = a.cq.poll(1);
      if (completion?.status !== 0) throw new Error(WcStatusName[completion?.status ?? -1]);
      return room.slice();
    };
    const [area, high, low] = [
      row((index) => index),
      row((_, place) => place >> 8),
      row((_, place) => place & 0xff),
    ] as const;
    const stream = Array.from(area, (which, at) => [which, (high[at]! << 8) | low[at]!] as const);
    return { sentence, names, stream };
  } finally {
    await a.context.close();
    await b.context.close();
  }
}

export async function layout(file: string, options: LayoutOptions): Promise<number> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    throw fileRefusal(`cannot read ${file}`, error);
  }
  const description = parse(file, text);
  const { sentence, names, stream } = await layOut(description);
  if (options.json) {
    const from = stream.map(([area, place]) => [names[area], place]);
    await printLine(JSON.stringify({ sentence, bytes: stream.length, from }));
    return Exit.OK;
  }
  const areas = names.map((name, index) => {
    const places = Array.from({ length: description.areas[name]! }, (): number[] => []);
    stream.forEach(([area, place], at) => {
      if (area === index) places[place]!.push(at);
    });
    return { name, places };
  });
  const svg = drawLayout(sentence, areas, stream, options.width);
  if (options.output === undefined) {
    await printLine(svg.trimEnd());
    return Exit.OK;
  }
  try {
    await writeFile(options.output, svg);
  } catch (error) {
    throw fileRefusal(`cannot write ${options.output}`, error);
  }
  await printLine(sentence);
  return Exit.OK;
}
