/** Texts of thrown errors: each names an argument or object, and its rule, in plain words. */
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';

/** The class whose first argument is the name of an argument, and those where it is an errno. */
const MISUSE = 'MisuseError';
const REFUSAL = new Set(['RefusalError', 'LinkError', 'ReregMrError', 'MeshError', 'ConnectError']);
/** Its second argument is a Reason, which has a rule and a remedy by its type. */
const REMOTE = 'RemoteError';
/** A pronoun in place of the subject. Other phrases: wording.test.ts. */
const VAGUE = /^(?:it|that|this|what|there|they|one|nothing)\b/i;
const WORDS_MIN = 4;
/** Enough with fewer words: an object and its state. */
const STATE =
  /^[\w. #]+(?:: | )(?:is|was) (?:closed|deallocated|deleted|deregistered|destroyed|freed)$/;

interface Found {
  readonly kind: string;
  readonly file: string;
  readonly where: string;
  readonly text: string;
}

/** The initializer of the constant of that name in the nearest block around `node`. */
function constantOf(node: ts.Identifier): ts.Expression | undefined {
  for (let block: ts.Node = node.parent; block; block = block.parent) {
    if (!ts.isBlock(block) && !ts.isSourceFile(block)) continue;
    for (const statement of block.statements) {
      if (!ts.isVariableStatement(statement)) continue;
      const { flags, declarations } = statement.declarationList;
      const found = declarations.find(({ name }) => name.getText() === node.text);
      if (found) return flags & ts.NodeFlags.Const ? found.initializer : undefined;
    }
  }
  return undefined;
}

/** The text of a string or template, each value as `#`; undefined: it is computed elsewhere. */
function textOf(node: ts.Node | undefined): string | undefined {
  if (!node) return undefined;
  if (ts.isStringLiteralLike(node)) return node.text;
  if (ts.isIdentifier(node)) return textOf(constantOf(node));
  if (ts.isTemplateExpression(node)) {
    const spans = node.templateSpans.map(
      ({ expression, literal }) => (textOf(expression) ?? '#') + literal.text,
    );
    return node.head.text + spans.join('');
  }
  if (ts.isBinaryExpression(node)) {
    const [left, right] = [textOf(node.left), textOf(node.right)];
    return left === undefined || right === undefined ? undefined : left + right;
  }
  return undefined;
}

function* errorsOf(file: string): Iterable<Found> {
  const text = readFileSync(fileURLToPath(new URL(file, root)), 'utf8');
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found: Found[] = [];
  const visit = (node: ts.Node): void => {
    ts.forEachChild(node, visit);
    if (!ts.isNewExpression(node)) return;
    const kind = node.expression.getText();
    if (kind !== MISUSE && kind !== REMOTE && !REFUSAL.has(kind)) return;
    const [first, second] = node.arguments ?? [];
    const rule = kind === REMOTE ? '#; #' : textOf(second);
    if (rule === undefined) return;
    const line = source.getLineAndCharacterOfPosition(node.getStart()).line + 1;
    const subject = REFUSAL.has(kind) ? '' : `${textOf(first) ?? '#'}: `;
    found.push({ kind, file, where: `${file}:${line}`, text: subject + rule });
  };
  visit(source);
  yield* found;
}

const files = readdirSync(new URL('host', root), { recursive: true, encoding: 'utf8' })
  .map((name) => `host/${name.replaceAll('\\', '/')}`)
  .filter((name) => name.endsWith('.ts'));
const all = files.flatMap((file) => [...errorsOf(file)]);

/** States of an object, and of its caller, that forbid a call: no value says more. */
const STATES =
  'acknowledged|available|closed|deallocated|deleted|deregistered|destroyed|finalized|freed|' +
  'held|imported|open|removed|used up';
const FORBIDS = new RegExp(
  `\\b(?:is|was|has been) (?:already |not |no longer )?(?:${STATES})\\b|` +
    String.raw`\b(?:is|are) (?:only |not )?valid (?:with|for|during)\b|\bhas (?:no|an?) `,
);
/** An argument is absent or one too many, or an object without a text: nothing to print. */
const NO_TEXT = new RegExp(
  String.raw`\brequire[ds]?\b|\bneeds?\b|\b(?:without|both|neither|at most one|not several)\b|` +
    String.raw`\bof (?:the same|this|another) \w+|\bmust (?:be (?:an? (?!whole|number|name)|` +
    String.raw`memory )|return memory|belong to|have a method)`,
);
/** `must` and the value: the rule is its own remedy. */
const MUST = /\bmust\b.*#|#.*\bmust\b/;
/** `name: `, or the value or the object that it is about. */
const NAMED = /^(?:[\w.#'"()[\]/ -]{1,40}: |"?#|(?:the )?[\w-]+ "?#)/;
/** `verbena NAME: ` precedes the texts of these: they are shown by a command. */
const OF_COMMANDS = /^host\/(?:cli|transfer)\//;
const partsOf = (text: string): readonly string[] => text.split(/: |; |\. /);

/** It carries a value or names a state (misuse); operation or value, rule and remedy (others). */
function isJudged({ kind, file, text }: Found): boolean {
  // The message of another thread is copied into the error.
  if (/^(?:#: )?$/.test(text)) return true;
  const [first, ...rest] = partsOf(text);
  if (kind === MISUSE) {
    const rule = rest.join(': ');
    return rule.includes('#') || FORBIDS.test(rule) || NO_TEXT.test(rule);
  }
  if (!NAMED.test(text) && !OF_COMMANDS.test(file)) return false;
  const isOperation = /^[\w.#-]+$/.test(first!);
  return MUST.test(text) || rest.length >= (isOperation ? 2 : 1) || (rest.at(-1) ?? '') === '#';
}

/** A remedy there would take the bundle of the mesh beyond its bound. */
const PAGE = 'page code, whose bundle is at its bound';

/** Texts that the rules above do not accept. An entry without its text in the source fails. */
const LISTED: readonly (readonly [file: string, text: string, why: string])[] = [
  ['host/cli/base/psk-file.ts', '# #', 'SENTENCES has rule and remedy for each reason'],
  [
    'host/cli/run/fault-file.ts',
    '#: must have call with errno or delayMicros, or completion, ' +
      'or event "DEVICE_FATAL" with afterMillis',
    'the argument names the value: a rule of the file',
  ],
  [
    'host/device/sharing/thread-share.ts',
    'share: the device #',
    'the computed part has state and remedy',
  ],
  [
    'host/nvme/dhchap-options.ts',
    '#.controllerSecret: must have another key than secret',
    'a key is never printed',
  ],
  [
    'host/pmem/lock-directory.ts',
    '#; npm install koffi for locks without one',
    'fileRefusal makes the first part, with operation and path',
  ],
  ['host/pool/fmr-pool.ts', 'addMr: the region #', 'the computed part has rule and values'],
  [
    'host/remote/local-regions.ts',
    '#.rights: must name one of read, write, atomic, got none; ' +
      'leave the region out to share nothing',
    'the value is an empty list',
  ],
  [
    'host/transfer/served-directory.ts',
    '#; choose a directory that this user can write to (--dir)',
    'fileRefusal makes the first part, with operation and path',
  ],
  [
    'host/verbs/domains/shared-domain.ts',
    'shareKey: must be a whole number from 0 to 2^64 - 1',
    'a key is never printed',
  ],
  [
    'host/verbs/queues/packet-keys.ts',
    'recvKey: must differ from sendKey: each direction has its own key',
    'a key is never printed',
  ],
  ['host/cm/address-info.ts', 'the host # is not known', PAGE],
  ['host/cm/cm-id.ts', 'bindAddr: the device has #, not #', PAGE],
  ['host/cm/cm-id.ts', 'resolveAddr: # and # have different address families', PAGE],
  ['host/cm/cm-id.ts', 'establish: the id has no reply of its peer', PAGE],
  ['host/cm/cm-id.ts', 'disconnect: the id has no connection', PAGE],
  ['host/cm/cm-id.ts', '#: the request is answered already, or has ended', PAGE],
  ['host/cm/connect-error.ts', '#: the peer disconnected at once', PAGE],
  ['host/cm/connection.ts', '#: the connection is in #', PAGE],
  ['host/cm/core.ts', 'another listener has service id 0x#', PAGE],
  ['host/cm/core.ts', 'connect: all # connections of the device are in use', PAGE],
  ['host/cm/end-point.ts', 'qpType: must be UD in PortSpace.UDP, and only there', PAGE],
  ['host/cm/end-point.ts', 'resolveAddrinfo: another call of the id is pending', PAGE],
  ['host/cm/end-point.ts', 'queryAddrinfo: call resolveAddrinfo first', PAGE],
  ['host/cm/end-point.ts', 'writeCmEvent: event must be USER', PAGE],
  ['host/cm/end-point.ts', 'joinMulticastEx: the # link has no multicast', PAGE],
  ['host/cm/end-point.ts', 'buffer: must lie in the region', PAGE],
  ['host/cm/listener-requests.ts', 'getRequest: the id is not a listener of createEp', PAGE],
  ['host/cm/queue-pair-states.ts', 'qpState: must be INIT, RTR or RTS', PAGE],
  ['host/cm/queue-pair-states.ts', 'initQpAttr: the id has no agreement with a peer yet', PAGE],
  ['host/link/loopback.ts', 'deliver: must not be called by a receiver', PAGE],
  ['host/link/loopback.ts', '# is taken by another link of this network', PAGE],
  ['host/remote/remote-region.ts', 'handle: must be the handle of a RemoteRegion, unchanged', PAGE],
  [
    'host/shmem/job.ts',
    'job: no launcher started this process: use "verbena shmem run -n 4 ' +
      'program.js", mpirun or srun, or pass the job to init',
    'the argument says what is required',
  ],
  ['host/device/durable/durables.ts', 'addDurable: all # durable segments are taken', PAGE],
  ['host/device/durable/durables.ts', 'remove: a FLUSH of the segment is pending', PAGE],
  ['host/link/channel/websocket-channel.ts', 'the peer of the WebSocket sent no address', PAGE],
  ['host/link/channel/websocket.ts', '# is the address of another peer', PAGE],
  ['host/link/channel/websocket.ts', '[#]:4791 is the address of another link', PAGE],
  ['host/link/channel/websocket.ts', 'the WebSocket peer sent no address within # s', PAGE],
  [
    'host/link/rtc/bundle.ts',
    'a restart must have the connections of the first offer, or only new ones',
    PAGE,
  ],
  ['host/link/rtc/fingerprint.ts', 'the fingerprint is not a SHA-256 in hexadecimal', PAGE],
  ['host/link/rtc/fingerprint.ts', 'the description has connections of several peers', PAGE],
  ['host/link/rtc/fingerprint.ts', 'the description is not that of one data channel', PAGE],
  [
    'host/link/rtc/fingerprint.ts',
    'the description must have exactly one fingerprint, of SHA-256',
    PAGE,
  ],
  ['host/link/rtc/fingerprint.ts', 'the received message is not an #', PAGE],
  ['host/link/signalling/broadcast.ts', 'BroadcastChannel is missing in this browser', PAGE],
  ['host/link/signalling/room.ts', 'the room "#" was left', PAGE],
  ['host/link/signalling/room.ts', 'the room "#" was left', PAGE],
  [
    'host/verbs/domains/import.ts',
    'importPd: there is no such protection domain, or this context takes part in ' + 'it already',
    PAGE,
  ],
  [
    'host/verbs/domains/import.ts',
    'attach: the device has no name, so no other process allocates in it',
    PAGE,
  ],
  ['host/verbs/domains/parent-domain.ts', 'the allocator has no # bytes', PAGE],
  ['host/verbs/domains/parent-domain.ts', 'dealloc: queues of this parent domain exist', PAGE],
  ['host/verbs/domains/protection-domain.ts', 'allocPd: all # protection domains are taken', PAGE],
  ['host/verbs/domains/protection-domain.ts', '#: the protection domain has ended', PAGE],
  ['host/verbs/domains/shared-domain.ts', '#: all attachments of the device are taken', PAGE],
  ['host/verbs/domains/shared-domain.ts', '#: unknown protection domain, or wrong share key', PAGE],
  ['host/verbs/heap/domain-heap.ts', 'waitPressure: no heap lacked storage for # ms', PAGE],
  ['host/verbs/heap/domain-heap.ts', 'wait: the word at 0x# was # for # ms', PAGE],
  ['host/verbs/heap/domain-heap.ts', 'heap: "#" is not of this device', PAGE],
  ['host/verbs/queries/query-tables.ts', 'getPkeyIndex: pkey 0x# is not in the table', PAGE],
  ['host/verbs/queues/address-handle.ts', 'createAh: all # address handles are taken', PAGE],
  ['host/verbs/queues/completion-channel.ts', 'destroy: a queue uses this channel', PAGE],
  ['host/verbs/queues/completion-counter.ts', 'attachCompCntr: opMask # has an unknown bit', PAGE],
  [
    'host/verbs/queues/completion-counter.ts',
    'attachCompCntr: the queue pair must be in RESET or INIT',
    PAGE,
  ],
  [
    'host/verbs/queues/completion-counter.ts',
    'attachCompCntr: another counter has an operation of opMask',
    PAGE,
  ],
  [
    'host/verbs/queues/completion-queue-ex.ts',
    'createCqEx: wcFlags 0x# has a field that this device does not report',
    PAGE,
  ],
  ['host/verbs/queues/completion-queue-ex.ts', 'createCqEx: flags # has an unknown bit', PAGE],
  ['host/verbs/queues/completion-queue.ts', 'createCq: all # completion queues are taken', PAGE],
  ['host/verbs/queues/completion-queue.ts', 'modify: this device has no event moderation', PAGE],
  [
    'host/verbs/queues/queue-pair-ex.ts',
    'createQpEx: the queue pair type does not support #',
    PAGE,
  ],
  [
    'host/verbs/queues/queue-pair-ex.ts',
    'wrFlags: must not have INLINE: call wrSetInlineData',
    PAGE,
  ],
  ['host/verbs/queues/queue-pair-ex.ts', '#: must follow a request of the batch', PAGE],
  ['host/verbs/queues/queue-pair.ts', '#: the # link has no multicast', PAGE],
  [
    'host/verbs/queues/shared-receive-queue.ts',
    'createSrq: all # shared receive queues are taken',
    PAGE,
  ],
  ['host/verbs/regions/device-memory.ts', 'allocDm: length # exceeds maxDmSize, #', PAGE],
  [
    'host/verbs/regions/device-memory.ts',
    'exportDmabufFd: the kernel does not know this memory',
    PAGE,
  ],
  [
    'host/verbs/regions/device-memory.ts',
    'regDmMr: access must include ZERO_BASED, because device memory has no ' + 'address',
    PAGE,
  ],
  [
    'host/verbs/regions/device-memory.ts',
    'regDmMr: # bytes at # exceed the # bytes of the device memory',
    PAGE,
  ],
  [
    'host/verbs/regions/fast-memory-region.ts',
    'REG_MR: the region belongs to another user of its pool',
    PAGE,
  ],
  [
    'host/verbs/regions/imported-memory-region.ts',
    'importMr: the domain has no region of that handle',
    PAGE,
  ],
  [
    'host/verbs/regions/imported-memory-region.ts',
    'dereg: another thread is still using the memory',
    PAGE,
  ],
  ['host/verbs/regions/key.ts', '#: the region is deregistered', PAGE],
  ['host/verbs/regions/key.ts', '#: another thread is still using the memory', PAGE],
  [
    'host/verbs/regions/memory-region.ts',
    'buffer: lies outside the device’s memory; copy it into memory of ' + 'context.alloc()',
    PAGE,
  ],
  ['host/verbs/regions/memory-window.ts', 'bindMw.mw: is of type 1, which qp.bindMw() binds', PAGE],
  [
    'host/verbs/regions/memory-window.ts',
    'bindMw: a datagram queue pair cannot bind memory windows',
    PAGE,
  ],
  [
    'host/verbs/regions/memory-window.ts',
    'bindMw: window, region and queue pair are not of one protection domain',
    PAGE,
  ],
  [
    'host/verbs/regions/memory-window.ts',
    'bindMw: a window of type 2 is bound by WrOpcode.BIND_MW',
    PAGE,
  ],
  ['host/verbs/regions/memory-window.ts', 'bindMw: a window of type 1 cannot be zero-based', PAGE],
  [
    'host/verbs/regions/memory-window.ts',
    'mwAccessFlags: must be made of REMOTE_… and, for type 2, ZERO_BASED',
    PAGE,
  ],
  [
    'host/verbs/regions/registrable-buffer.ts',
    'regBufMr: another protection domain allocated the buffer',
    PAGE,
  ],
  [
    'host/verbs/regions/registrable-buffer.ts',
    'regBufMr: # bytes at # exceed the # bytes at #',
    PAGE,
  ],
  [
    'host/verbs/regions/registrable-buffer.ts',
    'exportDmabufFd: the memory is not a DMA buffer',
    PAGE,
  ],
  [
    'host/verbs/regions/registrable-buffer.ts',
    'regMrEx: exactly one of buffer, buf and fd is required',
    PAGE,
  ],
  [
    'host/verbs/regions/registrable-buffer.ts',
    'regMrEx: this device does not support fd (DMA buffers)',
    PAGE,
  ],
  ['host/verbs/regions/registrable-buffer.ts', 'regMrEx: dmah is not valid with ON_DEMAND', PAGE],
  [
    'host/verbs/regions/registrable-buffer.ts',
    "regMrEx: length # exceeds the buffer's # bytes",
    PAGE,
  ],
];

const wrong = (isWrong: (text: string) => boolean): string[] =>
  all.filter(({ text }) => isWrong(text)).map(({ where, text }) => `${where}: ${text}`);

test('the errors of the host are found', () => {
  assert.ok(all.length > 1000, `${all.length}`);
});

test('a text has at least four words', () => {
  assert.equal(
    // An expression stands for any number of words.
    wrong((text) => !/#|^$/.test(text) && !STATE.test(text) && text.split(' ').length < WORDS_MIN),
    [],
  );
});

test('a text starts with an argument or object, not with a pronoun', () => {
  assert.equal(
    wrong((text) => VAGUE.test(text)),
    [],
  );
});

test('a text names operation and value, rule and remedy, except those that are listed', () => {
  const found = all.filter((one) => !isJudged(one)).map(({ file, text }) => `${file}: ${text}`);
  assert.equal(found.sort(), LISTED.map(([file, text]) => `${file}: ${text}`).sort());
});

test.run();
