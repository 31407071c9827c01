/** URLs of servers. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { formatUrl, isRdmaUrl, parseUrl } from '../../../host/cm/url.js';
import { expectMisuse } from '../../support/refusal.js';

test('hosts, IPv6 addresses and ports are parsed and written back', () => {
  const cases = {
    'rdma://127.0.0.1:7471': { address: '127.0.0.1', port: 7471, udpPort: undefined },
    'rdma://host.example:0?udp=0': { address: 'host.example', port: 0, udpPort: 0 },
    'rdma://[fe80::1]:65535?udp=65535': { address: 'fe80::1', port: 65535, udpPort: 65535 },
  };
  for (const [url, place] of Object.entries(cases)) {
    assert.equal(parseUrl('connect', url), place);
    assert.equal(parseUrl('connect', new URL(url)), place);
    assert.is(formatUrl(place), url);
  }
  assert.is(formatUrl({ address: '::1', port: 1, udpPort: 4791 }), 'rdma://[::1]:1');
});

test('other texts are refused with the form that is meant', () => {
  const wrong = ['', 'rdma://', 'rdma://a', 'rdma://a:b', 'rdma://a:65536', 'rdma://a:1?udp=70000'];
  for (const url of [...wrong, 'rdma://::1:5', 'rdma://a:1?port=5', 'rdma://u@a:1', 'http://a:1']) {
    expectMisuse(() => parseUrl('connect', url), 'url');
  }
});

test('a URL differs from host:port', () => {
  assert.ok(isRdmaUrl('rdma://a:1') && isRdmaUrl(new URL('rdma://a:1')) && isRdmaUrl('RDMA:x'));
  assert.not.ok(isRdmaUrl('127.0.0.1:7471') || isRdmaUrl({ address: 'rdma://', port: 1 }));
});

test.run();
