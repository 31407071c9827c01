/** Limits and rules of the servers that the commands are. */
import type { Row } from './mutants.js';

const SITE = 'host/link/http-site.ts';
const SHARES = 'host/link/source-shares.ts';
const UPGRADES = 'host/link/websocket-server.ts';
const CHANNEL = 'host/link/websocket-channel.ts';
const CANDIDATES = 'host/link/signalling/candidates.ts';
const OFFERS = 'host/link/signalling/http-server.ts';
const COUNT = 'host/link/signalling/session-count.ts';
const ECHO = 'host/demo/socket-echo.ts';
const DEMO = 'host/demo/server.ts';
const DIRECTORY = 'host/device/device-directory.ts';
const TARGET = 'host/nvme/target.ts';
const IO = 'host/nvme/io.ts';
const SLICES = 'host/nvme/slices.ts';
const KEY = 'host/cli/exchange-key.ts';
const SESSION = 'host/cm/auth-session.ts';
const PRIVATE_FILE = 'host/cli/private-file.ts';
const EXCHANGE = 'host/cli/exchange.ts';
const NAMES = 'host/cli/file-name.ts';
const SERVED = 'host/cli/served-directory.ts';
const FILES = 'host/cli/file-server.ts';
const PART = 'host/cli/part-file.ts';
const HEADERS = 'host/demo/page-headers.ts';

