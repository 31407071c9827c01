/**
 * Which connection a description speaks of: the origin line names the session and counts what was
 * said in it (RFC 8866 5.2, RFC 8829 5.2.2), and an ICE restart has new credentials (RFC 8839
 * 4.4.1).
 */
import type { Description } from './connection.js';

interface Session {
  /** Random; only the peer knows it. */
  readonly id: bigint;
  /** Greater in every description that has changed. */
  readonly version: bigint;
  readonly credentials: string;
}

/** Undefined: it names none. */
function sessionOf({ sdp }: Description): Session | undefined {
  const origin = /^o=\S+ (\d{1,20}) (\d{1,20}) /m.exec(sdp);
  const user = /^a=ice-ufrag:(\S{1,256})/m.exec(sdp);
  const password = /^a=ice-pwd:(\S{1,256})/m.exec(sdp);
  if (!origin || !user || !password) return undefined;
  const credentials = `${user[1]} ${password[1]}`;
  return { id: BigInt(origin[1]!), version: BigInt(origin[2]!), credentials };
}

/**
 * Class of an offer `said` on a connection whose last description from the peer was `before`.
 * `other`: another session. `restart`: an ICE restart. `old`: a late or duplicate description.
 */
export function judgeOffer(before: Description, said: Description): 'other' | 'restart' | 'old' {
  const [was, is] = [sessionOf(before), sessionOf(said)];
  if (!was || !is || was.id !== is.id) return 'other';
  return is.version > was.version && is.credentials !== was.credentials ? 'restart' : 'old';
}
