/**
 * Whose WebSockets connect: those of ws, an optional package, else Node's own (version 22 on). Only
 * ws reports the HTTP status of a server that refuses.
 */
import { LinkError } from '../../errors/errors.js';
import type { Socket } from './websocket-channel.js';

/** Throws TypeError. In a page, a URL is relative to that of the page, and http: becomes ws:. */
export function absoluteUrl(url: string | URL): URL {
  return new URL(url);
}

/** A refused upgrade, in the sentence of ws. 408, 429 and 5xx pass. */
export function isRefusal(sentence: string): boolean {
  return /response: 4(?!08|29)/.test(sentence);
}

export async function openSocket(url: string | URL): Promise<Socket> {
  const WebSocket = await findClass();
  return new WebSocket(url);
}

async function findClass(): Promise<new (url: string | URL) => Socket> {
  try {
    return (await load()).WebSocket as unknown as new (url: string | URL) => Socket;
  } catch (error) {
    const { WebSocket } = globalThis as { WebSocket?: new (url: string | URL) => Socket };
    if (!WebSocket) throw error;
    return WebSocket;
  }
}

/** Rejects with LinkError EOPNOTSUPP. */
export async function load(): Promise<typeof import('ws')> {
  try {
    return await import('ws');
  } catch (error) {
    const sentence = 'connect: WebSockets in Node need the package ws; npm install ws';
    throw new LinkError('EOPNOTSUPP', sentence, { cause: error });
  }
}
