/** A path MTU that is too large: packets that long are refused, or vanish; short ones pass. */
import * as assert from 'uvu/assert';
import { Opcode, VendorError } from '#build/abi.js';
import { SendFlag, WcStatus, WrOpcode, type WorkCompletion } from '../../host/index.js';
import { testsOnWire } from '../support/tests-in.js';
import { onWire, type Wire, type WireOptions } from '../support/wire.js';

const test = testsOnWire();

const FIRST = 0x100;
const MTU = 1024;
const SIGNALED = { wrId: 1, sendFlags: SendFlag.SIGNALED };
const OWN_KIND: WireOptions = { reorderPackets: 64, ownKind: true };

/** Time passes until the request completes; `answers`: short packets are acknowledged. */
function wait(
  wire: Wire,
  answers: boolean,
  limitMicros = 10e6,
  last = FIRST - 1,
): WorkCompletion | undefined {
  for (const began = wire.clock.now(); wire.clock.now() - began < limitMicros;) {
    wire.clock.advance(1000);
    const isShort = wire.takePackets().some(({ payload }) => payload.length < MTU);
    if (isShort && answers) wire.acknowledge(last);
    const [completion] = wire.cq.poll(1);
    if (completion) return completion;
  }
  return undefined;
}

for (const [kind, options] of [
  ['of our own kind', OWN_KIND],
  ['of another kind', {}],
] as const) {
  test(`long packets vanish, a peer ${kind} answers short ones: the completion says so`, () =>
    onWire(options, (wire) => {
      wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
      const { status, vendorErr } = wait(wire, true)!;
      assert.equal([status, vendorErr], [WcStatus.RETRY_EXC_ERR, VendorError.PATH_MTU + MTU]);
      assert.is(wire.context.counters().pathMtuErr, 1n);
      assert.equal(wire.events, ['PATH_MTU_ERR']);
    }));
}

test('a READ of more than a path MTU without an answer is one sign, too: its responses vanish', () =>
  onWire(OWN_KIND, (wire) => {
    wire.post(WrOpcode.RDMA_READ, 4 * MTU, SIGNALED);
    let found: WorkCompletion | undefined;
    for (let millis = 0; millis < 10_000 && !found; millis++) {
      wire.clock.advance(1000);
      const isProbed = wire
        .takePackets()
        .some(({ opcode }) => opcode === Opcode.RC_RDMA_WRITE_ONLY);
      if (isProbed) wire.acknowledge(FIRST - 1);
      [found] = wire.cq.poll(1);
    }
    assert.is(found?.vendorErr, VendorError.PATH_MTU + MTU);
  }));

test('a silent peer, and a short request without an answer, say nothing of the path MTU', () =>
  onWire(OWN_KIND, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
    const { status, vendorErr } = wait(wire, false)!;
    assert.equal([status, vendorErr], [WcStatus.RETRY_EXC_ERR, 0]);
    assert.is(wire.context.counters().pathMtuErr, 0n);
  }));

test('a request shorter than the path MTU has no probes', () =>
  onWire(OWN_KIND, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 8, SIGNALED);
    assert.is(wait(wire, true)!.vendorErr, 0);
  }));

test('long packets that the system refuses end the queue pair within a second', () =>
  onWire({ ...OWN_KIND, attributes: { timeout: 20 } }, (wire) => {
    wire.link.longest = MTU;
    const began = wire.clock.now();
    wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
    const { status, vendorErr } = wait(wire, false)!;
    const vendor = VendorError.PATH_MTU_REFUSED + MTU;
    assert.equal([status, vendorErr], [WcStatus.RETRY_EXC_ERR, vendor]);
    const millis = (wire.clock.now() - began) / 1000;
    assert.ok(millis >= 500 && millis < 1000, `${millis} ms`);
  }));

