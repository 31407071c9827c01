/** The progress thread: engine and link beside the application, with real sockets. */
import type { AnyRequest } from '../../../support/any-request.js';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AsyncEvent,
  Endpoint,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  openDevice,
  type WorkCompletion,
} from '../../../../host/index.js';
import { ALL_ACCESS, PATIENT, connect, openSide, type Side } from '../../../support/pair.js';

const partner = fileURLToPath(new URL('../../../support/thread-partner.js', import.meta.url));

const SIDE = { bytes: 1 << 20, cqe: 1024, qp: { cap: { maxSendWr: 256, maxRecvWr: 256 } } };

function openAt(address: string): Promise<Side> {
  return openSide({ address, port: 0, progress: 'thread' }, SIDE);
}

async function openPair(): Promise<{ a: Side; b: Side; close(): Promise<void> }> {
  const a = await openAt('127.0.0.1');
  const b = await openAt('127.0.0.2');
  connect(a.qp, b, 1, 2, PATIENT);
  connect(b.qp, a, 2, 1, PATIENT);
  const close = async (): Promise<void> => {
    await a.context.close();
    await b.context.close();
  };
  return { a, b, close };
}

function write(from: Side, to: Side, length: number, more: Partial<AnyRequest> = {}): void {
  from.qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: from.mr.addr, length, lkey: from.mr.lkey }],
    rdma: { remoteAddr: to.mr.addr, rkey: to.mr.rkey },
    ...more,
  });
}

async function completions(side: Side, count: number): Promise<WorkCompletion[]> {
  const all: WorkCompletion[] = [];
  while (all.length < count) all.push(...(await side.cq.wait()));
  for (const { status } of all) assert.is(status, WcStatus.SUCCESS);
  return all;
}

test('a WRITE arrives, and the thread that waits for its completion wakes', async () => {
  const { a, b, close } = await openPair();
  for (let round = 1; round <= 20; round++) {
    a.buffer.fill(round, 0, 50_000);
    write(a, b, 50_000);
    await completions(a, 1);
    assert.is(b.buffer[49_999], round);
    // Long enough for both threads to fall asleep.
    if (round % 5 === 0) await sleep(5);
  }
  await close();
});

