/** Checks of reliable datagrams: what a peer says, and what another process of the node wrote. */
import type { Row } from './mutants.js';

const HEADER = 'host/rds/header.ts';
const HANDSHAKE = 'host/rds/handshake.ts';
const CONTROL = 'host/rds/control.ts';
const REASSEMBLY = 'host/rds/reassembly.ts';
const LAST_SAID = 'host/rds/last-said.ts';
const LOCAL_REGIONS = 'host/rds/local-regions.ts';
const LIVENESS = 'host/rds/liveness.ts';
const LANE = 'host/rds/lane.ts';
const ARRIVALS = 'host/rds/arrivals.ts';
const LEDGER = 'host/rds/ledger.ts';
const AREA = 'host/rds/area.ts';

export const DATAGRAMS: readonly Row[] = [
  // Sockets of a cluster worker.
  [
    "a cluster worker's link uses its primary's descriptor of that number",
    'host/link/udp-socket.ts',
    'socket.bind({ fd, exclusive: true })',
    'socket.bind({ fd })',
  ],
  [
    'cluster workers share the socket that queries a node',
    'host/dgram/station.ts',
    'question.bind({ port: 0, address: this.address, exclusive: true }, () => {',
    'question.bind({ port: 0, address: this.address }, () => {',
  ],
  [
    'a cluster primary answers for the node of its worker',
    'host/rds/desk.ts',
    'server.listen({ path, exclusive: true });',
    'server.listen({ path });',
  ],
  [
    'a cluster primary keeps the IPC listener of a node after its worker has ended',
    'host/rds/sharing.ts',
    'server.listen({ path: this.#nameOf(slot), exclusive: true }, () => {',
    'server.listen({ path: this.#nameOf(slot) }, () => {',
  ],
  [
    'a timer with a deadline in the past gets a negative delay',
    'host/device/clock.ts',
    'timerMillis(millis)',
    'millis',
  ],
  // Sockets of programs that inherit.
  [
    "a program's own emit receives no RDP message",
    'host/dgram/socket.ts',
    "this.#socket.emit('message', data,",
    "NODE.emit.call(this.#socket, 'message', data,",
  ],
  [
    "a program's own emit receives 'listening' too early",
    'host/dgram/socket.ts',
    'release();\n      if (event',
    'release(); socket.emit(event, ...args);\n      if (event',
  ],
  // Detection of dead peers.
  [
    'an acknowledgement of the transport is no sign of life of its node',
    LANE,
    'this.#path.heard(now);\n    this.pump(now);',
    'this.pump(now);',
  ],
  [
    'a peer that sends RNR NAKs counts as dead',
    LIVENESS,
    'if (isOwnFault || lanes.some((other) => other?.isPeerBusy))',
    'if (isOwnFault)',
  ],
  [
    'a node that was busy itself declares its peers dead',
    LIVENESS,
    'if (isOwnFault || lanes',
    'if (lanes',
  ],
  [
    'a peer that is too busy to accept another connection counts as dead',
    'host/rds/path.ts',
    'const isBusy = isNobody && lane.index !== 0 && this.#isUp;',
    'const isBusy = false;',
  ],
  // What comes over a connection.
  [
    'a header with a wrong checksum is one',
    HEADER,
    'if (view.getUint16(CHECKSUM_AT) !== 0 && sumOf(view, 0) !== 0) return undefined;',
    '',
  ],
  [
    'an extension header reaches beyond the header',
    HEADER,
    'if (length === undefined || at + 1 + length > HEADER_BYTES) break;',
    'if (length === undefined) break;',
  ],
  [
    'private data may be short',
    HANDSHAKE,
    'if (bytes.length < 2 * addressBytes + BEHIND_ADDRESSES) return undefined;',
    '',
  ],
  ['any version is spoken', HANDSHAKE, 'if (!isKnown) return undefined;', ''],
  [
    'a control message has half a port',
    CONTROL,
    'if (bytes.length < FIRST_PORT_AT || (bytes.length & 1) === 1) return undefined;',
    'if (bytes.length < FIRST_PORT_AT) return undefined;',
  ],
  ['fragments of two messages are one', REASSEMBLY, "if (!isSame) return 'wrong';", ''],
  [
    'fragments may be of any length',
    REASSEMBLY,
    "if (length !== Math.min(missing, fragmentBytes)) return 'wrong';",
    '',
  ],
  [
    'a number follows the last one that there is',
    LAST_SAID,
    'if (!Number.isSafeInteger(this.#sequence + 1) || ports === 0) return undefined;',
    'if (ports === 0) return undefined;',
  ],
  [
    'a header is left out though it acknowledges something new',
    LAST_SAID,
    'header.ack === this.#ack &&',
    '',
  ],
  [
    'a header is left out though it has an extension',
    LAST_SAID,
    'header.extensions === noExtensions() &&',
    '',
  ],
  [
    'a message without a header goes on with one that has',
    REASSEMBLY,
    'this.#start === start;',
    'true;',
  ],
  [
    'memory that is being sent may be freed',
    LOCAL_REGIONS,
    'if (this.isIdle) this.end();',
    'this.end();',
  ],
  [
    'a region that is in use makes room',
    LOCAL_REGIONS,
    'if (region.isIdle) region.end();',
    'region.end();',
  ],
  ['what no lane has sent is acknowledged', LANE, 'if (ack >= this.#sequence) return false;', ''],
  [
    'a message may be of any length',
    ARRIVALS,
    'if (sequence === 0 || length > MESSAGE_BYTES_MAX) return false;',
    'if (sequence === 0) return false;',
  ],
  [
    'numbers may be left out in the middle of a connection',
    ARRIVALS,
    'return !isGap || this.isFresh || !isOwnKind;',
    'return true;',
  ],
  [
    'a message that came before is delivered again',
    ARRIVALS,
    'if (isAgain && this.has(sequence)) {',
    'if (false) {',
  ],

  // What another process wrote.
  [
    'what is not safe is acknowledged',
    ARRIVALS,
    'return this.#book ? Math.min(this.last, Math.max(0, this.#book.expected - 1)) : this.last;',
    'return this.last;',
  ],
  [
    'what comes too far ahead to be written down is taken',
    ARRIVALS,
    'if (safe !== 0 && safe < this.expected && sequence > safe + AHEAD_MAX) return false;',
    '',
  ],
  [
    'what was safe out of turn has not come for the next process',
    LEDGER,
    'return sequence < expected || isAhead;',
    'return sequence < expected;',
  ],
  [
    'a bit that a dead process left is another number’s',
    LEDGER,
    'if (expected > 0) this.#set(expected - 1, false);',
    '',
  ],
  ['an entry may have any port', AREA, '|| !arePorts', ''],
  [
    'places of what is in use are free for the next process',
    AREA,
    'places.reserve(...this.#range(index))',
    'true',
  ],
];
