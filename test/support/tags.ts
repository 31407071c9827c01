/** Devices on UDP sockets that record what they send: do acknowledgements carry tags? */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import {
  RefusalError,
  UdpLink,
  openDevice,
  type Context,
  type OpenOptions,
} from '../../host/index.js';

/** BTH, AETH and ICRC. */
const ACKNOWLEDGE_BYTES = 20;
/** Counter and tag of an authenticated packet. */
const TRAILER_BYTES = 24;

export interface TappedDevice {
  readonly context: Context;
  /** Datagrams, from the BTH on. */
  readonly sent: Uint8Array[];
}

/** A device on a UDP socket with a free port; the caller closes it. */
export async function openTapped(
  address: string,
  options: Partial<OpenOptions> = {},
): Promise<TappedDevice> {
  const link = new UdpLink({ address, port: 0 });
  const sent: Uint8Array[] = [];
  const send = link.send.bind(link);
  link.send = (batch) => {
    for (let index = 0; index < batch.count; index++) sent.push(batch.bytesOf(index).slice());
    send(batch);
  };
  const context = await openDevice({ memoryBytes: 2 ** 26, ...options, link } as OpenOptions);
  return { context, sent };
}

/** Lengths of the RC acknowledgements, each once. */
export function acknowledgements(packets: readonly Uint8Array[]): number[] {
  const found = packets.filter((bytes) => bytes[0] === Opcode.RC_ACKNOWLEDGE);
  return [...new Set(found.map(({ length }) => length))];
}

/** Both sides acknowledge, and each acknowledgement has a counter and a tag. */
export function checkTags(...sides: readonly (readonly Uint8Array[])[]): void {
  for (const packets of sides) {
    assert.equal(acknowledgements(packets), [ACKNOWLEDGE_BYTES + TRAILER_BYTES]);
  }
}

/** Both sides acknowledge, and no acknowledgement has a tag. */
export function checkNoTags(...sides: readonly (readonly Uint8Array[])[]): void {
  for (const packets of sides) assert.equal(acknowledgements(packets), [ACKNOWLEDGE_BYTES]);
}

/** The work fails with EACCES and a sentence that matches. */
export async function checkDenied(work: Promise<unknown>, pattern: RegExp): Promise<void> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.instance(error, RefusalError, String(error));
  assert.is((error as RefusalError).code, 'EACCES', String(error));
  assert.match((error as Error).message, pattern);
}
