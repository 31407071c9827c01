/** Node's side of signalling/http.ts: answers the request of a page. */
import { mustBe } from '../../errors/check-whole.js';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { checkKeys, checkObject } from '../../base/options.js';
import { checkMillis, timerMillis } from '../../base/timer.js';
import { LinkError } from '../../errors/errors.js';
import type { Gid } from '../endpoint.js';
import { checkSite, refusalOfRequest, type SiteOptions } from '../channel/http-site.js';
import { checkDescription, gidOfDescription } from '../rtc/fingerprint.js';
import { withOwnCandidates, type CandidateRule } from './candidates.js';
import { BODY_LENGTH_MAX } from './http.js';
import { SessionCount } from './session-count.js';
import type { Answerer } from './signalling.js';

/** Which requests are answered, and how many. */
export interface AnswerOptions extends SiteOptions {
  /** Time limit of a request body in milliseconds; after it the request fails. Default 10 s. */
  readonly bodyMillis?: number;
  /**
   * Connections at once of one source, an IPv4 address or an IPv6 network of 64 bits, those
   * included that are being made. Default 32.
   */
  readonly peersPerSource?: number;
  /**
   * Additional candidates that the server sends STUN datagrams to. Default: only candidates with
   * the address that the offer came from; a peer's own packets reveal its other addresses.
   */
  readonly candidates?: CandidateRule;
}

const BODY_MILLIS = 10_000;
const PEERS_PER_SOURCE = 32;
/** A body is read up to this size, so that its sender receives the refusal; then it is cut off. */
const BODY_BYTES_READ = 8 * 2 ** 20;

/** A link that answers offers, with its peers. */
export interface AnsweringLink {
  readonly answer: Answerer;
  /** Peers that are connected. Without, an answered offer counts for the time of one attempt. */
  readonly peers?: readonly { readonly gid: Gid }[];
}

/** Limits per answerer of HTTP requests. */
const counts = new WeakMap<Answerer, SessionCount>();

/**
 * Answers one request of node:http (POST, JSON) for `link`, whatever it holds: 200 with our
 * description, 4xx with a sentence, 503 when there are enough peers. A page of another site gets
 * 403, a host name that is not in `options.hosts` 421, a source that has its share of connections
 * 429. Candidates of an offer that are not of the address it came from are left out. Resolves when
 * it is answered. Throws MisuseError; never rejects otherwise.
 */
export async function answerRequest(
  link: AnsweringLink,
  request: IncomingMessage,
  response: ServerResponse,
  options: AnswerOptions = {},
): Promise<void> {
  checkObject('answerRequest', request, 'request');
  checkKeys('answerRequest', options, 'hosts origins bodyMillis peersPerSource candidates');
  const { bodyMillis = BODY_MILLIS, peersPerSource = PEERS_PER_SOURCE } = options;
  checkMillis('bodyMillis', bodyMillis, 1);
  if (!Number.isInteger(peersPerSource) || peersPerSource < 1) {
    throw mustBe('peersPerSource', 'a whole number above 0', peersPerSource);
  }
  const say = (status: number, type: string, body: string): void => {
    response.writeHead(status, {
      'content-type': type,
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    });
    response.end(body);
  };
  const refusal = refusalOfRequest(request, checkSite('answerRequest', options));
  if (refusal) return say(refusal.status, 'text/plain', refusal.sentence);
  if (request.method !== 'POST') return say(405, 'text/plain', 'POST an offer as JSON');
  const { remoteAddress } = request.socket;
  let count = counts.get(link.answer);
  if (!count) counts.set(link.answer, (count = new SessionCount()));
  try {
    const offer = checkDescription(JSON.parse(await readBody(request, bodyMillis)), 'offer');
    const gid = `${gidOfDescription(offer)}`;
    const present = (other: string): boolean =>
      link.peers?.some((peer) => `${peer.gid}` === other) ?? false;
    if (!count.enter(remoteAddress, gid, peersPerSource, present)) {
      return say(429, 'text/plain', `${peersPerSource} connections of this address are there`);
    }
    const own = withOwnCandidates(offer, remoteAddress, options.candidates);
    say(200, 'application/json', JSON.stringify(await link.answer(own)));
  } catch (error) {
    const isOurs = error instanceof LinkError;
    const status = isOurs && error.code === 'ENOSPC' ? 503 : 400;
    say(status, 'text/plain', isOurs ? error.message : 'the body is no JSON');
  }
}

async function readBody(request: IncomingMessage, bodyMillis: number): Promise<string> {
  const timer = setTimeout(() => request.destroy(), timerMillis(bodyMillis));
  try {
    let text = '';
    let read = 0;
    // To its end: else the connection is cut, and its sender's next request.
    for await (const chunk of request.setEncoding('utf8')) {
      read += (chunk as string).length;
      if (read > BODY_BYTES_READ) request.destroy();
      if (text.length <= BODY_LENGTH_MAX) text += chunk as string;
    }
    if (text.length > BODY_LENGTH_MAX)
      throw new LinkError(
        'EMSGSIZE',
        'answer: the offer exceeds the size limit; pass it unchanged',
      );
    return text;
  } finally {
    clearTimeout(timer);
  }
}
