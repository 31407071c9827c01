/**
 * Messages between a member of a room and its signalling server, as JSON in text messages of a
 * WebSocket. Both sides treat what they receive as hostile.
 *
 *     member > server   join, offer, answer, refusal (with `to`), ping, leave
 *     server > member   welcome, joined, present, away, left, offer, answer, refusal (with `from`),
 *                       absent, pong, refused
 */

/** Characters of the names of rooms and members. */
export const NAME_LENGTH_MAX = 128;
/** Characters of the key that proves that a session is the same one. */
const KEY_LENGTH_MAX = 64;
/** Characters of the identifier of an exchange, and of a reason. */
const ID_LENGTH_MAX = 64;
const REASON_LENGTH_MAX = 256;
/** Characters of one message: eight descriptions of a few kilobytes each. */
export const MESSAGE_LENGTH_MAX = 65536;
/** Levels of a description: an array of objects has two. */
const DESCRIPTION_LEVELS_MAX = 16;
/** Members that a welcome may name. */
const MEMBERS_MAX = 65536;

/** One part of an exchange: `to` of a member's message, `from` of a server's message. */
export interface ExchangeMessage {
  readonly kind: 'offer' | 'answer' | 'refusal';
  readonly to?: string;
  readonly from?: string;
  readonly id: string;
  readonly description?: unknown;
  readonly reason?: string;
}

/** The first message of a member. The same name needs the same key. */
export interface JoinMessage {
  readonly kind: 'join';
  readonly room: string;
  readonly name: string;
  readonly key: string;
}

export type MemberMessage = JoinMessage | ExchangeMessage | { readonly kind: 'ping' | 'leave' };

export type ServerMessage =
  | ExchangeMessage
  | { readonly kind: 'welcome'; readonly members: readonly string[] }
  | { readonly kind: 'joined' | 'present' | 'away' | 'left'; readonly name: string }
  | { readonly kind: 'absent'; readonly to: string; readonly id: string }
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'pong' };

function isText(value: unknown, most: number): value is string {
  return typeof value === 'string' && value.length > 0 && value.length <= most;
}

/** Without lone surrogates: a bus that passes names as UTF-8 replaces it. */
export function isRoomName(value: unknown): value is string {
  return isText(value, NAME_LENGTH_MAX) && !/\p{Cs}/u.test(value);
}

/** A message as an object; undefined: not of this protocol. */
function parse(text: unknown): Record<string, unknown> | undefined {
  if (typeof text !== 'string' || text.length > MESSAGE_LENGTH_MAX) return undefined;
  try {
    const value = JSON.parse(text) as unknown;
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** String() throws for an object without toString, and for an array of some thousands of levels. */
function reasonOf(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, REASON_LENGTH_MAX) : '';
}

function exchangeOf(
  { kind, id, description, reason, ...rest }: Record<string, unknown>,
  side: 'to' | 'from',
): ExchangeMessage | undefined {
  const name = rest[side];
  if (!isText(id, ID_LENGTH_MAX) || !isText(name, NAME_LENGTH_MAX)) return undefined;
  const base = { id, [side]: name };
  if (kind === 'refusal') {
    return { kind, ...base, reason: reasonOf(reason) };
  }
  if (kind !== 'offer' && kind !== 'answer') return undefined;
  if (typeof description !== 'object' || description === null) return undefined;
  return { kind, ...base, description };
}

/** Limits the levels of a value that JSON.stringify, which recurses, takes next. */
function isShallow(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return levels > 0 && Object.values(value).every((each) => isShallow(each, levels - 1));
}

/** Undefined: no message of a member. */
export function parseMemberMessage(text: unknown): MemberMessage | undefined {
  const message = parse(text);
  if (!message) return undefined;
  const { kind, room, name, key } = message;
  if (kind === 'ping' || kind === 'leave') return { kind };
  if (kind !== 'join') {
    const exchange = exchangeOf(message, 'to');
    return isShallow(exchange?.description, DESCRIPTION_LEVELS_MAX) ? exchange : undefined;
  }
  const isWhole = isRoomName(room) && isRoomName(name);
  return isWhole && isText(key, KEY_LENGTH_MAX) ? { kind, room, name, key } : undefined;
}

/** Undefined: no message of a server. */
export function parseServerMessage(text: unknown): ServerMessage | undefined {
  const message = parse(text);
  if (!message) return undefined;
  const { kind, name, members, to, id, reason } = message;
  switch (kind) {
    case 'pong':
      return { kind };
    case 'joined':
    case 'present':
    case 'away':
    case 'left':
      return isText(name, NAME_LENGTH_MAX) ? { kind, name } : undefined;
    case 'welcome': {
      if (!Array.isArray(members) || members.length > MEMBERS_MAX) return undefined;
      const names = members.filter((one): one is string => isText(one, NAME_LENGTH_MAX));
      return { kind, members: names };
    }
    case 'absent': {
      const isWhole = isText(to, NAME_LENGTH_MAX) && isText(id, ID_LENGTH_MAX);
      return isWhole ? { kind, to, id } : undefined;
    }
    case 'refused':
      return { kind, reason: reasonOf(reason) };
    default:
      return exchangeOf(message, 'from');
  }
}
