/** Checks of links over channels: who is a peer, what is a message, how much is under way. */
import type { Row } from './mutants.js';

const LINK = 'host/link/channel-link.ts';
const PEER = 'host/link/channel-peer.ts';
const CHANNEL_LANE = 'host/link/channel-lane.ts';
const FRAME = 'host/link/channel-frame.ts';
const FINGERPRINT = 'host/link/rtc/fingerprint.ts';
const DATA_CHANNEL = 'host/link/data-channel.ts';
const SESSION = 'host/link/rtc/session.ts';
const WINDOW = 'assembly/transport/window.ts';
const COMPLETER = 'assembly/transport/completer.ts';

export const CHANNELS: readonly Row[] = [
  [
    'a packet reaches beyond its message',
    FRAME,
    'if (at + length > message.length) return false;',
    '',
  ],
  [
    'a length is read beyond the message',
    FRAME,
    'if (at + LENGTH_BYTES > message.length) return false;',
    '',
  ],
  [
    'what was never sent is acknowledged',
    CHANNEL_LANE,
    'if (ahead < 0 || ahead >= underWay) return;',
    'if (ahead < 0) return;',
  ],
  [
    'what was acknowledged is acknowledged again',
    CHANNEL_LANE,
    'if (ahead < 0 || ahead >= underWay) return;',
    'if (ahead >= underWay) return;',
  ],
  [
    'a message of any length is accepted',
    PEER,
    ' || message.length > this.#limits.receiveBytes',
    '',
  ],
  [
    'after a silence the whole window is sent',
    CHANNEL_LANE,
    'if (this.#isProbing) return false;',
    '',
  ],
  [
    'nobody is asked where small messages close the window',
    CHANNEL_LANE,
    '(this.#askedBytes <= this.#ackedBytes && !this.hasRoom(messageBytes))',
    'false',
  ],
  [
    'every message that closes the window asks',
    CHANNEL_LANE,
    'this.#askedBytes <= this.#ackedBytes && ',
    '',
  ],
  [
    'over data channels timers turn until their moment',
    'host/device/inline-progress.ts',
    'link.info.paced === true',
    'false',
  ],
  ['any number of packets waits', PEER, ' || this.#waitingBytes + size > queueBytes', ''],
  [
    'a full channel is filled on',
    CHANNEL_LANE,
    'this.channel.bufferedBytes > bufferedBytesMax || ',
    '',
  ],
  [
    'peers that are not open have packets',
    LINK,
    'if (!this.#receiver || !peer.isOpen) return;',
    'if (!this.#receiver) return;',
  ],
  [
    'any number of peers is taken',
    LINK,
    'if (this.#peers.size + this.#pending.size + this.#older.size >= peersMax) {',
    'if (false) {',
  ],
  [
    'of several connections the newest carries, though it may be closed over there',
    LINK,
    '    if (this.#older.has(peer)) this.#follow(peer);\n',
    '',
  ],
  ['of several connections none is asked whether it carries', LINK, '      older.ask();\n', ''],
  [
    'a frame that asks for an acknowledgement gets none',
    PEER,
    '    if (flags & FrameFlag.ASK) lane.ackDue = true;\n',
    '',
  ],
  ['a peer that is replaced is given up', LINK, '!(isLost || isReplaced) ||', '!isLost ||'],
  [
    'a description may have two fingerprints',
    FINGERPRINT,
    "if (prints.size !== 1 || algorithm !== 'sha-256') {",
    "if (algorithm !== 'sha-256') {",
  ],
  [
    'a fingerprint of any algorithm will do',
    FINGERPRINT,
    "if (prints.size !== 1 || algorithm !== 'sha-256') {",
    'if (prints.size !== 1) {',
  ],
  ['a description may be of any media', FINGERPRINT, 'media.length !== 1 || ', ''],
  ['a link of its own window is slowed down', WINDOW, '  if (context.paced) return;\n', ''],
  [
    'a READ whose answer got lost waits for the timeout',
    COMPLETER,
    '    repairOldest(qp, alone || qp.earlyRepeats > 1);',
    '    if (selective) repairOldest(qp, alone || qp.earlyRepeats > 1);',
  ],
  [
    'of a window that got lost each packet is waited for',
    COMPLETER,
    '    repairOldest(qp, alone || qp.earlyRepeats > 1);',
    '    repairOldest(qp, qp.earlyRepeats > 1);',
  ],
  [
    'whoever reads along leads a connection that works elsewhere',
    DATA_CHANNEL,
    'if (!(await this.#until(this.#noticeMillis, isInterrupted))) {',
    'if (false) {',
  ],
  [
    'an offer that came before is answered again',
    DATA_CHANNEL,
    "if (kind === 'old') throw new LinkError(",
    'if (false) throw new LinkError(',
  ],
  [
    'another certificate answers a restart',
    DATA_CHANNEL,
    'if (!gidOfDescription(answer).equals(peer.gid)) return;',
    '',
  ],
  [
    'an old answer ends a restart',
    DATA_CHANNEL,
    "if (judgeOffer(made.heard, answer) !== 'restart') return;",
    '',
  ],
  [
    'who was too busy to answer is not asked again',
    DATA_CHANNEL,
    'if (attempts > 1 && this.#listening.has(stop))',
    'if (false)',
  ],
  [
    'whoever has left the room asks on',
    DATA_CHANNEL,
    'if (attempts > 1 && this.#listening.has(stop))',
    'if (attempts > 1)',
  ],
  ['an offer of another session is a restart', SESSION, ' || was.id !== is.id', ''],
  ['the same credentials are a restart', SESSION, ' && is.credentials !== was.credentials', ''],
  [
    'a way that lost nothing is given no time',
    WINDOW,
    'qp.lossy ? REPEAT_SLACK_MICROS : patience(qp)',
    'REPEAT_SLACK_MICROS',
  ],
  [
    'what was asked for twice was lost',
    WINDOW,
    'if (qp.repeatedEarly == 0 || qp.repeatedEarly - 1 != psn) return;',
    'return;',
  ],
];
