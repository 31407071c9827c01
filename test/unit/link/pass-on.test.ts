import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../../host/link/endpoint.js';
import { faultLink } from '../../../host/link/faults/fault.js';
import { WireTap } from '../../../host/demo/wire-tap.js';
import type { Link, LinkInfo, LinkReceiver } from '../../../host/link/link.js';
import { pcapLink } from '../../../host/link/capture/pcap.js';
import { traceLink } from '../../../host/link/capture/trace.js';
import { UdpLink } from '../../../host/link/udp/udp.js';
import { UdpBatchLink } from '../../../host/link/udp/udp-batch.js';

const sink = { write: () => true, close: () => Promise.resolve() };
const WRAPPERS: { [name: string]: (link: Link) => Link } = {
  fault: (link) => faultLink(link),
  trace: (link) => traceLink(link, () => undefined, { explain: () => '' }),
  pcap: (link) => pcapLink(link, sink),
};
/** Those, and the demo's. */
const RECEIVING = { ...WRAPPERS, tap: (link: Link): Link => new WireTap(link) };
const OPTIONAL = ['poll', 'wait', 'wake', 'setPeerSegments'] as const;

for (const [name, wrap] of Object.entries(WRAPPERS)) {
  test(`${name} has what its link has, and nothing else`, () => {
    const plain = wrap(new UdpLink({ address: '127.0.0.1' }));
    for (const member of OPTIONAL) assert.is(plain[member], undefined, member);
    assert.is(plain.wakeDescriptor, undefined);
    const batching = wrap(new UdpBatchLink({ address: '127.0.0.1' }));
    for (const member of OPTIONAL) assert.type(batching[member], 'function', member);
    assert.is(batching.wakeDescriptor, -1);
  });

  test(`${name} asks its link, arguments and all`, () => {
    const calls: unknown[][] = [];
    const note =
      (member: string, result?: number) =>
      (...args: unknown[]): never => {
        calls.push([member, ...args]);
        return result as never;
      };
    const peer = Endpoint.parse('127.0.0.1', 1);
    const inner = Object.assign(new UdpLink({ address: '127.0.0.1' }), {
      poll: note('poll', 7),
      wait: note('wait'),
      wake: note('wake'),
      setPeerSegments: note('setPeerSegments'),
    });
    const link = wrap(inner);
    assert.is(link.poll!(), 7);
    link.wait!(12);
    link.wake!();
    link.setPeerSegments!(peer, true);
    const expected = [['poll'], ['wait', 12], ['wake'], ['setPeerSegments', peer, true]];
    assert.equal(calls, expected);
  });
}

for (const [name, wrap] of Object.entries(RECEIVING)) {
  test(`${name} passes on every report of its link`, async () => {
    const peer = Endpoint.parse('127.0.0.1', 1);
    const bytes = Uint8Array.of(1, 2, 3);
    const reason = new Error('no more');
    const inner = new UdpLink({ address: '127.0.0.1' });
    let told: LinkReceiver | undefined;
    const info = { name: 'inner', local: peer };
    const open = (receiver: LinkReceiver): Promise<LinkInfo> => {
      told = receiver;
      return Promise.resolve(info as LinkInfo);
    };
    const link = wrap(
      Object.defineProperty(Object.assign(inner, { open }), 'info', { value: info }),
    );
    const heard: unknown[][] = [];
    await link.open({
      packet: (...args) => heard.push(['packet', ...args]),
      flush: () => heard.push(['flush']),
      failed: (...args) => heard.push(['failed', ...args]),
      peerGone: (...args) => heard.push(['peerGone', ...args]),
    });
    told!.packet(bytes, peer);
    told!.flush();
    told!.peerGone!(peer, 'it went');
    told!.failed(reason);
    const [first, ...rest] = heard;
    assert.equal(first!.slice(0, 3), ['packet', bytes, peer]);
    assert.equal(rest, [['flush'], ['peerGone', peer, 'it went'], ['failed', reason]]);
    // A receiver without the callback is not called.
    await wrap(inner).open({ packet: () => {}, flush: () => {}, failed: () => {} });
    told!.peerGone?.(peer, 'it went');
  });
}

test.run();
