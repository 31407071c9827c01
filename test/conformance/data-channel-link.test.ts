/** Data channels between links of one process keep the contract of links. */
import { ChannelMesh } from '../support/channel-mesh.js';
import { linkSuite } from './link.suite.js';

linkSuite('data-channel', () => {
  const mesh = new ChannelMesh();
  return (at) => mesh.link(at);
}).run();
linkSuite('data-channel with a path MTU of 4096', () => {
  const mesh = new ChannelMesh({ pathMtuBytes: 4096 });
  return (at) => mesh.link(at);
}).run();
