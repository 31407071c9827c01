/** Node's side of signalling/http.ts: answers the request of a page. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { LinkError } from '../../errors/errors.js';
import { BODY_LENGTH_MAX } from './http.js';
import type { Answerer } from './signalling.js';

/** A body that takes longer is nobody's. */
const BODY_MILLIS_MAX = 10_000;

/**
 * Answers one request of node:http (POST, JSON) for `link`, whatever it holds: 200 with our
 * description, 4xx with a sentence, 503 when there are enough peers. Resolves when it is answered;
 * never rejects. A body that takes longer than `bodyMillis` is not waited for.
 */
export async function answerRequest(
  link: { answer: Answerer },
  request: IncomingMessage,
  response: ServerResponse,
  bodyMillis = BODY_MILLIS_MAX,
): Promise<void> {
  const say = (status: number, type: string, body: string): void => {
    response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' });
    response.end(body);
  };
  if (request.method !== 'POST') {
    say(405, 'text/plain', 'POST an offer as JSON');
    return;
  }
  try {
    const offer = JSON.parse(await readBody(request, bodyMillis)) as unknown;
    say(200, 'application/json', JSON.stringify(await link.answer(offer)));
  } catch (error) {
    const isOurs = error instanceof LinkError;
    const status = isOurs && error.code === 'ENOSPC' ? 503 : 400;
    say(status, 'text/plain', isOurs ? error.message : 'the body is no JSON');
  }
}

async function readBody(request: IncomingMessage, bodyMillis: number): Promise<string> {
  const timer = setTimeout(() => request.destroy(), bodyMillis);
  try {
    let text = '';
    // To its end, however long it is: else the connection is cut, and its sender's next request.
    for await (const chunk of request.setEncoding('utf8')) {
      if (text.length <= BODY_LENGTH_MAX) text += chunk as string;
    }
    if (text.length > BODY_LENGTH_MAX) throw new LinkError('EMSGSIZE', 'the offer is too long');
    return text;
  } finally {
    clearTimeout(timer);
  }
}
