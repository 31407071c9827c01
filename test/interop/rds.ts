/** Our reliable datagrams and Linux's: AF_RDS sockets in the guest (`rxe/rds.c`). */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { RefusalError, openDevice, rds, type Context } from '../../host/index.js';
import { root } from '../support/paths.js';
import type { GuestGroup } from './group.js';
import type { GuestProgram } from './rxe/guest.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';

const SIZES = [10, 100, 1000, 4096, 4097, 8192, 30000, 65536, 200, 300000];
const HEAD = 8;
const CHECK_SECONDS = 60;
const source = fileURLToPath(new URL('test/interop/rxe/rds.c', root));
/** Ports, one pair for each check: what an earlier one left cannot be taken for another's. */
let port = 4000;

export const rdsGroup: GuestGroup = {
  name: 'rds',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    const program = await lab.compile(source);
    await lab.guest.run('modprobe rds_rdma');
    const rows: readonly [string, (lab: Lab, program: string) => Promise<void>][] = [
      ['Linux sends back what we send, 10 B to 1 MiB', echoes],
      ['Linux sends, we read in order', streams],
      ['we send, Linux reads in order', counted],
      ['pings of port 0, both ways', pings],
      ['1 % of the packets lost, both ways', lossy],
      ['the connection dies in the middle, both ways', blackout],
      ['we are started again while Linux sends', restarted],
      ['a slow reader in Linux stops its senders, not others', slowThere],
      ['a slow reader here stops Linux', slowHere],
      ['Linux lends memory: we read it, write it, and no more when it is revoked', lent],
      ['we lend memory: Linux reads it, writes it, and no more when it is revoked', borrowed],
    ];
    for (const [name, run] of rows) {
      await report.check(name, () => within(CHECK_SECONDS, run(lab, program)));
    }
  },
};

/** Nothing that hangs may keep the others from their turn. */
async function within(seconds: number, work: Promise<void>): Promise<void> {
  const timeout = new AbortController();
  const late = sleep(seconds * 1000, undefined, { signal: timeout.signal }).then(() => {
    throw new Error(`not done after ${seconds} s`);
  });
  late.catch(() => {});
  work.catch(() => {});
  try {
    await Promise.race([work, late]);
  } finally {
    timeout.abort();
    // A process that hangs would keep the address.
    await open?.close();
  }
}

let open: Context | undefined;

type Sockets = { readonly socket: rds.RdsSocket; readonly there: rds.RdsAddress };

/** A device and a socket of ours, and where the guest's is. */
async function withSocket(lab: Lab, use: (sockets: Sockets) => Promise<void>): Promise<void> {
  const context = await openDevice({ address: lab.ipv4 });
  open = context;
  try {
    // A guest in software emulation is slow to answer.
    rds.RdsNode.of(context, { heartbeatMicros: 20_000_000 });
    const socket = rds.socket(rds.AF_INET_OFFLOAD, rds.SOCK_DGRAM, 0, context);
    socket.bind({ port: ++port });
    await use({ socket, there: { address: lab.guest.ipv4, port } });
    socket.close();
    assert.equal(socket.node.core.statistics.protocolErrors, 0);
  } finally {
    await context.close();
  }
}

async function started(lab: Lab, command: string): Promise<GuestProgram> {
  const program = lab.guest.spawn(command);
  await program.printed(/bound/);
  return program;
}

/** Fails when the program in the guest ends before `work`. */
async function whileRuns(peer: GuestProgram, work: Promise<unknown>): Promise<void> {
  const ended = peer.ended.then(({ output }) => {
    throw new Error(`the program in the guest ended: ${output}`);
  });
  ended.catch(() => {});
  await Promise.race([work, ended]);
}

function messageOf(number: number, length: number): Uint8Array {
  const message = Buffer.alloc(length);
  message.writeUInt32BE(number);
  message.writeUInt32BE(length, 4);
  for (let i = HEAD; i < length; i++) message[i] = 7 * i + 13 * number;
  return message;
}

