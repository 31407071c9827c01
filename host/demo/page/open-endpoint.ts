/** Opens an endpoint with the features of this browser, and reports those that it lacks. */
import { LinkError } from '../../errors/errors.js';
import { DataChannelLink } from '../../link/channel/data-channel.js';
import { BroadcastSignalling } from '../../link/signalling/broadcast.js';
import { WebSocketLink } from '../../link/channel/websocket.js';
import { defaultConnector } from '../../link/rtc/default.js';
import { DemoEndpoint } from '../endpoint.js';
import { WideConnector } from '../wide-connector.js';
import { socketUrl } from './ways.js';
import { ChannelYardsticks, SocketYardsticks, type Yardsticks } from './yardsticks.js';

const ROOM = 'verbena demo';
const SIGNAL_MILLIS = 4000;
/** To find a peer that was lost: a server restarts, a tab was closed or has lost its relay. */
const SERVER_ATTEMPTS = 150;
const TAB_ATTEMPTS = 3;
/** A person carries the answer of copy and paste back meanwhile. */
const OPEN_MILLIS = 5 * 60_000;

export interface Opened {
  readonly endpoint: DemoEndpoint;
  readonly linkName: string;
  readonly yardsticks: Yardsticks;
  /** Where tabs meet; undefined: packets go by WebSocket. */
  readonly room: string | undefined;
}

type Note = (sentence: string, isTrouble?: boolean) => void;

/**
 * `search`: `link=websocket` does without WebRTC, `room=…` meets others, `stun=…` names a server.
 * `isStatic`: no server of the demo answers. Rejects as openDevice.
 */
export async function openEndpoint(
  search: URLSearchParams,
  isStatic: boolean,
  note: Note,
): Promise<Opened> {
  if (typeof SharedArrayBuffer === 'undefined') {
    note(
      'No SharedArrayBuffer (the page is not isolated): memory is unshared, and a shared domain ' +
        'stays in one Worker.',
    );
  }
  if (search.get('link') !== 'websocket') {
    try {
      return await overDataChannels(search, isStatic, note);
    } catch (error) {
      if (!(error instanceof LinkError)) throw error;
      const { message } = error;
      if (isStatic) {
        note(`${message}. Without it this page reaches no other tab.`, true);
        throw error;
      }
      note(
        `${message}. Packets go by WebSocket to the server; tabs do not reach each other.`,
        true,
      );
    }
  }
  return overWebSocket(note);
}

async function overDataChannels(
  search: URLSearchParams,
  isStatic: boolean,
  note: Note,
): Promise<Opened> {
  const room = search.get('room') ?? ROOM;
  const iceServers = search.getAll('stun');
  const connector = new WideConnector(defaultConnector({ iceServers }));
  const link = new DataChannelLink({ connector, openMillis: OPEN_MILLIS });
  const endpoint = await DemoEndpoint.open('tab', link);
  try {
    link.meet(new BroadcastSignalling(room));
  } catch (error) {
    note(`${(error as Error).message}: other tabs are not found; the server is.`, true);
  }
  const server = isStatic ? undefined : new URL('signal', self.location.href).href;
  void keepPeers(link, room, server, note);
  const yardsticks = new ChannelYardsticks(room, endpoint.address, { link, connector, isStatic });
  return { endpoint, linkName: 'WebRTC data channel', yardsticks, room };
}

/** Connects to the server, and anew to it and to tabs that were lost. */
async function keepPeers(
  link: DataChannelLink,
  room: string,
  server: string | undefined,
  note: Note,
): Promise<void> {
  const limits = { timeoutMillis: SIGNAL_MILLIS };
  const own = `${link.info.local.gid}`;
  const events = link.peerEvents();
  let serverId = '';
  const seek = async (way: string | BroadcastSignalling, attempts: number): Promise<void> => {
    for (let left = attempts; left > 0 && link.isOpen; left--) {
      await new Promise((resolve) => setTimeout(resolve, SIGNAL_MILLIS));
      const peer = await link.connect(way, limits).catch(() => undefined);
      if (peer && way === server) serverId = `${peer.gid}`;
      if (peer) return;
    }
  };
  if (server !== undefined) {
    link.connect(server, limits).then(
      ({ gid }) => (serverId = `${gid}`),
      (error: Error) =>
        note(
          `The server is no peer: ${error.message}. Open this page in a second tab of this ` +
            'browser: tabs find each other without it.',
          true,
        ),
    );
  }
  for await (const { kind, peer } of events) {
    if (kind !== 'disconnected') continue;
    const id = `${peer.gid}`;
    // A server that was restarted has another address, and may take its time.
    if (id === serverId) void seek(server!, SERVER_ATTEMPTS);
    else if (own < id) void seek(new BroadcastSignalling(room, id), TAB_ATTEMPTS);
  }
}

async function overWebSocket(note: Note): Promise<Opened> {
  const link = new WebSocketLink();
  const endpoint = await DemoEndpoint.open('tab', link);
  void keepServer(link, note);
  return { endpoint, linkName: 'WebSocket', yardsticks: new SocketYardsticks(), room: undefined };
}

/** Connects to the server, and anew to one that was restarted. */
async function keepServer(link: WebSocketLink, note: Note): Promise<void> {
  const url = socketUrl('packets');
  const events = link.peerEvents();
  link.connect(url).catch((error: Error) => {
    note(`No peer: ${error.message}. It takes WebRTC, or "npx verbena demo" as the server.`, true);
  });
  for await (const { kind } of events) {
    if (kind !== 'disconnected') continue;
    for (let left = SERVER_ATTEMPTS; left > 0 && link.isOpen; left--) {
      await new Promise((resolve) => setTimeout(resolve, SIGNAL_MILLIS));
      if (await link.connect(url).catch(() => undefined)) break;
    }
  }
}