test('many requests, polled for, with control verbs between them', async () => {
  const { a, b, close } = await openPair();
  const total = 3000;
  let posted = 0;
  let done = 0;
  let made = 0;
  while (done < total) {
    while (posted < total && posted - done < 200) {
      write(a, b, 64 + (posted % 5000), { wrId: posted });
      posted++;
    }
    for (const { wrId, status } of a.cq.poll(64)) {
      assert.is(status, WcStatus.SUCCESS);
      assert.is(Number(wrId), done++);
    }
    // The other thread is in the middle of all that.
    if (posted % 7 === 0) {
      const mr = a.pd.regMr(a.buffer.subarray(0, 4096), ALL_ACCESS);
      const qp = a.pd.createQp({ sendCq: a.cq, recvCq: a.cq });
      qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
      qp.destroy();
      mr.dereg();
      made++;
    }
    if (posted % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(made > 0);
  await close();
});

test('a thread that polled a completion has room for another request', async () => {
  const { a, b, close } = await openPair();
  const room = a.qp.cap.maxSendWr;
  for (let index = 0; index < room; index++) write(a, b, 64);
  let done = 0;
  while (done < 20_000) {
    for (const { status } of a.cq.poll(1)) {
      assert.is(status, WcStatus.SUCCESS);
      done++;
      write(a, b, 64);
    }
  }
  await close();
});

test('a wait that always succeeds yields to the event loop', async () => {
  const { a, b, close } = await openPair();
  for (let index = 0; index < 200; index++) write(a, b, 64);
  // All of them are there.
  await sleep(100);
  let turned = false;
  setImmediate(() => (turned = true));
  for (let index = 0; index < 200; index++) {
    assert.is((await a.cq.wait(1)).length, 1);
    const until = performance.now() + 0.05;
    while (performance.now() < until);
  }
  assert.ok(turned);
  await close();
});

test('a queue pair that rang and was destroyed is passed over', async () => {
  const { a, b, close } = await openPair();
  const others = Array.from({ length: 50 }, () => a.pd.createQp({ sendCq: a.cq, recvCq: a.cq }));
  for (const qp of others) {
    connect(qp, b, 1, 1, PATIENT);
    // The packets match no queue pair: its sender is another one.
    const rdma = { remoteAddr: b.mr.addr, rkey: b.mr.rkey };
    qp.postSend({ opcode: WrOpcode.RDMA_WRITE, sgList: [], rdma });
    qp.destroy();
  }
  write(a, b, 10);
  await completions(a, 1);
  await close();
});

test('posting in ERR is flushed, and an asynchronous event comes', async () => {
  const { a, b, close } = await openPair();
  a.qp.modify({ qpState: QpState.SQD, enSqdAsyncNotify: true });
  for await (const { eventType, element } of a.context.asyncEvents()) {
    assert.is(eventType, AsyncEvent.SQ_DRAINED);
    assert.is(element, a.qp);
    break;
  }
  a.qp.modify({ qpState: QpState.ERR });
  write(a, b, 10, { wrId: 5 });
  a.qp.postRecv({ wrId: 6 });
  const flushed: string[] = [];
  while (flushed.length < 2) {
    for (const { wrId, status } of await a.cq.wait()) {
      assert.is(status, WcStatus.WR_FLUSH_ERR);
      flushed.push(String(wrId));
    }
  }
  assert.equal(flushed.sort(), ['5', '6']);
  await close();
});

test('an event that waits while its queue pair is destroyed does not reach the next one', async () => {
  const { a, b, close } = await openPair();
  const heard: unknown[] = [];
  void (async () => {
    for await (const { element } of a.context.asyncEvents()) heard.push(element);
  })();
  const bad = { remoteAddr: a.mr.addr, rkey: a.mr.rkey ^ 0xff };
  write(b, a, 10, { rdma: bad });
  // The thread has the event; this one does not return to its event loop.
  const until = performance.now() + 5000;
  while (b.cq.poll(1).length === 0 && performance.now() < until);
  a.qp.destroy();
  a.pd.createQp({ sendCq: a.cq, recvCq: a.cq });
  await sleep(50);
  assert.equal(heard, []);
  await close();
});

test('an address that is taken, or malformed, is refused as without a thread', async () => {
  const side = await openAt('127.0.0.1');
  const { port } = side.context.local;
  const message = /port \d+ on 127\.0\.0\.1 is taken by this process/;
  await openDevice({ address: '127.0.0.1', port, progress: 'thread' }).then(
    () => assert.unreachable(),
    (error: Error & { code?: string }) => {
      assert.is(error.code, 'EADDRINUSE');
      assert.match(error.message, message);
    },
  );
  await openDevice({ address: 'localhost', progress: 'thread' }).then(
    () => assert.unreachable(),
    (error: Error) => assert.match(error.message, /must be an IPv4 or IPv6 address/),
  );
  await side.context.close();
  // The port is free again.
  const again = await openDevice({ address: '127.0.0.1', port, progress: 'thread' });
  await again.close();
  await again.close();
});

test('peers are served while the main thread is blocked, and the process then ends', async () => {
  const child = spawn(process.execPath, [partner], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<Record<string, unknown>> =>
    JSON.parse((await lines.next()).value as string) as Record<string, unknown>;
  const a = await openAt('127.0.0.2');
  const { port, qpNum, addr, rkey } = await next();
  const there = {
    context: { local: Endpoint.parse('127.0.0.1', port as number) },
    qp: { qpNum },
    mr: { addr: BigInt(addr as string), rkey },
  } as unknown as Side;
  connect(a.qp, there, 9, 7, PATIENT);
  child.stdin.write(`${JSON.stringify({ port: a.context.local.port, qpNum: a.qp.qpNum })}\n`);
  assert.equal(await next(), { connected: true });
  const wake = join(tmpdir(), `verbena-wake-${process.pid}`);
  child.stdin.write(`${wake}\n`);
  assert.equal(await next(), { blocked: true });
  a.buffer[0] = 99;
  const remoteAddr = there.mr.addr + 8n;
  for (let turn = 1; turn <= 20; turn++) {
    write(a, there, 8);
    const sgList = [{ addr: a.mr.addr + 64n, length: 8, lkey: a.mr.lkey }];
    a.qp.postSend({
      opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
      sendFlags: SendFlag.SIGNALED,
      sgList,
      atomic: { remoteAddr, rkey: there.mr.rkey, compareAdd: 1n },
    });
    write(a, there, 8, { opcode: WrOpcode.RDMA_READ, sgList });
    await completions(a, 3);
  }
  // So far the main thread over there was blocked.
  writeFileSync(wake, '');
  assert.equal(await next(), { written: 99, counter: 20 });
  assert.equal(await ended, [0, null]);
  rmSync(wake);
  await a.context.close();
});

test('timers run for requests of a thread that polled without a pause and stopped', async () => {
  const a = await openAt('127.0.0.1');
  const b = await openAt('127.0.0.2');
  connect(a.qp, b, 1, 2, { attributes: { timeout: 10, retryCnt: 1 } });
  // The peer will not answer.
  b.qp.destroy();
  // Both threads are asleep.
  await sleep(20);
  for (let poll = 0; poll < 100; poll++) assert.equal(a.cq.poll(1), []);
  write(a, b, 100);
  await sleep(400);
  const asked = a.context.device.clock.now();
  const [completion] = a.cq.poll(1);
  assert.is(completion?.status, WcStatus.RETRY_EXC_ERR);
  assert.ok(asked - completion!.timestampMicros > 100_000, 'it ended when it was time, not now');
  await a.context.close();
  await b.context.close();
});

test.run();