async function echoes(lab: Lab, program: string): Promise<void> {
  await withSocket(lab, async ({ socket, there }) => {
    const peer = await started(lab, `${program} echo ${lab.guest.ipv4} ${there.port}`);
    for (const length of [10, 0, 4096, 4097, 65536, 1 << 20]) {
      const message = length === 0 ? new Uint8Array(0) : messageOf(length, length);
      await socket.send(there, message);
      const { data, from } = (await socket.recv())!;
      assert.deepEqual(Buffer.from(data), Buffer.from(message));
      assert.deepEqual(from, { ...there, udpPort: 4791 });
    }
    await peer.stop();
  });
}

/** Receives `count` numbered messages, which must come in order and whole. */
async function takeInOrder(socket: rds.RdsSocket, count: number, first = 0): Promise<void> {
  for (let number = first; number < count; number++) {
    const { data } = (await socket.recv())!;
    const expected = messageOf(number, SIZES[number % SIZES.length]!);
    assert.equal(Buffer.compare(data, expected), 0, `message ${number} of ${data.length} bytes`);
  }
}

async function giveAll(sockets: Sockets, count: number, first = 0): Promise<void> {
  for (let number = first; number < count; number++) {
    await sockets.socket.send(sockets.there, messageOf(number, SIZES[number % SIZES.length]!));
  }
}

function streamCommand(lab: Lab, program: string, count: number): string {
  return `${program} stream ${lab.guest.ipv4} ${port} ${lab.ipv4} ${port} ${count}`;
}

async function streams(lab: Lab, program: string, count = 100): Promise<void> {
  await withSocket(lab, async ({ socket }) => {
    const peer = await started(lab, streamCommand(lab, program, count));
    await whileRuns(peer, takeInOrder(socket, count));
    await peer.stop();
  });
}

async function counted(lab: Lab, program: string, count = 100): Promise<void> {
  await withSocket(lab, async (sockets) => {
    const peer = await started(lab, `${program} count ${lab.guest.ipv4} ${port} ${count}`);
    await giveAll(sockets, count);
    await peer.printed(new RegExp(`received ${count} in order`));
  });
}

async function pings(lab: Lab, program: string): Promise<void> {
  await withSocket(lab, async ({ socket, there }) => {
    assert.match(
      await lab.guest.run(`${program} ping ${lab.guest.ipv4} ${lab.ipv4} 3`),
      /answered/,
    );
    for (let left = 3; left > 0; left--) await ping({ socket, there });
  });
}

async function ping({ socket, there }: Sockets): Promise<void> {
  await socket.send({ ...there, port: 0 }, new Uint8Array(0));
  const { data, from } = (await socket.recv())!;
  assert.equal(data.length, 0);
  assert.deepEqual(from, { address: there.address, port: 0, udpPort: 4791 });
}

async function lossy(lab: Lab, program: string): Promise<void> {
  await lab.withLoss(1, async () => {
    await streams(lab, program);
    await counted(lab, program);
  });
}

/** Until Linux is refused: there is no reader. */
async function stalled(socket: rds.RdsSocket): Promise<void> {
  const { statistics } = socket.node.core;
  const until = performance.now() + 30_000;
  while (statistics.stallsSent === 0 && performance.now() < until) await sleep(50);
  assert.equal(statistics.stallsSent, 1);
}

/** Long enough that Linux gives the connection up, and makes another. */
const BLACKOUT_MILLIS = 4000;

async function blackout(lab: Lab, program: string): Promise<void> {
  /** `work` begins in the outage, and may end behind it. */
  const throughOutage = async (work: () => Promise<void>): Promise<void> => {
    const drops = ['udp dport 4791 counter drop'];
    let working: Promise<void> | undefined;
    await lab.withDrops(drops, async () => {
      working = work();
      working.catch(() => {});
      await sleep(BLACKOUT_MILLIS);
    });
    await working;
  };
  await withSocket(lab, async ({ socket }) => {
    const count = 1200;
    const peer = await started(lab, streamCommand(lab, program, count));
    await stalled(socket);
    await whileRuns(
      peer,
      throughOutage(() => takeInOrder(socket, count)),
    );
    await peer.stop();
  });
  await withSocket(lab, async (sockets) => {
    const [count, before] = [300, 20];
    const peer = await started(lab, `${program} count ${lab.guest.ipv4} ${port} ${count}`);
    // Sends to a peer that was never reached fail: the connection must exist before it dies.
    await giveAll(sockets, before);
    await throughOutage(() => giveAll(sockets, count, before));
    await peer.printed(new RegExp(`received ${count} in order`));
  });
}

