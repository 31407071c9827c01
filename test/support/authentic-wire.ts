/** A wire whose queue pair has keys: the test is the peer, and its tags are OpenSSL's. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { QpState, QpType } from '../../host/index.js';
import { openPacket, sealPacket } from './packet-auth.js';
import { onWire, pattern, type Wire } from './wire.js';

export const [OURS, THEIRS] = [0x100, 0x200];
export const SEND_KEY = pattern(32, 11);
export const RECV_KEY = pattern(32, 77);
export const WINDOW = 1024n;
export const TRAILER = 24;
export const GENERATION = 1n << 48n;
export const WRITE = Opcode.RC_RDMA_WRITE_ONLY;

export interface Peer {
  readonly wire: Wire;
  readonly isEncrypted: boolean;
  /** Counter of the next packet. */
  counter: bigint;
  key: Uint8Array;
  /** Seals a packet as it reaches the device, with its ICRC. */
  seal(plain: Uint8Array, counter?: bigint): Uint8Array;
  /** WRITE of `length` bytes at `offset`, with the PSN that is expected. */
  write(offset: number, data: Uint8Array): Uint8Array;
}

/** Over a wire whose queue pair has keys. */
export function authentic(
  body: (world: { readonly wire: Wire; readonly peer: Peer }) => void | Promise<void>,
  isEncrypted = false,
  qpType: number = QpType.RC,
): Promise<void> {
  return onWire({ state: QpState.INIT, qp: { qpType } }, async (wire) => {
    wire.qp.setPacketKeys({ sendKey: SEND_KEY, recvKey: RECV_KEY, encrypt: isEncrypted });
    wire.connect({ qp: { qpType } });
    let psn = THEIRS;
    const peer: Peer = {
      wire,
      isEncrypted,
      counter: 0n,
      key: RECV_KEY,
      seal(plain, counter) {
        const number = counter ?? peer.counter++;
        return wire.seal(Uint8Array.from(sealPacket(peer.key, number, plain, isEncrypted)));
      },
      write(offset, data) {
        const opcode = qpType === QpType.UC ? Opcode.UC_RDMA_WRITE_ONLY : WRITE;
        const fields = { opcode, psn: psn++, ackRequest: 1, ...wire.reth(offset, data.length) };
        return wire.packet(fields, data);
      },
    };
    await body({ wire, peer });
  });
}

/** Opens the packets that the device sent; their counters count up from `first`. */
export function opened(
  wire: Wire,
  first = 0n,
  isEncrypted = false,
  key: Uint8Array = SEND_KEY,
): Uint8Array[] {
  return wire.link.sent.splice(0).map(({ bytes }, index) => {
    const { counter, packet } = openPacket(key, bytes, isEncrypted);
    assert.is(counter, first + BigInt(index), 'the counter');
    return packet;
  });
}

export function bytesAt(wire: Wire, offset: number, length: number): number[] {
  return [...wire.buffer.subarray(offset, offset + length)];
}
