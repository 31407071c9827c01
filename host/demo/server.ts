/** Serves the page, and is its peer: by data channels, and by WebSockets without WebRTC. */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { LinkError, RefusalError } from '../errors/errors.js';
import { DataChannelLink } from '../link/data-channel.js';
import { answerRequest } from '../link/signalling/http-server.js';
import type { Answerer } from '../link/signalling/signalling.js';
import { acceptUpgrades } from '../link/websocket-server.js';
import { listenRefusal } from '../link/tcp-refusal.js';
import { load } from '../link/websocket-class.js';
import { WebSocketLink } from '../link/websocket.js';
import { BareChannels, type ChannelKind } from './bare-channels.js';
import { RelayDesk } from './relay-desk.js';
import { Station } from './station.js';

const FOLDER = new URL('../../demo/', import.meta.url);
/** What is served, and nothing else. */
const TYPES: Readonly<Record<string, string>> = {
  'index.html': 'text/html; charset=utf-8',
  'style.css': 'text/css; charset=utf-8',
  'page.js': 'text/javascript; charset=utf-8',
  'worker.js': 'text/javascript; charset=utf-8',
  'opfs-thread.js': 'text/javascript; charset=utf-8',
  'page.js.map': 'application/json',
  'worker.js.map': 'application/json',
  'opfs-thread.js.map': 'application/json',
  'engine.wasm': 'application/wasm',
  'explain.wasm': 'application/wasm',
};
/** So that a page may share memory with its Workers; and nothing but this server's own is in it. */
const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'X-Content-Type-Options': 'nosniff',
  'Cache-Control': 'no-cache',
  Vary: 'Accept-Encoding',
};
const ECHO_BYTES_MAX = 4096;

export interface DemoServerOptions {
  /** A local address. */
  readonly bind: string;
  /** 0: a free one. */
  readonly port: number;
}

export class DemoServer {
  readonly url: string;
  /** Bytes of a whole visit, compressed. */
  readonly gzipBytes: number;
  /** Wires that lose datagrams, for who asks for them. */
  readonly relays: RelayDesk;
  /** The peer over data channels; undefined without node-datachannel. */
  readonly station: Station | undefined;
  /** The peer over WebSockets; undefined without ws. */
  readonly socketStation: Station | undefined;
  /** What is missing here, a sentence each. */
  readonly missing: readonly string[];
  readonly #server: Server;

  private constructor(
    server: Server,
    url: string,
    gzipBytes: number,
    relays: RelayDesk,
    stations: Pick<DemoServer, 'station' | 'socketStation' | 'missing'>,
  ) {
    this.#server = server;
    this.url = url;
    this.gzipBytes = gzipBytes;
    this.relays = relays;
    this.station = stations.station;
    this.socketStation = stations.socketStation;
    this.missing = stations.missing;
  }

  /** Rejects with RefusalError ENOENT (not built), EADDRINUSE, EADDRNOTAVAIL, EACCES. */
  static async open({ bind, port }: DemoServerOptions): Promise<DemoServer> {
    const files = readFiles();
    const stations = await openStations();
    const answerers = answerersOf(stations.station);
    const relays = new RelayDesk();
    const server = createServer((request, response) => {
      if (pathOf(request) === 'relay') void relays.answer(request, response);
      else answer(request, response, files, answerers);
    });
    try {
      if (stations.socketStation) await acceptSockets(server, stations.socketStation);
      await listening(server, port, bind);
    } catch (error) {
      relays.close();
      await stations.station?.close();
      await stations.socketStation?.close();
      throw error;
    }
    const { address, port: granted, family } = server.address() as AddressInfo;
    const host = family === 'IPv6' ? `[${address}]` : address;
    const sizes = [...files].map(([name, { gzip }]) => (name.endsWith('.map') ? 0 : gzip.length));
    const total = sizes.reduce((sum, bytes) => sum + bytes, 0);
    return new DemoServer(server, `http://${host}:${granted}/`, total, relays, stations);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    this.relays.close();
    await this.station?.close();
    await this.socketStation?.close();
  }
}

interface File {
  readonly type: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
}

function readFiles(): ReadonlyMap<string, File> {
  const files = Object.entries(TYPES).map(([name, type]): [string, File] => {
    try {
      const plain = readFileSync(new URL(name, FOLDER));
      return [name, { type, plain, gzip: gzipSync(plain, { level: 9 }) }];
    } catch (error) {
      const path = fileURLToPath(new URL(name, FOLDER));
      throw new RefusalError('ENOENT', `${path} is not there: npm run build`, { cause: error });
    }
  });
  return new Map(files);
}

async function openStations() {
  const missing: string[] = [];
  const open = async (link: DataChannelLink | WebSocketLink): Promise<Station | undefined> => {
    try {
      return await Station.open('node', link);
    } catch (error) {
      if (!(error instanceof LinkError)) throw error;
      missing.push(error.message);
      return undefined;
    }
  };
  const station = await open(new DataChannelLink());
  const socketStation = await open(new WebSocketLink());
  return { station, socketStation, missing };
}

/** Who answers the offers that are POSTed, by path; nobody without WebRTC. */
function answerersOf(station: Station | undefined): Answerers | undefined {
  if (!station) return undefined;
  return {
    signal: station.link as DataChannelLink,
    bare: new BareChannels('bare'),
    reliable: new BareChannels('reliable'),
  };
}

type Answerers = Readonly<Record<'signal' | ChannelKind, { answer: Answerer }>>;

/** Packets at /packets; at /echo messages come back, for comparison. Without ws neither. */
async function acceptSockets(server: Server, { link }: Station): Promise<void> {
  try {
    await acceptUpgrades(link as WebSocketLink, server, '/packets');
  } catch (error) {
    if (error instanceof LinkError) return;
    throw error;
  }
  const { WebSocketServer } = await load();
  const echo = new WebSocketServer({ noServer: true, maxPayload: ECHO_BYTES_MAX });
  server.on('upgrade', (request, socket, head) => {
    const path = pathOf(request);
    if (path === 'echo') {
      echo.handleUpgrade(request, socket, head, (client) => {
        client.on('message', (data: Buffer) => client.send(data));
        client.on('error', () => client.terminate());
      });
    } else if (path !== 'packets') socket.destroy();
  });
}

function listening(server: Server, port: number, bind: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error) => {
      reject(listenRefusal(error, { address: bind, port }) as Error);
    });
    server.listen(port, bind, resolve);
  });
}

function pathOf({ url }: IncomingMessage): string {
  const { pathname } = new URL(url ?? '/', 'http://server');
  return pathname === '/' ? 'index.html' : pathname.slice(1);
}

function answer(
  request: IncomingMessage,
  response: ServerResponse,
  files: ReadonlyMap<string, File>,
  answerers: Answerers | undefined,
): void {
  const path = pathOf(request);
  if (path === 'signal' || path === 'bare' || path === 'reliable') {
    if (answerers) void answerRequest(answerers[path], request, response);
    else response.writeHead(503).end('this server has no WebRTC: npm install node-datachannel');
    return;
  }
  const file = files.get(path);
  if (!file || (request.method !== 'GET' && request.method !== 'HEAD')) {
    response.writeHead(file ? 405 : 404).end();
    return;
  }
  const isGzip = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '');
  const body = isGzip ? file.gzip : file.plain;
  response.writeHead(200, {
    ...HEADERS,
    'Content-Type': file.type,
    'Content-Length': body.length,
    ...(isGzip ? { 'Content-Encoding': 'gzip' } : {}),
  });
  response.end(request.method === 'HEAD' ? undefined : body);
}
