/** Serves the page, and is its peer: by data channels, and by WebSockets without WebRTC. */
import { readFileSync, readdirSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { LinkError, RefusalError } from '../errors/errors.js';
import { DataChannelLink } from '../link/channel/data-channel.js';
import { pathOf, refusalOfRequest, refuse, refuseUpgrade } from '../link/channel/http-site.js';
import { defaultConnector } from '../link/rtc/default.js';
import { answerRequest, type AnsweringLink } from '../link/signalling/http-server.js';
import { SourceShares } from '../link/source-shares.js';
import { acceptUpgrades } from '../link/channel/websocket-server.js';
import { listenRefusal } from '../link/tcp-refusal.js';
import { WebSocketLink } from '../link/channel/websocket.js';
import { BareChannels, type ChannelKind } from './bare-channels.js';
import { HEADERS, contentSecurityPolicy } from './page-headers.js';
import { RelayServer } from './relay-server.js';
import { SocketEcho } from './socket-echo.js';
import { DemoEndpoint } from './endpoint.js';
import { WideConnector } from './wide-connector.js';

const FOLDER = new URL('../../demo/', import.meta.url);
/** Files of that folder are served, read once, and nothing else. */
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.map': 'application/json',
  '.wasm': 'application/wasm',
};
/** A visit fetches these only to look inside: experiments, explanations, guides, source maps. */
const NOT_OF_VISIT = /^(inside-|explain\.|guide)|\.map$/;
/** Connections at once, in all and of one source: a browser has six, and one for each WebSocket. */
const CONNECTIONS_MAX = 512;
const CONNECTIONS_PER_SOURCE = 128;
/** WebSockets with packets, the same. */
const SOCKETS_MAX = 64;
const SOCKETS_PER_SOURCE = 24;
/** A request, its head alone, and a connection without any, take no longer. */
const REQUEST_MILLIS = 20_000;
const HEAD_MILLIS = 8000;
const LOOK_MILLIS = 2000;
const IDLE_MILLIS = 30_000;

export interface DemoServerOptions {
  /** A local address. */
  readonly bind: string;
  /** 0: a free one. */
  readonly port: number;
  /** Host names, besides IP addresses and localhost, under which browsers reach it. */
  readonly hosts?: readonly string[];
}

export class DemoServer {
  /** The peer over data channels; undefined without node-datachannel. */
  readonly endpoint: DemoEndpoint | undefined;
  /** The peer over WebSockets; undefined without ws. */
  readonly socketEndpoint: DemoEndpoint | undefined;
  /** Missing optional parts on this machine, a sentence each. */
  readonly missing: readonly string[];
  readonly #server: Server;
  readonly #sockets: ReadonlySet<Socket>;

  private constructor(
    server: Server,
    sockets: ReadonlySet<Socket>,
    readonly url: string,

    /** Bytes of a visit of the three acts, compressed. */
    readonly gzipBytes: number,

    /** Relays that lose datagrams. */
    readonly relays: RelayServer,
    endpoints: Pick<DemoServer, 'endpoint' | 'socketEndpoint' | 'missing'>,
  ) {
    this.#server = server;
    this.#sockets = sockets;
    this.endpoint = endpoints.endpoint;
    this.socketEndpoint = endpoints.socketEndpoint;
    this.missing = endpoints.missing;
  }