export const SERVERS: readonly Row[] = [
  [
    'a request target that is no URL ends the process',
    SITE,
    "  const path = url.split('?', 1)[0]!;",
    "  const path = new URL(url, 'http://server').pathname;",
  ],
  [
    'any host name is served, so that DNS rebinding makes a page one of ours',
    SITE,
    'if (name !== undefined && !isOwnName(name) &&',
    'if (false &&',
  ],
  [
    'a name that begins as localhost does is ours',
    SITE,
    "name === 'localhost' ||",
    "name.startsWith('localhost') ||",
  ],
  [
    'a Host header that is no host is put into a policy',
    SITE,
    'if (host !== undefined && name === undefined) {',
    'if (false) {',
  ],
  [
    'pages of other origins are answered',
    SITE,
    'if (origin === undefined || origins.includes(origin)) return undefined;',
    'return undefined;',
  ],
  [
    'pages of another port of the same host are answered',
    SITE,
    'page.host === new URL(`${page.protocol}//${host}`).host;',
    'page.hostname === new URL(`${page.protocol}//${host}`).hostname;',
  ],
  ['one source takes all there is', SHARES, ' || held >= this.#perSource', ''],
  ['many sources take more than there is', SHARES, 'this.#count >= this.#max || ', ''],
  ['a share is given back twice', SHARES, '      if (!isHeld) return;\n', ''],
  ['each address of a network is a source', SHARES, '.subarray(0, NETWORK_BYTES)', ''],
  [
    'WebSockets of foreign pages are peers',
    UPGRADES,
    '    if (refusal) return refuseUpgrade(socket, refusal.status, refusal.sentence);\n',
    '',
  ],
  ['a WebSocket that ends keeps its share', UPGRADES, "    socket.once('close', giveBack);\n", ''],
  [
    'an upgrade at no path of ours is kept',
    UPGRADES,
    'if (isUnclaimed) refuseUpgrade(',
    'if (false) refuseUpgrade(',
  ],
  ['a peer that answers no ping stays', UPGRADES, 'if (!isHeard) return socket.terminate();', ''],
  ['a dead peer keeps its address', UPGRADES, 'if (holder) await probe(holder);', ''],
  [
    'an address is taken from a peer that lives',
    UPGRADES,
    'if (holder) await probe(holder);',
    'holder?.terminate();\n      await new Promise((resolve) => setTimeout(resolve, 100));',
  ],
  [
    'packets before an address are kept',
    CHANNEL,
    'data instanceof ArrayBuffer && this.#isNamed',
    'data instanceof ArrayBuffer',
  ],
  [
    'an offer selects the destination of STUN datagrams',
    OFFERS,
    'const own = withOwnCandidates(offer, remoteAddress, options.candidates);',
    'const own = offer;',
  ],
  ['an offer has any number of candidates', CANDIDATES, ' && candidates++ < CANDIDATES_MAX', ''],
  ['a candidate hides behind a blank', CANDIDATES, '/^\\s*a\\s*=\\s*candidate/i', '/^a=candidate/'],
  [
    'one source makes any number of connections',
    OFFERS,
    'if (!count.enter(remoteAddress, gid, peersPerSource, present)) {',
    'if (false) {',
  ],
  ['offers that came to nothing count for ever', COUNT, 'ends.filter((end) => end > now)', 'ends'],
  ['peers that are connected do not count', COUNT, 'isThere ? 1 : 0', '0'],
  [
    'signalling answers foreign pages',
    OFFERS,
    "  if (refusal) return say(refusal.status, 'text/plain', refusal.sentence);\n",
    '',
  ],
  [
    'the echo keeps what its peer does not read',
    ECHO,
    'if (client.bufferedAmount >= BUFFERED_BYTES_MAX) client.pause();',
    '',
  ],
  [
    'the echo never reads on',
    ECHO,
    'if (client.isPaused && client.bufferedAmount < BUFFERED_BYTES_MAX) client.resume();',
    '',
  ],
  ['the demo serves foreign pages', DEMO, 'if (refusal) refuse(response, refusal);', 'if (false);'],
  ['another page frames the demo', HEADERS, '    "frame-ancestors \'none\'",\n', ''],
  [
    'another user has the directory of devices',
    DIRECTORY,
    'if (!stat?.isDirectory() || stat.uid !== BigInt(user)) return [];',
    'if (!stat?.isDirectory()) return [];',
  ],
  [
    'a link leads the directory of devices elsewhere',
    DIRECTORY,
    'if (!stat?.isDirectory() || stat.uid !== BigInt(user)) return [];',
    'if (!stat || stat.uid !== BigInt(user)) return [];',
  ],
  ['a directory of devices stays open to others', DIRECTORY, 'chmodSync(path, MODE);', ''],
  [
    'a name that is taken is tried again and again',
    DIRECTORY,
    'if (isTaken) mkdtempSync(`${path}.`);\n    else mkdirSync',
    'mkdirSync',
  ],
  [
    'processes of a user have several directories of devices',
    DIRECTORY,
    'a.bornNanos < b.bornNanos ? -1 : 1',
    'a.bornNanos < b.bornNanos ? 1 : -1',
  ],
  ['hidden files are put', NAMES, "if (name.startsWith('.')) return 'it begins with a dot';", ''],
  ['a file name moves the cursor of a terminal', NAMES, '\\x7f-\\x9f', '\\x7f'],
  [
    'a file name is shown as another one',
    NAMES,
    "if (isTurned) return 'it changes the direction of text';",
    '',
  ],
  [
    'slow connections of one source keep others out',
    EXCHANGE,
    'if (!giveBack) return socket.destroy();',
    '',
  ],
  [
    'a server with a key takes requests without a proof',
    EXCHANGE,
    'if (line !== undefined) return { line, session };',
    "return { line: line ?? text.replace(/^[^ ]* /, ''), session };",
  ],
  [
    'a client with a key takes any server',
    EXCHANGE,
    "if (parseLine(text).get('refused') !== undefined) return text;",
    'return text;',
  ],
  [
    'a proof is of any connection',
    SESSION,
    'hkdf(key.bytes, join(nonceA, nonceB), info, 2 * KEY_BYTES)',
    'hkdf(key.bytes, join(nonceA), info, 2 * KEY_BYTES)',
  ],
  [
    'a proof of one side is one of the other',
    KEY,
    'this.#receiveKey = isActive ? ofPassive : ofActive;',
    'this.#receiveKey = this.#sendKey;',
  ],
  [
    'a proof has any place in a conversation',
    KEY,
    'hmac(key, head, message)',
    'hmac(key, message)',
  ],
  [
    'packets of a transfer with a key carry no tags',
    'host/cli/channel.ts',
    'if (keys) this.#qp.setPacketKeys(keys);',
    '',
  ],
  ['a key that others may read is taken', PRIVATE_FILE, '(mode & GROUP_AND_OTHERS) !== 0', 'false'],
  ['a key may have any length', KEY, 'key.length >= KEY_LENGTH_MIN && ', ''],
  [
    'silent clients keep their places from other addresses',
    FILES,
    'if (this.#sessions.size >= clientsMax) await this.#makeRoom(standing.remoteAddress);',
    '',
  ],
  [
    'a name without a piece leaves two files',
    PART,
    '    if (this.synced.size === 0) await discard(this.#path);\n',
    '',
  ],
  ['unfinished files stay for ever', SERVED, ' || nowMillis - changedMillis > expireMillis', ''],
  ['there is any number of unfinished files', SERVED, 'index < beyond || ', ''],
  ['a file that is being put expires', SERVED, '    if (inUse(name)) continue;\n', ''],
  ['a quota counts no file', SERVED, 'if (found?.isFile()) used += found.size;', ''],
  ['one address has all queues of an NVMe target', TARGET, 'own.length >= queuesPerSource || ', ''],
  [
    'queues of one address wait for a Connect without a limit',
    TARGET,
    ' || silent >= SILENT_PER_SOURCE',
    '',
  ],
  [
    'a Dataset Management works on the same bytes again and again',
    IO,
    'mergeExtents(extents)',
    'extents',
  ],
  [
    'a command of one host keeps the target from all others',
    IO,
    'for (let done = 0; done < length; done += SLICE_BYTES) {',
    'for (let done = 0; done < 1; done++) {',
  ],
  ['one owner has all turns', SLICES, '      this.#owners.delete(owner);\n', ''],
  [
    'the event loop has no turn between slices',
    SLICES,
    'await new Promise<void>((resolve) => nextTurn(resolve));',
    '',
  ],
  [
    'the page has no policy',
    DEMO,
    "    'Content-Security-Policy': contentSecurityPolicy(request.headers.host),\n",
    '',
  ],
];
