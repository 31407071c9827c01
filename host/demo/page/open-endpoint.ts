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
  const url = new URL('signal', self.location.href);
  if (!isStatic)
    link.connect(url.href, { timeoutMillis: SIGNAL_MILLIS }).catch((error: Error) => {
      note(
        `The server is no peer: ${error.message}. Open this page in a second tab of this browser: ` +
          'tabs find each other without it.',
        true,
      );
    });
  const yardsticks = new ChannelYardsticks(room, endpoint.address, link, connector);
  return { endpoint, linkName: 'WebRTC data channel', yardsticks, room };
}

async function overWebSocket(note: Note): Promise<Opened> {
  const link = new WebSocketLink();
  const endpoint = await DemoEndpoint.open('tab', link);
  link.connect(socketUrl('packets')).catch((error: Error) => {
    note(`No peer: ${error.message}. It takes WebRTC, or "npx verbena demo" as the server.`, true);
  });
  return { endpoint, linkName: 'WebSocket', yardsticks: new SocketYardsticks(), room: undefined };
}
