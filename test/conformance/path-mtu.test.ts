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
function wait(wire: Wire, answers: boolean, limitMicros = 10e6): WorkCompletion | undefined {
  for (const began = wire.clock.now(); wire.clock.now() - began < limitMicros;) {
    wire.clock.advance(1000);
    const isShort = wire.takePackets().some(({ payload }) => payload.length < MTU);
    if (isShort && answers) wire.acknowledge(FIRST - 1);
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

test.run();
