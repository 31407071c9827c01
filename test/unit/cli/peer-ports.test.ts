/** Ports of devices that `verbena decode` and `verbena sniff` follow. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { PeerPorts } from '../../../host/cli/decode/peer-ports.js';
import type { CapturedPacket } from '../../../host/link/capture/pcap.js';
import { Endpoint } from '../../../host/link/endpoint.js';

const from = (port: number): CapturedPacket =>
  ({ source: Endpoint.parse('127.0.0.1', port) }) as CapturedPacket;

test('the port of a device is learned once, the port of a flow and of a forged packet is not', () => {
  const ports = new PeerPorts([4791]);
  const cases: [port: number, verdict: Parameters<PeerPorts['learn']>[1], learned?: number][] = [
    [4791, 'exact'],
    [40_000, 'wrong'],
    [40_000, 'unchecked'],
    [0xc000, 'exact'],
    [40_000, 'omitted', 40_000],
    [40_000, 'exact'],
    [40_001, 'by IP id', 40_001],
  ];
  for (const [port, verdict, learned] of cases) {
    assert.is(ports.learn(from(port), verdict), learned, `${port} ${verdict}`);
  }
});

test('a capture of many ports does not grow the list without an end', () => {
  const ports = new PeerPorts([4791]);
  const learned = Array.from({ length: 1000 }, (_, at) => ports.learn(from(1000 + at), 'exact'));
  assert.is(learned.filter((port) => port !== undefined).length, 63);
});

test.run();
