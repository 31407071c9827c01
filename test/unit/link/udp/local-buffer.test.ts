/** Receive buffers of sockets of this machine. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Gid } from '../../../../host/link/endpoint.js';
import { loadPosix, SO_RCVBUF, SOL_SOCKET } from '../../../../host/link/posix.js';
import { localReceiveBuffer } from '../../../../host/link/udp/local-buffer.js';

const test = suite('link/udp/local-buffer');
const { posix } = await loadPosix();
const AF_INET = 2;
const AF_INET6 = 10;
const ASKED_BYTES = 100_000;

/** Asks about `asked` while a socket is bound to `bound`; the second result: its buffer. */
function answers(family: number, bound: string, asked: string): [number | undefined, number] {
  const fd = posix!.datagramSocket(family);
  try {
    posix!.setOption(fd, SOL_SOCKET, SO_RCVBUF, ASKED_BYTES);
    posix!.bind(fd, Gid.parse(bound), 0, '');
    const found = localReceiveBuffer(posix!, Gid.parse(asked), posix!.localPort(fd));
    return [found, posix!.getOption(fd, SOL_SOCKET, SO_RCVBUF)];
  } finally {
    posix!.close(fd);
  }
}

if (posix) {
  for (const [family, address] of [
    [AF_INET, '127.0.0.9'],
    [AF_INET6, '::1'],
  ] as const) {
    test(`the buffer of a socket at ${address} is what reading SO_RCVBUF gives there`, () => {
      const [found, own] = answers(family, address, address);
      assert.is(found, own);
      assert.is(own, 2 * ASKED_BYTES);
    });
  }

  test('a socket of another address, or of all addresses, is not meant', () => {
    assert.is(answers(AF_INET, '127.0.0.9', '127.0.0.10')[0], undefined);
    assert.is(answers(AF_INET, '0.0.0.0', '127.0.0.9')[0], undefined);
    assert.is(answers(AF_INET6, '::', '::1')[0], undefined);
  });

  test('no answer of the kernel leaves the buffer unknown, and no descriptor open', () => {
    const gid = Gid.parse('127.0.0.9');
    const closed: number[] = [];
    const calls = (answer: (bytes: Uint8Array) => number, isSent = true) =>
      ({
        datagramSocket: () => 7,
        sendDatagram: () => isSent,
        receiveFrom: (_: number, bytes: Uint8Array) => answer(bytes),
        close: (fd: number) => closed.push(fd),
      }) as unknown as NonNullable<typeof posix>;
    const EAGAIN = -11;
    assert.is(
      localReceiveBuffer(
        calls(() => EAGAIN),
        gid,
        4791,
      ),
      undefined,
    );
    assert.is(
      localReceiveBuffer(
        calls((bytes) => bytes.length),
        gid,
        4791,
      ),
      undefined,
    );
    assert.is(
      localReceiveBuffer(
        calls(() => 0, false),
        gid,
        4791,
      ),
      undefined,
    );
    assert.equal(closed, [7, 7, 7]);
  });

  test('a system without such sockets leaves the buffer unknown', () => {
    const refusing = {
      datagramSocket: () => {
        throw new Error('EAFNOSUPPORT');
      },
    } as unknown as NonNullable<typeof posix>;
    assert.is(localReceiveBuffer(refusing, Gid.parse('127.0.0.9'), 4791), undefined);
  });
}

test.run();
