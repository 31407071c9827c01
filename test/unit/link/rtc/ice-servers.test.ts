/** STUN and TURN servers of the options, as each library names them. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { DataChannelLink, LinkError, MisuseError } from '../../../../host/index.js';
import { nodeServers } from '../../../../host/link/rtc/node.js';
import { releaseDataChannels, signallingTo } from '../../../support/channel-mesh.js';
import { RecordingReceiver } from '../../../support/receiver.js';

test.after(releaseDataChannels);

test('a server with credentials has host, port, transport and credentials', () => {
  const login = { username: 'user:1', credential: 'p@ss' };
  const named = { username: 'user:1', password: 'p@ss' };
  assert.equal(nodeServers('stun:127.0.0.1:3478'), ['stun:127.0.0.1:3478']);
  assert.equal(nodeServers({ urls: 'stun:host' }), [{ hostname: 'host', port: 3478 }]);
  assert.equal(nodeServers({ urls: 'turn:[::1]:99', ...login }), [
    { hostname: '::1', port: 99, relayType: 'TurnUdp', ...named },
  ]);
  const urls = ['turn:a?transport=tcp', 'turns:b:443'];
  assert.equal(nodeServers({ urls, ...login }), [
    { hostname: 'a', port: 3478, relayType: 'TurnTcp', ...named },
    { hostname: 'b', port: 443, relayType: 'TurnTls', ...named },
  ]);
  for (const bad of ['http://host', 'turn:', 'stun:host:123456']) {
    assert.throws(() => nodeServers({ urls: bad }), /stun:, turn: or turns:/);
  }
});

test('links connect with servers that do not answer', async () => {
  const iceServers = [{ urls: 'turn:127.0.0.1:9', username: 'user', credential: 'word' }];
  const links = [new DataChannelLink({ iceServers }), new DataChannelLink({ iceServers })];
  for (const link of links) await link.open(new RecordingReceiver());
  await links[0]!.connect(signallingTo(links[1]!));
  assert.is(links[0]!.peers.length, 1);
  for (const link of links) await link.close();
  const wrong = new DataChannelLink({ iceServers: [{ urls: 'nothing' }] });
  await wrong.open(new RecordingReceiver());
  const error = await wrong.connect(signallingTo(links[1]!)).catch((reason: Error) => reason);
  assert.instance(error, MisuseError);
  await wrong.close();
});

test('by a relay alone: without one both sides refuse at once, and the policy is checked', async () => {
  const iceServers = [{ urls: 'turn:127.0.0.1:9', username: 'user', credential: 'word' }];
  const relayed = new DataChannelLink({ iceServers, iceTransportPolicy: 'relay' });
  const other = new DataChannelLink({ iceTransportPolicy: 'all' });
  for (const link of [relayed, other]) await link.open(new RecordingReceiver());
  for (const [from, to] of [
    [relayed, other],
    [other, relayed],
  ] as const) {
    const error = await from.connect(signallingTo(to)).catch((reason: LinkError) => reason);
    assert.instance(error, LinkError);
    assert.is((error as LinkError).code, 'ECONNREFUSED');
    assert.match((error as LinkError).message, /iceServers: no TURN server relays; check its URL/);
  }
  assert.equal([...relayed.peers, ...other.peers], []);
  for (const link of [relayed, other]) await link.close();
  const wrong = 'relays' as 'relay';
  assert.throws(
    () => new DataChannelLink({ iceTransportPolicy: wrong }),
    /iceTransportPolicy: must be all or relay, got "relays"/,
  );
});

test.run();
