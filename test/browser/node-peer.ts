/** A Node program with a device: data channels by way of /signal, WebSockets at /packets. */
import { EventEmitter, once } from 'node:events';
import type { ServerResponse } from 'node:http';
import {
  DataChannelLink,
  WebSocketLink,
  acceptUpgrades,
  answerRequest,
  faultLink,
  openDevice,
  type Answerer,
  type Context,
} from '../../host/index.js';
import * as library from '../../host/index.js';
import { Site, type SiteOptions, type Tab } from '../support/browser.js';
import { TransferSide } from '../support/transfer.js';
import type { TabState } from './tab-device.js';

const MEMORY_BYTES = 2 ** 25;

export interface NodePeerOptions extends SiteOptions {
  /** Of the packets that it sends over data channels, how many are lost: 0 to 1. */
  readonly loss?: number;
  /** To each peer, at most. */
  readonly connections?: number;
  /** Answers what is POSTed to /strange. */
  readonly strange?: Answerer;
}

export class NodePeer {
  readonly site: Site;
  readonly link: DataChannelLink;
  readonly context: Context;
  readonly socketLink: WebSocketLink;
  readonly socketContext: Context;
  readonly #held: EventEmitter;

  private constructor(
    site: Site,
    link: DataChannelLink,
    context: Context,
    socketLink: WebSocketLink,
    socketContext: Context,
    held: EventEmitter,
  ) {
    this.site = site;
    this.link = link;
    this.context = context;
    this.socketLink = socketLink;
    this.socketContext = socketContext;
    this.#held = held;
  }

  static async open(options: NodePeerOptions = {}): Promise<NodePeer> {
    const link = new DataChannelLink({ connections: options.connections ?? 1 });
    const lossy = options.loss ? faultLink(link, { loss: options.loss }) : link;
    const context = await openDevice({ link: lossy, memoryBytes: MEMORY_BYTES });
    const socketLink = new WebSocketLink();
    const socketContext = await openDevice({ link: socketLink, memoryBytes: MEMORY_BYTES });
    const held = new EventEmitter();
    const site = await Site.open({
      post: (request, response) => {
        if (request.url === '/held') return held.emit('request', response);
        const isStrange = request.url === '/strange' && options.strange;
        const answer = isStrange ? options.strange! : link.answer;
        return answerRequest({ answer }, request, response);
      },
      ...options,
    });
    await acceptUpgrades(socketLink, site.server, '/packets');
    return new NodePeer(site, link, context, socketLink, socketContext, held);
  }

  /** Connects a tab's device, which is open; both have the same amount of memory. */
  async connect(tab: Tab, bytes: number, context: Context = this.context): Promise<TransferSide> {
    const accepting = TransferSide.accept(library, context, bytes);
    // If the tab fails first, its error is reported.
    accepting.catch(() => {});
    await tab.run(async (verbena, state: TabState, length: number) => {
      const at = '/build/test/support/transfer.js';
      const { TransferSide } = (await import(at)) as typeof import('../support/transfer.js');
      const peer = `${state.link.peers[0]!.gid}`;
      state.side = await TransferSide.connect(verbena, state.context, peer, length);
    }, bytes);
    return accepting;
  }

  /** Runs `work` while the main thread of the tab's page waits for an answer of this program. */
  async whileBlocked<Value>(tab: Tab, work: () => Promise<Value>): Promise<Value> {
    const asked = once(this.#held, 'request') as Promise<[ServerResponse]>;
    const blocked = tab.page.evaluate('block("/held")');
    const [response] = await asked;
    try {
      return await work();
    } finally {
      response.end();
      await blocked;
    }
  }

  /** A tab connects its device by itself. */
  accept(bytes: number): Promise<TransferSide> {
    return TransferSide.accept(library, this.context, bytes);
  }

  async close(): Promise<void> {
    await this.context.close();
    await this.socketContext.close();
    await this.site.close();
  }
}
