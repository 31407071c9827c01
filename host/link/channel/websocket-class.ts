/** Whose WebSockets connect: Node's own from version 22 on, else those of ws, an optional package. */
import { LinkError } from '../../errors/errors.js';
import type { Socket } from './websocket-channel.js';

export async function openSocket(url: string | URL): Promise<Socket> {
  const scope = globalThis as { WebSocket?: unknown };
  const WebSocket = (scope.WebSocket ?? (await load()).WebSocket) as new (
    url: string | URL,
  ) => Socket;
  return new WebSocket(url);
}

/** Rejects with LinkError EOPNOTSUPP. */
export async function load(): Promise<typeof import('ws')> {
  try {
    return await import('ws');
  } catch (error) {
    const sentence = 'WebSockets in Node need the optional package ws: npm install ws';
    throw new LinkError('EOPNOTSUPP', sentence, { cause: error });
  }
}
