/**
 * The numbers that an attacker has to guess come from the system's generator: keys, queue pair
 * numbers, ids and first PSNs of the connection manager, ids of devices. Each is drawn many times
 * through the public API and judged; the same judge complains where the generator is a counter.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  CmEventType,
  QpType,
  createEventChannel,
  openDevice,
  type Context,
} from '../../../host/index.js';
import { parseMad } from '../../../host/cm/mad.js';
import { randomId } from '../../../host/verbs/refuse.js';

const ADDRESS = '127.1.47.1';
const SILENT = '127.1.47.2';
/** BTH and DETH stand before a message of the connection manager, an ICRC behind it. */
const MAD_OFFSET = 20;
const MAD_BYTES = 256;

interface Sample {
  readonly name: string;
  /** Low bits of each value that are random. */
  readonly bits: number;
  readonly values: readonly number[];
}

/**
 * A sentence where `values` could be predicted from earlier ones: a bit that is set too often or
 * too rarely (6 standard deviations), or a difference of neighbours that returns. Of 2^16 numbers
 * a difference returns more than 6 times in 600 draws with a probability below 1e-9.
 */
function weakness({ name, bits, values }: Sample): string | undefined {
  const limit = 3 * Math.sqrt(values.length);
  for (let bit = 0; bit < bits; bit++) {
    const ones = values.filter((value) => (value >>> bit) & 1).length;
    if (Math.abs(ones - values.length / 2) > limit) {
      return `${name}: bit ${bit} is set in ${ones} of ${values.length}`;
    }
  }
  const mask = 2 ** bits - 1;
  const differences = new Map<number, number>();
  for (let at = 1; at < values.length; at++) {
    const difference = ((values[at]! - values[at - 1]!) & mask) >>> 0;
    const times = (differences.get(difference) ?? 0) + 1;
    if (times > 6) return `${name}: neighbours differ by ${difference} again and again`;
    differences.set(difference, times);
  }
  return undefined;
}

/** Connection requests of `count` ids, as they arrive at an address that never answers. */
async function requests(context: Context, count: number) {
  const silent = createSocket('udp4');
  silent.bind(4791, SILENT);
  await once(silent, 'listening');
  const found = new Map<number, number>();
  silent.on('message', (datagram) => {
    const message = parseMad(datagram.subarray(MAD_OFFSET, MAD_OFFSET + MAD_BYTES));
    if (typeof message === 'object' && message.name === 'REQ') {
      found.set(message.localCommId, message.startingPsn);
    }
  });
  const channel = createEventChannel(context);
  const arrived = async (wanted: number): Promise<void> => {
    const end = performance.now() + 20_000;
    while (found.size < wanted && performance.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  try {
    for (let at = 0; at < count; at++) {
      const id = channel.createId();
      id.resolveAddr({ address: SILENT, port: 7471 });
      const resolved = await channel.getEvent();
      resolved!.ackEvent();
      id.resolveRoute();
      const routed = await channel.getEvent();
      assert.is(routed!.event, CmEventType.ROUTE_RESOLVED);
      routed!.ackEvent();
      id.connect({ qpNum: 17 });
      // A socket that nothing reads holds some 250 of them.
      if (at % 50 === 49) await arrived(at + 1);
    }
  } finally {
    channel[Symbol.dispose]();
    silent.close();
  }
  assert.is(found.size, count, 'requests that arrived');
  return found;
}

/** Everything that is drawn, in the order in which it is drawn. */
async function samples(): Promise<Sample[]> {
  await using context = await openDevice({ address: ADDRESS });
  const pd = context.allocPd();
  const memory = context.alloc(64);
  const keys = Array.from({ length: 600 }, () => pd.regMr(memory, 0).rkey);
  const cq = context.createCq(16);
  const cap = { maxSendWr: 1, maxRecvWr: 1 };
  const numbers = Array.from({ length: 600 }, () => {
    return pd.createQp({ qpType: QpType.RC, sendCq: cq, recvCq: cq, cap }).qpNum;
  });
  const asked = await requests(context, 300);
  const wide = Array.from({ length: 600 }, () => randomId());
  return [
    { name: 'keys', bits: 32, values: keys },
    { name: 'queue pair numbers', bits: 16, values: numbers },
    { name: 'ids of connections', bits: 24, values: [...asked.keys()] },
    { name: 'first PSNs', bits: 24, values: [...asked.values()] },
    { name: 'ids of devices, low', bits: 32, values: wide.map((id) => Number(id & 0xffffffffn)) },
    { name: 'ids of devices, high', bits: 32, values: wide.map((id) => Number(id >> 32n)) },
  ];
}

/** As crypto.getRandomValues, of a machine without entropy: 32-bit words that count. */
function counter(): typeof crypto.getRandomValues {
  let count = 0;
  return (array) => {
    const { buffer, byteOffset, byteLength } = array as unknown as Uint8Array;
    const words = new DataView(buffer, byteOffset, byteLength);
    for (let at = 0; at + 4 <= byteLength; at += 4) words.setUint32(at, ++count, true);
    return array;
  };
}

test('no number that an attacker has to guess follows from earlier ones', async () => {
  for (const sample of await samples()) assert.is(weakness(sample), undefined);
});

test('the judge complains of every such number when the generator is a counter', async () => {
  const { getRandomValues } = crypto;
  crypto.getRandomValues = counter();
  try {
    for (const sample of await samples()) assert.ok(weakness(sample), sample.name);
  } finally {
    crypto.getRandomValues = getRandomValues;
  }
});

test.run();
