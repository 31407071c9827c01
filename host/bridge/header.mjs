/**
 * Writes build/bridge/abi.h: the engine's structs as build/abi.js has them, and the words of
 * operations.ts. No number of the engine is typed in C.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import * as abi from '#build/abi.js';
import * as control from '#build/host/engine/control-block.js';
import * as flood from '#build/host/device/progress/flood-filter.js';
import * as strays from '#build/host/device/progress/strays.js';
import * as words from '#build/host/bridge/operations.js';

const STRUCTS = ['WorkRequest', 'BindRequest', 'ReceiveRequest', 'Sge', 'WorkCompletion'].concat([
  'QueuePair',
  'CompletionQueue',
  'SharedReceiveQueue',
  'Context',
  'FlushRequest',
  'ReceiveDescriptor',
  'SendDescriptor',
  'Path',
  'ContextSlot',
  'EngineEvent',
  'Counters',
]);
const TYPES = { u8: 'uint8_t', u16: 'uint16_t', u32: 'uint32_t', u64: 'uint64_t', f64: 'double' };
const BYTES = { u8: 1, u16: 2, u32: 4, u64: 8, f64: 8 };

const snake = (name) => name.replace(/([a-z0-9])([A-Z])/g, '$1_$2').toLowerCase();

/** A struct with the fields of a layout, checked by the C compiler. */
function struct(name) {
  const { size, fields } = abi[`${name}Layout`];
  const tag = `struct abi_${snake(name)}`;
  const entries = Object.entries(fields).sort(([, [a]], [, [b]]) => a - b);
  const lines = [];
  const checks = [];
  let at = 0;
  const pad = (to) => {
    if (to > at) lines.push(`\tuint8_t pad${at}[${to - at}];`);
    at = to;
  };
  for (const [field, [offset, type]] of entries) {
    if (!TYPES[type]) throw new Error(`${name}.${field}: no C type for ${type}`);
    pad(offset);
    lines.push(`\t${TYPES[type]} ${snake(field)};`);
    checks.push(`_Static_assert(offsetof(${tag}, ${snake(field)}) == ${offset}, "${field}");`);
    at += BYTES[type];
  }
  // The compiler may add padding behind the last field: C's alignment, not the engine's.
  return [`${tag} {`, ...lines, `};`, `#define ABI_${snake(name).toUpperCase()}_BYTES ${size}`]
    .concat(checks)
    .join('\n');
}

const enumeration = (prefix, names, first) =>
  `enum {\n${names.map((name, index) => `\t${prefix}_${name} = ${first + index},`).join('\n')}\n};`;
const define = (name, value) => `#define ${name} ${value}`;

const { AccessFlag, RING_HEADER_SIZE, QUEUE_PAIR_SIZE, QpState, CqNotify, SendFlag } = abi;
const { EventKind } = abi;
const flags = (values) => `0x${values.reduce((a, b) => a | b, 0).toString(16)}`;
/** Rights of a queue pair; the others are about memory. */
const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
const { FLUSH_GLOBAL, FLUSH_PERSISTENT } = AccessFlag;
const QP_ACCESS = [LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC].concat(
  FLUSH_GLOBAL,
  FLUSH_PERSISTENT,
);

const text = [
  '/* Written by host/bridge/header.mjs from build/abi.js and host/bridge/operations.ts. */',
  '#ifndef VERBENA_ABI_H',
  '#define VERBENA_ABI_H',
  '#include <stddef.h>',
  '#include <stdint.h>',
  ...STRUCTS.map(struct),
  define('ABI_RING_HEADER_BYTES', RING_HEADER_SIZE),
  '/* Head and tail have cache lines of their own (assembly/memory/ring.ts). */',
  define('ABI_RING_TAIL', RING_HEADER_SIZE / 2),
  define('ABI_QUEUE_PAIR_STRIDE', QUEUE_PAIR_SIZE),
  ...Object.keys(control)
    .filter((name) => /^CONTROL_(?!BLOCK)/.test(name))
    .map((name) => define(`ABI_${name}`, control[name])),
  ...Object.entries({ ...strays, ...flood })
    .filter(([, value]) => typeof value === 'number')
    .map(([name, value]) => define(`ABI_${name}`, value)),
  define('ABI_SEND_BUFFER_PACKETS', abi.SEND_BUFFER_PACKETS),
  define('ABI_ACCESS_FLAGS', flags(Object.values(AccessFlag))),
  define('ABI_QP_ACCESS_FLAGS', flags(QP_ACCESS)),
  ...Object.entries(QpState).map(([name, value]) => define(`ABI_QP_STATE_${name}`, value)),
  ...Object.entries(CqNotify).map(([name, value]) => define(`ABI_CQ_NOTIFY_${name}`, value)),
  ...Object.entries(EventKind).map(([name, value]) => define(`ABI_EVENT_${name}`, value)),
  ...Object.entries(SendFlag).map(([name, value]) => define(`ABI_SEND_${name}`, value)),
  enumeration('OP', words.OPERATIONS, 1),
  enumeration('FAULT', words.FAULT_CALLS, words.FAULT_CALLS_FIRST),
  enumeration('FAULT', words.FAULT_KINDS, 1),
  enumeration('HELLO', [...words.HELLO, 'WORDS'], 0),
  enumeration('THREAD', [...words.THREAD, 'WORDS'], 0),
  enumeration('CM', [...words.CM_EVENT, 'EVENT_WORDS'], 0),
  define('CM_PRIVATE_BYTES', words.CM_PRIVATE_BYTES),
  define('MESSAGE_WORDS', words.MESSAGE_WORDS),
  ...Object.entries(words.DESCRIPTORS).map(([name, fd]) => define(`SIDECAR_${name}`, fd)),
  '#endif',
  '',
].join('\n');

/** Writes the header into `folder`. */
export function writeHeader(folder) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${folder}/abi.h`, text);
}