async function restarted(lab: Lab, program: string): Promise<void> {
  const count = 200;
  let peer: GuestProgram | undefined;
  const read: number[] = [];
  const take = async (most: number): Promise<void> => {
    await withSocket(lab, async ({ socket }) => {
      peer ??= await started(lab, streamCommand(lab, program, count));
      for (let left = most; left > 0 && read.at(-1) !== count - 1; left--) {
        const { data } = (await socket.recv())!;
        read.push(Buffer.from(data).readUInt32BE());
      }
    });
  };
  const own = port + 1;
  await take(50);
  // The same port again, in another node.
  port = own - 1;
  await take(count);
  assert.equal(read.at(-1), count - 1);
  // Unread messages of the former node are lost; no message comes twice or out of order.
  const astray = read.findIndex((number, index) => index > 0 && number <= read[index - 1]!);
  assert.equal(astray, -1, `after ${read[astray - 1]} came ${read[astray]}, message ${astray}`);
  await peer!.stop();
}

function refused(code: string, run: () => void): boolean {
  try {
    run();
    return false;
  } catch (error) {
    if (error instanceof RefusalError && error.code === code) return true;
    throw error;
  }
}

async function slowThere(lab: Lab, program: string): Promise<void> {
  await withSocket(lab, async ({ socket, there }) => {
    const go = `go-${port}`;
    const other = await started(lab, `${program} echo ${lab.guest.ipv4} ${++port}`);
    const echo = { ...there, port };
    const slow = await started(
      lab,
      `${program} slow ${lab.guest.ipv4} ${there.port} 40 /host/${go}`,
    );
    const message = (number: number): Uint8Array =>
      messageOf(number, SIZES[number % SIZES.length]!);
    let sent = 0;
    await socket.send(there, message(sent++));
    // Its congestion map comes a moment later.
    const until = performance.now() + 20_000;
    for (let isRefused = false; !isRefused && sent < 40 && performance.now() < until;) {
      isRefused = refused('EWOULDBLOCK', () => {
        socket.sendmsg({ name: there, iov: [message(sent)] });
        sent++;
      });
      await sleep(50);
    }
    assert.ok(sent < 40, 'nothing was refused');
    await socket.send(echo, message(1));
    assert.equal((await socket.recv())!.data.length, SIZES[1]);
    writeFileSync(join(lab.share, go), '');
    for (; sent < 40; sent++) await socket.send(there, message(sent));
    await slow.printed(/received 40 in order/);
    await other.stop();
  });
}

async function slowHere(lab: Lab, program: string): Promise<void> {
  const count = 1200;
  await withSocket(lab, async ({ socket }) => {
    const peer = await started(lab, streamCommand(lab, program, count));
    await stalled(socket);
    await sleep(500);
    await whileRuns(peer, takeInOrder(socket, count));
    const [, refusals] = await peer.printed(/sent \d+, refused (\d+)/);
    assert.ok(Number(refusals) > 0, 'Linux was never refused');
    await peer.stop();
  });
}

const LENT_BYTES = 65536;
const { ControlMessageType, RdmaFlag, RdmaStatus } = rds;

/** As the program's `pattern`. */
function fill(memory: Uint8Array, seed: number): void {
  for (let at = 0; at < memory.length; at++) memory[at] = 7 * at + 13 * seed;
}

/** The next message or notification, with its control messages. */
async function next(socket: rds.RdsSocket): Promise<rds.ReceivedMessage> {
  await socket.poll(rds.PollEvent.IN);
  return socket.recvmsg([new Uint8Array(64)]);
}

