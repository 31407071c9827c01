import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint } from '../../../host/link/endpoint.js';
import { faultLink } from '../../../host/link/fault.js';
import type { Link } from '../../../host/link/link.js';
import { pcapLink } from '../../../host/link/pcap.js';
import { traceLink } from '../../../host/link/trace.js';
import { UdpLink } from '../../../host/link/udp.js';
import { UdpBatchLink } from '../../../host/link/udp-batch.js';

const test = suite('link/pass-on');

const sink = { write: () => true, close: () => Promise.resolve() };
const WRAPPERS: { [name: string]: (link: Link) => Link } = {
  fault: (link) => faultLink(link),
  trace: (link) => traceLink(link, () => undefined, { explain: () => '' }),
  pcap: (link) => pcapLink(link, sink),
};
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

test.run();
