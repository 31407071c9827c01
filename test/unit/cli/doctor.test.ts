/** `verbena doctor`: what it concludes from the facts about a machine. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { checksOf, type Check } from '../../../host/cli/doctor/checks.js';
import { gatherFacts, quotaOf, type Facts } from '../../../host/cli/doctor/facts.js';

const GOOD: Facts = {
  node: 'v22.1.0',
  platform: 'linux',
  nativeCalls: 'koffi',
  packages: { koffi: undefined, 'node-datachannel': undefined, ws: undefined },
  cores: 8,
  coresQuota: undefined,
  link: {
    name: 'udp-batch',
    receiveBufferBytes: 8 * 2 ** 20,
    socketOptions: [
      { name: 'UDP_SEGMENT', effect: 'runs of packets leave as one', granted: true },
      { name: 'UDP_GRO', effect: 'runs of packets arrive as one', granted: true },
    ],
  },
  receiveBufferMax: 8 * 2 ** 20,
  portHolder: undefined,
  sharedMemory: { bytes: 2 ** 30, freeBytes: 2 ** 30 },
  interfaces: [{ name: 'eth0', mtu: 9000 }],
  openFilesMax: 4096,
  canSniff: true,
};

function named(facts: Partial<Facts>, name: string): Check {
  const found = checksOf({ ...GOOD, ...facts }).find((check) => check.name === name);
  if (!found) throw new Error(`no check is named ${name}`);
  return found;
}

test('a machine with everything has only fast checks, and no remedy', () => {
  for (const { name, state, remedy } of checksOf(GOOD)) {
    assert.is(state, 'fast', name);
    assert.is(remedy, undefined, name);
  }
});

test('the package that makes the system calls is named', () => {
  assert.match(named({}, 'koffi').finding, 'link udp-batch by koffi');
  assert.match(named({ nativeCalls: 'node:ffi' }, 'koffi').finding, 'link udp-batch by node:ffi');
});

test('a slow or missing part is named with its remedy', () => {
  const none = 'koffi is not installed: npm install koffi';
  const small = { ...GOOD.link, receiveBufferBytes: 425984 };
  const options = [{ name: 'UDP_GRO', effect: 'x', granted: false, reason: 'ENOPROTOOPT' }];
  const cases: [facts: Partial<Facts>, name: string, state: string, remedy: RegExp][] = [
    [{ node: 'v18.19.0' }, 'node', 'failed', /Node 20\.15/],
    [{ node: 'v20.14.0' }, 'node', 'failed', /Node 20\.15/],
    [{ packages: { koffi: none } }, 'koffi', 'slow', /npm install koffi/],
    [{ packages: { ws: 'x' } }, 'ws', 'missing', /npm install ws/],
    [
      { packages: { 'node-datachannel': 'x' } },
      'node-datachannel',
      'missing',
      /npm install node-d/,
    ],
    [{ cores: 1 }, 'processors', 'slow', /--cpus 2/],
    [{ coresQuota: 0.5 }, 'processors', 'slow', /--cpus 2/],
    [{ link: small, receiveBufferMax: 212992 }, 'socket buffer', 'slow', /rmem_max=4194304/],
    [{ link: { ...GOOD.link, socketOptions: options } }, 'UDP_GRO', 'slow', /Linux 5/],
    [{ portHolder: 'taken by process 7 (x)' }, 'port 4791', 'missing', /end that process/],
    [
      { sharedMemory: { bytes: 2 ** 26, freeBytes: 2 ** 26 } },
      'shared memory',
      'missing',
      /shm-size/,
    ],
    [{ sharedMemory: undefined, platform: 'darwin' }, 'shared memory', 'missing', /directory/],
    [{ interfaces: [{ name: 'eth0', mtu: 1500 }] }, 'interfaces', 'slow', /mtu 9000/],
    [{ openFilesMax: 256 }, 'files', 'slow', /ulimit -n/],
    [{ canSniff: false }, 'verbena sniff', 'missing', /sudo; or tcpdump/],
  ];
  for (const [facts, name, state, remedy] of cases) {
    const check = named(facts, name);
    assert.is(check.state, state, name);
    assert.match(check.remedy ?? '', remedy, name);
  }
});

test('on Linux a socket buffer is half of what the kernel reports', () => {
  const cases: [bytes: number, platform: Facts['platform'], finding: string, state: string][] = [
    [2 ** 23, 'linux', 'receive buffer 4.2 MB (the kernel reports twice that)', 'fast'],
    [2 ** 22, 'linux', 'receive buffer 2.1 MB of the requested 4.2 MB (the kernel', 'slow'],
    [2 ** 22, 'darwin', 'receive buffer 4.2 MB', 'fast'],
    [2 ** 21, 'darwin', 'receive buffer 2.1 MB of the requested 4.2 MB: fewer', 'slow'],
  ];
  for (const [receiveBufferBytes, platform, finding, state] of cases) {
    const check = named({ link: { ...GOOD.link, receiveBufferBytes }, platform }, 'socket buffer');
    assert.ok(check.finding.startsWith(finding), check.finding);
    assert.is(check.state, state, finding);
  }
});

test('a quota of cgroup 2 is a number of processors', () => {
  assert.is(quotaOf('50000 100000\n'), 0.5);
  assert.is(quotaOf('max 100000\n'), undefined);
  assert.is(quotaOf(''), undefined);
});

test('the facts of this machine are gathered without an error', async () => {
  const facts = await gatherFacts();
  assert.is(facts.node, process.version);
  assert.ok(facts.cores >= 1);
  assert.ok(facts.link.receiveBufferBytes > 0);
  assert.ok(checksOf(facts).length > 8);
});

test.run();