test('an interface that refuses packets for 300 ms costs nothing but time', () =>
  onWire({ ...OWN_KIND, attributes: { timeout: 17 } }, (wire) => {
    wire.link.longest = MTU;
    wire.post(WrOpcode.RDMA_WRITE, 2 * MTU, SIGNALED);
    assert.is(wait(wire, false, 300_000), undefined);
    wire.link.longest = Infinity;
    let last = FIRST - 1;
    for (let millis = 0; millis < 1500 && last < FIRST + 1; millis++) {
      wire.clock.advance(1000);
      for (const { psn } of wire.takePackets()) {
        if (psn === last + 1) wire.acknowledge((last = psn));
      }
    }
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('a request of just the path MTU is a long one', () =>
  onWire(OWN_KIND, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, MTU, SIGNALED);
    assert.is(wait(wire, true)!.vendorErr, VendorError.PATH_MTU + MTU);
  }));

/** Half a second until a timeout. */
const PATIENT = { attributes: { timeout: 17 } };

for (const [kind, options] of [
  ['of our own kind', OWN_KIND],
  ['of another kind', {}],
] as const) {
  test(`a path MTU that drops during a connection to a peer ${kind} is named soon`, () =>
    onWire({ ...options, ...PATIENT }, (wire) => {
      wire.post(WrOpcode.RDMA_WRITE, 8);
      wire.clock.advance(10_000);
      wire.takePackets();
      wire.acknowledge(FIRST);
      const began = wire.clock.now();
      wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
      const { status, vendorErr } = wait(wire, true, 10e6, FIRST)!;
      assert.equal([status, vendorErr], [WcStatus.RETRY_EXC_ERR, VendorError.PATH_MTU + MTU]);
      const millis = (wire.clock.now() - began) / 1000;
      // A peer of another kind repeats nothing before the first timeout.
      const most = kind === 'of another kind' ? 1300 : 800;
      assert.ok(millis >= 550 && millis <= most, `${millis} ms`);
    }));
}

test('trials are a WRITE of the next smaller path MTU that is not new, and behind it two long packets', () =>
  onWire({ ...OWN_KIND, ...PATIENT }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
    wire.takePackets();
    let trials = 0;
    for (let millis = 0; millis < 900; millis++) {
      wire.clock.advance(1000);
      const sent = wire.takePackets();
      if (sent.length === 0) continue;
      const lengths = sent.map(({ payload }) => payload.length);
      // The link would send a shorter packet behind long ones as one run with them.
      if (trials > 0) assert.equal(lengths, [MTU / 2, MTU, MTU]);
      const { opcode, psn, virtualAddress, ackRequest } = sent[0]!;
      if (opcode !== Opcode.RC_RDMA_WRITE_ONLY) continue;
      assert.equal([psn, virtualAddress, ackRequest], [FIRST - 1, 0n, 1]);
      trials++;
      wire.acknowledge(FIRST - 1);
    }
    assert.ok(trials > 10, `${trials} trials`);
  }));

test('a queue that has room for most of the shorter packets is no proof', () =>
  onWire({ ...OWN_KIND, ...PATIENT }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
    const began = wire.clock.now();
    let trials = 0;
    while (wire.clock.now() - began < 3e6) {
      wire.clock.advance(1000);
      const isTrial = wire.takePackets().some(({ payload }) => payload.length === MTU / 2);
      if (isTrial && trials++ % 8 !== 7) wire.acknowledge(FIRST - 1);
    }
    assert.ok(trials >= 36, `${trials} trials`);
    assert.equal(wire.completions(), []);
    wire.acknowledge(FIRST + 3);
    assert.equal(wire.completions(), ['1 SUCCESS']);
  }));

test('a round without proof is followed by another one, after a timeout', () =>
  onWire({ ...OWN_KIND, ...PATIENT }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
    const began = wire.clock.now();
    let trials = 0;
    // Of the first round every fourth trial stays without an answer.
    while (trials < 36 && wire.clock.now() - began < 3e6) {
      wire.clock.advance(1000);
      const isTrial = wire.takePackets().some(({ payload }) => payload.length === MTU / 2);
      if (isTrial && trials++ % 4 !== 3) wire.acknowledge(FIRST - 1);
    }
    const { vendorErr } = wait(wire, true)!;
    assert.is(vendorErr, VendorError.PATH_MTU + MTU);
    const seconds = (wire.clock.now() - began) / 1e6;
    assert.ok(seconds < 3.5, `${seconds} s, in place of 4.2 for all retries`);
  }));

test('one long packet that arrives during the trials proves the path MTU', () =>
  onWire({ ...OWN_KIND, ...PATIENT }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
    assert.is(wait(wire, true, 900_000), undefined);
    wire.acknowledge(FIRST);
    const before = wire.clock.now();
    assert.is(wait(wire, true, 400_000), undefined, 'a round begins anew');
    assert.ok(wire.clock.now() - before >= 400_000);
  }));

test('acknowledgements with a forged MSN answer no trial', () =>
  onWire({ ...OWN_KIND, ...PATIENT }, (wire) => {
    wire.post(WrOpcode.RDMA_WRITE, 4 * MTU, SIGNALED);
    const forged = { opcode: Opcode.RC_ACKNOWLEDGE, psn: FIRST - 1, syndrome: 0x1f, msn: 5000 };
    let found: WorkCompletion | undefined;
    for (let millis = 0; millis < 10_000 && !found; millis += 10) {
      wire.clock.advance(10_000);
      wire.takePackets();
      wire.sendPacket(forged);
      [found] = wire.cq.poll(1);
    }
    assert.equal([found?.status, found?.vendorErr], [WcStatus.RETRY_EXC_ERR, 0]);
  }));

test('a peer that is not ready ends the trials', () =>
  onWire({ ...OWN_KIND, ...PATIENT }, (wire) => {
    wire.post(WrOpcode.SEND, 2 * MTU, SIGNALED);
    assert.is(wait(wire, true, 900_000), undefined);
    const rnr = 0x20 | 1;
    for (let turn = 0; turn < 40; turn++) {
      wire.acknowledge(FIRST, rnr);
      assert.is(wait(wire, true, 50_000), undefined);
    }
    assert.is(wire.context.counters().pathMtuErr, 0n);
  }));

test.run();
