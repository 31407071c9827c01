/** Links over data channels and WebSockets, between ends of one process, keep the contract. */
import {
  DataChannelMesh,
  WebSocketMesh,
  releaseDataChannels,
  type ChannelMesh,
} from '../support/channel-mesh.js';
import type { ChannelLink } from '../../host/link/channel/channel-link.js';
import { linkSuite } from './link.suite.js';

function check<Inner extends ChannelLink>(name: string, make: () => ChannelMesh<Inner>): void {
  const suite = linkSuite(name, () => {
    const mesh = make();
    return (at) => mesh.link(at);
  });
  if (name.startsWith('data')) suite.after(releaseDataChannels);
  suite.run();
}

check('data-channel', () => new DataChannelMesh());
check('data-channel with a path MTU of 4096', () => new DataChannelMesh({ pathMtuBytes: 4096 }));
check('data-channel with four connections', () => new DataChannelMesh({ connections: 4 }));
check('websocket', () => new WebSocketMesh());
