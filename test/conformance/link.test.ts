/** Every link and every wrapper keeps the contract. */
import { networkInterfaces } from 'node:os';
import { Endpoint } from '../../host/link/endpoint.js';
import { faultLink } from '../../host/link/faults/fault.js';
import type { Link } from '../../host/link/link.js';
import { LoopbackNetwork } from '../../host/link/loopback.js';
import { pcapLink } from '../../host/link/capture/pcap.js';
import * as sys from '../../host/link/posix.js';
import { traceLink } from '../../host/link/capture/trace.js';
import { UdpLink } from '../../host/link/udp/udp.js';
import { UdpBatchLink } from '../../host/link/udp/udp-batch.js';
import { LateReleaseLink } from '../support/late-release-link.js';
import { PolledLink, TestMemory } from '../support/polled-link.js';
import { linkSuite, type LinkMaker } from './link.suite.js';

function loopback(): LinkMaker {
  const network = new LoopbackNetwork();
  return (at = Endpoint.parse('127.0.0.1', 0)) => network.link(at);
}

function udp(address: string, Made: typeof UdpLink | typeof UdpBatchLink = UdpLink): LinkMaker {
  return (at = Endpoint.parse(address, 0)) =>
    new Made({ address: at.gid.toString(), port: at.port });
}

/** `direct`: with an engine's memory, and runs of packets wherever they are possible. */
function udpBatch(address: string, direct: boolean, Made = UdpBatchLink): LinkMaker {
  return (at = Endpoint.parse(address, 0)) =>
    new PolledLink(
      new Made({ address: at.gid.toString(), port: at.port }),
      direct ? { memory: new TestMemory(), segments: true } : {},
    );
}

/** As on a kernel that does not know runs of packets. */
class WithoutRuns extends UdpBatchLink {
  static #opening = 0;

  static {
    const { setOption } = sys.Posix.prototype;
    sys.Posix.prototype.setOption = function (fd, level, option, value) {
      const isRun = option === sys.UDP_SEGMENT || option === sys.UDP_GRO;
      if (WithoutRuns.#opening > 0 && level === sys.SOL_UDP && isRun) {
        throw new sys.PosixError('setsockopt', 'ENOPROTOOPT');
      }
      setOption.call(this, fd, level, option, value);
    };
  }

  override async open(...parameters: Parameters<UdpBatchLink['open']>) {
    WithoutRuns.#opening++;
    try {
      return await super.open(...parameters);
    } finally {
      WithoutRuns.#opening--;
    }
  }
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
const noBatch = await UdpBatchLink.missing();
if (noBatch === undefined) {
  check('udp-batch over IPv4', () => udpBatch('127.0.0.1', false));
  check('udp-batch over IPv4, from and to memory', () => udpBatch('127.0.0.1', true));
  check('udp-batch on a kernel that knows no runs', () => udpBatch('127.0.0.1', true, WithoutRuns));
  if (hasIpv6) check('udp-batch over IPv6, from and to memory', () => udpBatch('::1', true));
  check('fault(udp-batch) with no fault', () =>
    wrapped(udp('127.0.0.1', UdpBatchLink), (link) => new PolledLink(faultLink(link))),
  );
  check('trace(udp-batch)', () =>
    wrapped(
      udp('127.0.0.1', UdpBatchLink),
      (link) => new PolledLink(traceLink(link, () => undefined, { explain: () => 'a packet' })),
    ),
  );
  check('pcap(udp-batch)', () =>
    wrapped(
      udp('127.0.0.1', UdpBatchLink),
      (link) =>
        new PolledLink(pcapLink(link, { write: () => true, close: () => Promise.resolve() })),
    ),
  );
} else {
  console.log(`not run: many packets per system call: ${noBatch}`);
}
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
