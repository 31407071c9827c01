/** Requests of forged sources: shares, cookies, places. */
import type { Row } from './mutants.js';

const ADMISSION = 'host/cm/admission.ts';
const COOKIES = 'host/cm/cookies.ts';
const ANSWER = 'host/cm/cookie-answer.ts';

const ROWS: readonly Row[] = [
  ['the backlog has no end', ADMISSION, 'waiting >= placesOf(listener, isProven)', 'false'],
  [
    'one address takes a whole backlog',
    ADMISSION,
    'waitingOf.of(source) >= Math.ceil(backlog / 2)',
    'false',
  ],
  [
    'no place is kept for proven addresses',
    ADMISSION,
    'return isProven ? backlog + Math.ceil(backlog / 4) : backlog;',
    'return isProven ? backlog : backlog;',
  ],
  [
    'a crowded listener sends no cookies',
    ADMISSION,
    "if (isOwnKind && !isProven && isCrowded) return 'challenge';",
    '',
  ],
  ['a crowded backlog sends no cookies', ADMISSION, '2 * waiting >= backlog || ', ''],
  [
    'a device with many unproven connections sends no cookies',
    ADMISSION,
    ' || 2 * halfOpen.unproven >= most;',
    ';',
  ],
  [
    'a proven address gets cookies for ever',
    ADMISSION,
    'if (isOwnKind && !isProven && isCrowded)',
    'if (isOwnKind && isCrowded)',
  ],
  [
    'unproven connections take all queue pairs',
    ADMISSION,
    'halfOpen.unproven < most || displace',
    'true || displace',
  ],
  [
    'the size of a device does not count',
    ADMISSION,
    'limits.unprovenMax, Math.floor(free / 2)',
    'limits.unprovenMax',
  ],
  [
    'established connections leave as many queue pairs as none',
    ADMISSION,
    'limits.queuePairsMax - (core.liveConnections - halfOpen.unproven);',
    'limits.queuePairsMax + 0 * halfOpen.unproven;',
  ],
  [
    'an unproven connection keeps its place for 10 s',
    ADMISSION,
    'if (!oldest) return false;',
    'if (oldest !== null) return false;',
  ],
  [
    'a connection without an RTU ends at once for the next REQ',
    ADMISSION,
    'if (now - acceptedMicros < UNREADY_MICROS) return false;',
    '',
  ],
  [
    'all half-open connections may be of one address',
    ADMISSION,
    'halfOpen.sources.of(source) >= limits.halfOpenPerSourceMax ||',
    '',
  ],
  ['half-open connections have no limit', ADMISSION, 'halfOpen.size >= limits.halfOpenMax ||', ''],
  [
    'any bytes are a cookie',
    COOKIES,
    'secret !== undefined && isEqual(cookieOf(secret, message, peer), cookie)',
    'secret !== undefined && cookieOf(secret, message, peer).length === cookie.length',
  ],
  [
    'a cookie is of any address',
    COOKIES,
    'hmac(secret, context, peer.gid.bytes)',
    'hmac(secret, context)',
  ],
  ['a cookie is of any port', COOKIES, '  view.setUint32(24, peer.port);\n', ''],
  ['a cookie is of any request', COOKIES, '  view.setUint32(16, message.localCommId);\n', ''],
  ['a cookie is of any queue pair', COOKIES, '  view.setUint32(20, message.localQpn);\n', ''],
  [
    'a cookie is valid for ever',
    COOKIES,
    'if (known?.slot === slot) return known;',
    'if (known) return known;',
  ],
  [
    'a secret of long ago is valid in the next slot',
    COOKIES,
    'known?.slot === slot - 1 ? known.current : undefined',
    'known?.current',
  ],
  [
    'a cookie ends with its slot',
    COOKIES,
    'return [current, last].some(',
    'return [current].some(',
  ],
  [
    'a REQ with its cookie is another one',
    COOKIES,
    'if (datagram.length !== MAD_BYTES + COOKIE_BYTES) return { datagram, cookie: undefined };',
    'if (datagram.length !== MAD_BYTES + COOKIE_BYTES || 1) return { datagram, cookie: undefined };',
  ],
  ['a COOKIE of any address is repeated', ANSWER, 'connection.peer.gid.equals(source.gid) &&', ''],
  [
    'a COOKIE of any transaction is repeated',
    ANSWER,
    ' &&\n    connection.transactionId === message.transactionId;',
    ';',
  ],
  ['COOKIEs are repeated without end', ANSWER, ' || connection.cookies === COOKIES_MAX', ''],
  ['a cookie is repeated once', ANSWER, '  connection.message = request;\n', ''],
  [
    'an AUTH_REQ goes to the first process',
    'host/device/services.ts',
    '      case AUTH_REQ:\n',
    '',
  ],
];

export const ADMISSIONS: readonly Row[] = ROWS.map(([name, ...rest]) => [
  `requests: ${name}`,
  ...rest,
]);
