/** Links over channels of this process that are connected, each with each, once they are open. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ChannelLink } from '../../host/link/channel/channel-link.js';
import { DataChannelLink, type DataChannelOptions } from '../../host/link/channel/data-channel.js';
import type { Endpoint } from '../../host/link/endpoint.js';
import type { Link, LinkInfo, LinkReceiver, PacketBatch } from '../../host/link/link.js';
import { NodeConnector } from '../../host/link/rtc/node.js';
import type { Signalling } from '../../host/link/signalling/signalling.js';
import { acceptUpgrades } from '../../host/link/channel/websocket-server.js';
import { WebSocketLink } from '../../host/link/channel/websocket.js';
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

/** Ends the threads of libdatachannel, which keep a process alive: call it when all is closed. */
export async function releaseDataChannels(): Promise<void> {
  (await import('node-datachannel')).cleanup();
}

/** Links of one kind, and how two of them are connected. */
export abstract class ChannelMesh<Inner extends ChannelLink> {
  readonly #open = new Set<MeshLink<Inner>>();

  /** A closed link: at the address of one that was made before, or at one of its own. */
  link(at?: Endpoint): Link {
    return new MeshLink(this, this.make(at));
  }

  protected abstract make(at: Endpoint | undefined): Inner;
  protected abstract connect(from: Inner, to: Inner): Promise<unknown>;
  /** It is open. */
  protected opened(_link: Inner): Promise<void> {
    return Promise.resolve();
  }
  protected closed(_link: Inner): void {}

  async enter(link: MeshLink<Inner>): Promise<void> {
    await this.opened(link.inner);
    for (const other of this.#open) {
      await this.connect(link.inner, other.inner);
      const { local } = link.info;
      await eventually(() => other.inner.peers.some((peer) => peer.equals(local)));
    }
    this.#open.add(link);
  }

  leave(link: MeshLink<Inner>): void {
    if (this.#open.delete(link)) this.closed(link.inner);
  }
}

class MeshLink<Inner extends ChannelLink> implements Link {
  readonly inner: Inner;
  readonly #mesh: ChannelMesh<Inner>;

  constructor(mesh: ChannelMesh<Inner>, inner: Inner) {
    this.#mesh = mesh;
    this.inner = inner;
  }

  get info(): LinkInfo {
    return this.inner.info;
  }

  async open(receiver: LinkReceiver): Promise<LinkInfo> {
    const info = await this.inner.open(receiver);
    await this.#mesh.enter(this);
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

export class DataChannelMesh extends ChannelMesh<DataChannelLink> {
  readonly #connectors = new Map<string, NodeConnector>();
  readonly #made = new WeakMap<DataChannelLink, NodeConnector>();
  readonly #options: DataChannelOptions;

  constructor(options: DataChannelOptions = {}) {
    super();
    this.#options = options;
  }

  protected make(at: Endpoint | undefined): DataChannelLink {
    const connector = (at && this.#connectors.get(at.gid.toString())) ?? new NodeConnector();
    const link = new DataChannelLink({ ...this.#options, connector });
    this.#made.set(link, connector);
    return link;
  }

  protected connect(from: DataChannelLink, to: DataChannelLink): Promise<Endpoint> {
    return from.connect(signallingTo(to));
  }

  protected override async opened(link: DataChannelLink): Promise<void> {
    this.#connectors.set(link.info.local.gid.toString(), this.#made.get(link)!);
  }
}

/** Every link has an HTTP server of its own. */
export class WebSocketMesh extends ChannelMesh<WebSocketLink> {
  readonly #servers = new Map<WebSocketLink, Server>();

  protected make(at: Endpoint | undefined): WebSocketLink {
    return new WebSocketLink(at ? { address: at.gid } : {});
  }

  protected connect(from: WebSocketLink, to: WebSocketLink): Promise<Endpoint> {
    const { port } = this.#servers.get(to)!.address() as AddressInfo;
    return from.connect(`ws://127.0.0.1:${port}/packets`);
  }

  protected override async opened(link: WebSocketLink): Promise<void> {
    const server = createServer();
    await acceptUpgrades(link, server, '/packets');
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.#servers.set(link, server);
  }

  protected override closed(link: WebSocketLink): void {
    this.#servers.get(link)?.close();
  }
}