  /** Rejects with RefusalError ENOENT (not built), EADDRINUSE, EADDRNOTAVAIL, EACCES. */
  static async open({ bind, port, hosts = [] }: DemoServerOptions): Promise<DemoServer> {
    const files = readFiles();
    const endpoints = await openEndpoints();
    const answerers = answerersOf(endpoints.endpoint);
    const relays = new RelayServer();
    const limits = {
      requestTimeout: REQUEST_MILLIS,
      headersTimeout: HEAD_MILLIS,
      connectionsCheckingInterval: LOOK_MILLIS,
    };
    const server = createServer(limits, (request, response) => {
      const refusal = refusalOfRequest(request, { hosts });
      if (refusal) refuse(response, refusal);
      else if (pathOf(request) === '/relay') void relays.answer(request, response);
      else answer(request, response, files, { answerers, relays, hosts });
    });
    const sockets = limitConnections(server);
    try {
      if (endpoints.socketEndpoint) await acceptSockets(server, endpoints.socketEndpoint, hosts);
      await listening(server, port, bind);
    } catch (error) {
      relays.close();
      await endpoints.endpoint?.close();
      await endpoints.socketEndpoint?.close();
      throw error;
    }
    const { address, port: granted, family } = server.address() as AddressInfo;
    const host = family === 'IPv6' ? `[${address}]` : address;
    const ofVisit = [...files].filter(([name]) => !NOT_OF_VISIT.test(name));
    const total = ofVisit.reduce((sum, [, { gzip }]) => sum + gzip.length, 0);
    return new DemoServer(server, sockets, `http://${host}:${granted}/`, total, relays, endpoints);
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    // Each of them, also if the other one refuses.
    const ends = [this.endpoint?.close(), this.socketEndpoint?.close()];
    await Promise.allSettled(ends);
    // WebSockets too, which closeAllConnections leaves open, as long as their tabs are there.
    for (const socket of this.#sockets) socket.destroy();
    this.relays.close();
    await closed;
    await Promise.all(ends);
  }
}

interface File {
  readonly type: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
}

function readFiles(): ReadonlyMap<string, File> {
  const files = new Map<string, File>();
  try {
    for (const name of readdirSync(FOLDER, { recursive: true, encoding: 'utf8' })) {
      const type = TYPES[extname(name)];
      if (type === undefined) continue;
      const plain = readFileSync(new URL(name, FOLDER));
      files.set(name, { type, plain, gzip: gzipSync(plain, { level: 9, memLevel: 9 }) });
    }
    if (!files.has('index.html')) throw new Error('index.html is missing');
  } catch (error) {
    const path = fileURLToPath(FOLDER);
    throw new RefusalError('ENOENT', `${path} is incomplete: npm run build`, { cause: error });
  }
  return files;
}

async function openEndpoints() {
  const missing: string[] = [];
  const open = async (link: DataChannelLink | WebSocketLink): Promise<DemoEndpoint | undefined> => {
    try {
      return await DemoEndpoint.open('node', link);
    } catch (error) {
      if (!(error instanceof LinkError)) throw error;
      missing.push(error.message);
      return undefined;
    }
  };
  const endpoint = await open(
    new DataChannelLink({ connector: new WideConnector(defaultConnector({})) }),
  );
  const socketEndpoint = await open(new WebSocketLink());
  return { endpoint, socketEndpoint, missing };
}

/** Answerers of offers that are POSTed, by path; undefined without WebRTC. */
function answerersOf(endpoint: DemoEndpoint | undefined): Answerers | undefined {
  if (!endpoint) return undefined;
  return {
    signal: endpoint.link as DataChannelLink,
    bare: new BareChannels('bare'),
    reliable: new BareChannels('reliable'),
  };
}

type Answerers = Readonly<Record<'signal' | ChannelKind, AnsweringLink>>;

/** A source leaves connections to others, and none lasts without a request. Those that are open. */
function limitConnections(server: Server): ReadonlySet<Socket> {
  const sockets = new Set<Socket>();
  const shares = new SourceShares(CONNECTIONS_MAX, CONNECTIONS_PER_SOURCE);
  server.on('connection', (socket) => {
    const giveBack = shares.take(socket.remoteAddress);
    if (!giveBack) return void socket.destroy();
    sockets.add(socket);
    socket.once('close', () => {
      sockets.delete(socket);
      giveBack();
    });
  });
  server.setTimeout(IDLE_MILLIS);
  return sockets;
}

/** Packets at /packets; at /echo messages come back, for comparison. Without ws neither. */
async function acceptSockets(
  server: Server,
  { link }: DemoEndpoint,
  hosts: readonly string[],
): Promise<void> {
  let echo: SocketEcho;
  try {
    const options = { hosts, socketsMax: SOCKETS_MAX, socketsPerSource: SOCKETS_PER_SOURCE };
    await acceptUpgrades(link as WebSocketLink, server, '/packets', options);
    echo = await SocketEcho.open();
  } catch (error) {
    if (error instanceof LinkError) return;
    throw error;
  }
  server.on('upgrade', (request, socket, head) => {
    const path = pathOf(request);
    if (path === '/packets') return;
    const refusal = refusalOfRequest(request, { hosts });
    if (refusal) refuseUpgrade(socket, refusal.status, refusal.sentence);
    else if (path === '/echo') echo.take(request, socket, head);
    else refuseUpgrade(socket, 404, 'there is no WebSocket at this path');
  });
}

function listening(server: Server, port: number, bind: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error) => {
      reject(listenRefusal(error, { address: bind, port }) as Error);
    });
    server.listen({ port, host: bind, exclusive: true }, resolve);
  });
}

interface Answering {
  readonly answerers: Answerers | undefined;
  readonly relays: RelayServer;
  readonly hosts: readonly string[];
}

function answer(
  request: IncomingMessage,
  response: ServerResponse,
  files: ReadonlyMap<string, File>,
  { answerers, relays, hosts }: Answering,
): void {
  const path = pathOf(request)?.slice(1);
  if (path === 'signal' || path === 'bare' || path === 'reliable') {
    const candidates = (address: string, at: number): boolean => relays.has(address, at);
    if (answerers) void answerRequest(answerers[path], request, response, { hosts, candidates });
    else response.writeHead(503).end('this server has no WebRTC: npm install node-datachannel');
    return;
  }
  const file = files.get(path === '' ? 'index.html' : (path ?? ''));
  if (!file || (request.method !== 'GET' && request.method !== 'HEAD')) {
    response.writeHead(file ? 405 : 404).end();
    return;
  }
  const isGzip = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '');
  const body = isGzip ? file.gzip : file.plain;
  response.writeHead(200, {
    ...HEADERS,
    'Content-Security-Policy': contentSecurityPolicy(request.headers.host),
    'Content-Type': file.type,
    'Content-Length': body.length,
    ...(isGzip ? { 'Content-Encoding': 'gzip' } : {}),
  });
  response.end(request.method === 'HEAD' ? undefined : body);
}
