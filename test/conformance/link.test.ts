/** Every link and every wrapper keeps the contract. */
import { networkInterfaces } from 'node:os';
import { Endpoint } from '../../host/link/endpoint.js';
import { faultLink } from '../../host/link/fault.js';
import type { Link } from '../../host/link/link.js';
import { LoopbackNetwork } from '../../host/link/loopback.js';
import { pcapLink } from '../../host/link/pcap.js';
import { traceLink } from '../../host/link/trace.js';
import { UdpLink } from '../../host/link/udp.js';
import { LateReleaseLink } from '../support/late-release-link.js';
import { linkSuite, type LinkMaker } from './link.suite.js';

function loopback(): LinkMaker {
  const network = new LoopbackNetwork();
  return (at = Endpoint.parse('127.0.0.1', 0)) => network.link(at);
}

function udp(address: string): LinkMaker {
  return (at = Endpoint.parse(address, 0)) =>
    new UdpLink({ address: at.gid.toString(), port: at.port });
}

function wrapped(make: LinkMaker, wrap: (link: Link) => Link): LinkMaker {
  return (at) => wrap(make(at));
}

const hasIpv6 = Object.values(networkInterfaces()).some((addresses) =>
  addresses?.some(({ address }) => address === '::1'),
);

function check(name: string, prepare: () => LinkMaker): void {
  linkSuite(name, prepare).run();
}

check('loopback', loopback);
check('udp over IPv4', () => udp('127.0.0.1'));
if (hasIpv6) check('udp over IPv6', () => udp('::1'));
else console.log('not run: this machine has no ::1');
check('fault(loopback) with no fault', () => wrapped(loopback(), (link) => faultLink(link)));
check('fault(udp) that delays everything', () =>
  wrapped(udp('127.0.0.1'), (link) =>
    // A scheduler that keeps the order: delays of a microsecond do not re-order.
    faultLink(link, {
      delay: 1,
      scheduler: {
        schedule(_delayMicros, action) {
          const timer = setImmediate(action);
          return () => clearImmediate(timer);
        },
      },
    }),
  ),
);
check('trace(udp)', () =>
  wrapped(udp('127.0.0.1'), (link) =>
    traceLink(link, () => undefined, { explain: (bytes) => `${bytes.length} bytes` }),
  ),
);
check('pcap(udp)', () =>
  wrapped(udp('127.0.0.1'), (link) =>
    pcapLink(link, { write: () => true, close: () => Promise.resolve() }),
  ),
);
check('pcap(loopback)', () =>
  wrapped(loopback(), (link) =>
    pcapLink(link, { write: () => true, close: () => Promise.resolve() }),
  ),
);
check('late release over loopback', () => wrapped(loopback(), (link) => new LateReleaseLink(link)));
check('late release over udp', () =>
  wrapped(udp('127.0.0.1'), (link) => new LateReleaseLink(link)),
);
