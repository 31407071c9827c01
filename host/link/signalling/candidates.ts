/**
 * Where an answered offer makes this process send: WebRTC looks for a way to each candidate address
 * of a description, with several datagrams to each, before that address has sent one. So an offer
 * that came by HTTP names no address but the one that it came from. A peer with other addresses is
 * found by what it sends to ours (peer-reflexive candidates, RFC 8445 7.3.1.3).
 */
import { sourceOf } from '../source-shares.js';
import type { Description } from '../rtc/connection.js';

/** Candidates of one description. A browser has one for each kind of socket and interface. */
export const CANDIDATES_MAX = 8;

/** May this process send datagrams to that candidate of an offer? */
export type CandidateRule = (address: string, port: number) => boolean;

/** `offer` without candidates but those of `source`, and those that `also` allows. */
export function withOwnCandidates(
  { type, sdp, more = [] }: Description,
  source: string | undefined,
  also: CandidateRule = () => false,
): Description {
  const own = sourceOf(source);
  const narrow = (text: string): string =>
    narrowed(text, (address, port) => sourceOf(address) === own || also(address, port));
  const others = more.map(narrow);
  return others.length > 0 ? { type, sdp: narrow(sdp), more: others } : { type, sdp: narrow(sdp) };
}

/** One description, in lines that each library reads in the same way. */
function narrowed(sdp: string, isAllowed: CandidateRule): string {
  let candidates = 0;
  const lines = sdp.split(/\r\n|\r|\n/).filter((line) => {
    if (!/^\s*a\s*=\s*candidate/i.test(line)) return true;
    // candidate:foundation component transport priority ADDRESS port typ … (RFC 8839 5.1)
    const [, , , , address = '', port] = line.trim().split(/\s+/);
    return isAllowed(address, Number(port)) && candidates++ < CANDIDATES_MAX;
  });
  return lines.join('\r\n');
}
