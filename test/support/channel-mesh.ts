/** Links over data channels of this process that are connected, each with each, once they are open. */
import { DataChannelLink, type DataChannelOptions } from '../../host/link/data-channel.js';
import type { Endpoint } from '../../host/link/endpoint.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../../host/link/link.js';
import type { RtcConnector } from '../../host/link/rtc/connection.js';
import { NodeConnector } from '../../host/link/rtc/node.js';
import type { Signalling } from '../../host/link/signalling/signalling.js';
import { eventually } from './receiver.js';

/** Asks a link of the same process. */
export function signallingTo(link: DataChannelLink): Signalling {
  return { name: 'the other link', exchange: (offer) => link.answer(offer) };
}

/** Connects two links that are open; each has the other when this resolves. */
export async function connectLinks(a: DataChannelLink, b: DataChannelLink): Promise<void> {
  await a.connect(signallingTo(b));
  await eventually(() => b.peers.some((peer) => peer.equals(a.info.local)));
}

/** Makes links; `link.open` connects it with those that are open. */
export class ChannelMesh {
  readonly #open = new Set<MeshLink>();
  readonly #connectors = new Map<string, RtcConnector>();
  readonly #options: DataChannelOptions;

  constructor(options: DataChannelOptions = {}) {
    this.#options = options;
  }

  /** At the address of a link that was made before, or at one of its own. */
  link(at?: Endpoint): Link {
    const connector = (at && this.#connectors.get(at.gid.toString())) ?? new NodeConnector();
    return new MeshLink(this, new DataChannelLink({ ...this.#options, connector }), connector);
  }

  async enter(link: MeshLink, connector: RtcConnector): Promise<void> {
    this.#connectors.set(link.info.local.gid.toString(), connector);
    for (const other of this.#open) await connectLinks(link.inner, other.inner);
    this.#open.add(link);
  }

  leave(link: MeshLink): void {
    this.#open.delete(link);
  }
}

class MeshLink implements Link {
  readonly inner: DataChannelLink;
  readonly #mesh: ChannelMesh;
  readonly #connector: RtcConnector;

  constructor(mesh: ChannelMesh, inner: DataChannelLink, connector: RtcConnector) {
    this.#mesh = mesh;
    this.inner = inner;
    this.#connector = connector;
  }

  get info(): LinkInfo {
    return this.inner.info;
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    const info = await this.inner.open(receiver);
    await this.#mesh.enter(this, this.#connector);
    return info;
  }

  send(batch: PacketBatch): void {
    this.inner.send(batch);
  }

  close(): Promise<void> {
    this.#mesh.leave(this);
    return this.inner.close();
  }
}