async function sendWith(
  { socket, there }: Sockets,
  control: readonly rds.SendControl[],
): Promise<void> {
  while (refused('EWOULDBLOCK', () => socket.sendmsg({ name: there, iov: [ONE], control }))) {
    await socket.poll(rds.PollEvent.OUT);
    await sleep(1);
  }
}

const ONE = Uint8Array.of(1);

/** One operation on the peer's memory; returns its status. */
async function operate(
  sockets: Sockets,
  operation: Pick<rds.RdmaArgs, 'cookie' | 'local' | 'flags'>,
): Promise<number> {
  const type = ControlMessageType.RDMA_ARGS;
  const flags = operation.flags | RdmaFlag.NOTIFY_ME;
  await sendWith(sockets, [{ type, ...operation, flags, userToken: 5n }]);
  for (;;) {
    for (const told of (await next(sockets.socket)).control) {
      if (told.type === ControlMessageType.RDMA_STATUS) return told.status;
    }
  }
}

async function lent(lab: Lab, program: string): Promise<void> {
  await withSocket(lab, async (sockets) => {
    const { socket, there } = sockets;
    // Linux registers memory by a request on the connection, and looks only whether it is over: on
    // one that is just ending (that of the check before) it lends a key that opens nothing.
    await ping(sockets);
    const command = `lend ${lab.guest.ipv4} ${there.port} ${lab.ipv4} ${there.port} ${LENT_BYTES}`;
    const peer = await started(lab, `${program} ${command}`);
    const [dest] = (await next(socket)).control;
    assert.ok(dest?.type === ControlMessageType.RDMA_DEST);
    const { cookie } = dest;
    const context = open!;
    const [local, expected] = [context.alloc(LENT_BYTES), new Uint8Array(LENT_BYTES)];
    fill(expected, 1);
    assert.equal(await operate(sockets, { cookie, local, flags: RdmaFlag.FENCE }), 0);
    assert.equal(Buffer.compare(local, expected), 0);
    fill(local, 2);
    assert.equal(await operate(sockets, { cookie, local, flags: RdmaFlag.READWRITE }), 0);
    await peer.printed(/written whole/);
    await peer.printed(/revoked/);
    const status = await operate(sockets, { cookie, local, flags: RdmaFlag.READWRITE });
    assert.equal(status, RdmaStatus.REMOTE_ERROR);
    await peer.stop();
  });
}

async function borrowed(lab: Lab, program: string): Promise<void> {
  await withSocket(lab, async (sockets) => {
    const { socket, there } = sockets;
    const command = `borrow ${lab.guest.ipv4} ${there.port} ${lab.ipv4} ${there.port} ${LENT_BYTES}`;
    const peer = await started(lab, `${program} ${command}`);
    const [memory, expected] = [open!.alloc(LENT_BYTES), new Uint8Array(LENT_BYTES)];
    const cookie = socket.getMr(memory);
    await sendWith(sockets, [{ type: ControlMessageType.RDMA_DEST, cookie }]);
    await next(socket);
    fill(expected, 3);
    assert.equal(Buffer.compare(memory, expected), 0);
    await peer.printed(/write: status 0/);
    fill(memory, 4);
    await sendWith(sockets, []);
    await peer.printed(/read: status 0, whole/);
    socket.freeMr(cookie);
    await sendWith(sockets, []);
    // Linux makes a request of every 8 pages, and the last one alone knows the operation: when the
    // first of two is refused, it learns that the last was flushed, and calls the operation
    // dropped.
    const said = [/again: 32768 bytes, status (\d)/, /again: 65536 bytes, status (\d)/];
    const statuses: number[] = [];
    for (const line of said) statuses.push(Number((await peer.printed(line))[1]));
    assert.deepEqual(statuses, [RdmaStatus.REMOTE_ERROR, RdmaStatus.DROPPED]);
    fill(expected, 4);
    assert.equal(Buffer.compare(memory, expected), 0);
    // It does not send a message again that had an operation: those two are gone, others go on.
    assert.equal((await next(socket)).length, 1);
    await ping(sockets);
    assert.equal(socket.node.core.statistics.recvPackets, 3);
    await peer.stop();
  });
}
