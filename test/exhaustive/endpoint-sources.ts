/**
 * Endpoints of the local path, as the checker compiles them: their tables, the owner's part and the
 * requester's look-up are unchanged; contexts and queue pairs have only the fields that these files
 * use.
 */
import { readFileSync } from 'node:fs';
import { root } from '../support/paths.js';
import type { Edit, Variant } from './build.js';
import { REAP, REAP_WAITS } from './fence-sources.js';

/** Sources that are compiled unchanged. */
const REAL = [
  'transport/local/target.ts',
  'transport/shared/local-endpoint.ts',
  'transport/shared/local-target.ts',
  'transport/shared/status.ts',
];

const STUBS: Readonly<Record<string, string>> = {
  'transport/shared/context.ts': `
import { Arena, ContextSlot } from '../../memory/arena';
import { LocalTarget } from './local-target';
import { QueuePair } from './queue-pair';
@unmanaged export class Context {
  localGid0: u64;
  localGid1: u64;
  arena: Arena;
  slot: ContextSlot;
  slotIndex: u32;
  pkey: u32;
  localTarget: LocalTarget;
  impatient: u32;
  localPath: u32;
}
export function findQueuePair(context: Context, qpn: u32): QueuePair | null { return null; }
`,
  'transport/shared/queue-pair.ts': `
export enum MessageKind { NONE = 0 }
@unmanaged export class Path {
  remoteGid0: u64; remoteGid1: u64; remotePort: u32; auth: u32; isOwn: u32;
}
@unmanaged export class QueuePair {
  qpn: u32;
  targetQp: u32;
  pd: u32;
  binding: u32;
  state: u32;
  type: u32;
  access: u32;
  destRdAtomicMax: u32;
  counterTable: usize;
  message: u32;
  communicationEstablished: u32;
  localPath: u32;
}
export function pathOf(qp: QueuePair): Path {
  return changetype<Path>(changetype<usize>(qp) + 64);
}
`,
  'transport/shared/state-machine.ts':
    'export function serves(state: u32): bool { return state >= 2 && state <= 5; }',
  'transport/shared/send-buffer.ts': `
import { Context } from './context';
import { Path } from './queue-pair';
export function staysHere(context: Context, path: Path, qpn: u32): bool { return false; }
`,
  'wire/headers.ts': 'export function mayTalk(theirs: u32, ours: u32): bool { return true; }',
};

/** Bytes of a queue pair with its context: that, queue pair at 64, path at 128, target at 192. */
export const ENDPOINT_PRIVATE_BYTES = 256;

const FIND = "import * as windows from './region/memory-window';";
const ENTRY = `
import { lockArena, setReachesAll, unlockArena } from './memory/arena';
import * as reaping from './region/reap';
import { Context } from './transport/shared/context';
import { Path, QueuePair, pathOf } from './transport/shared/queue-pair';
import { LocalTarget } from './transport/shared/local-target';
import {
  updateLocalEndpoint, withdrawAndWait, withdrawEndpoint,
} from './transport/shared/local-endpoint';
import { findTarget } from './transport/local/target';
import { QpState, QpType } from './transport/shared/status';
function contextOf(at: usize): Context { return changetype<Context>(at); }
function queuePairOf(at: usize): QueuePair { return changetype<QueuePair>(at + 64); }
/** Each field of a publication says which one it is. */
export function makeEndpointEnd(
  arena: usize, slot: u32, at: usize, qpn: u32, peer: u32, publication: u32,
): u32 {
  const context = contextOf(at);
  context.arena = changetype<Arena>(arena);
  context.slot = contextSlot(context.arena, slot);
  context.slotIndex = slot;
  context.localPath = 1;
  context.localTarget = changetype<LocalTarget>(at + 192);
  const qp = queuePairOf(at);
  qp.qpn = qpn;
  qp.targetQp = peer;
  qp.pd = 16 + publication;
  qp.binding = 32 + publication;
  qp.access = 48 + publication;
  qp.destRdAtomicMax = 64 + publication;
  qp.state = QpState.RTS;
  qp.type = QpType.RC;
  const fits = offsetof<Context>() <= 64 && offsetof<QueuePair>() <= 64 && offsetof<Path>() <= 64;
  return u32(fits);
}
export function publish(arena: usize, at: usize): u32 {
  updateLocalEndpoint(contextOf(at), queuePairOf(at));
  return 0;
}
export function withdraw(arena: usize, at: usize): u32 {
  withdrawAndWait(contextOf(at), queuePairOf(at));
  return contextOf(at).impatient;
}
/** The queue pair is in ERR: nothing is waited for. */
export function failQueuePair(arena: usize, at: usize): u32 {
  withdrawEndpoint(contextOf(at), queuePairOf(at));
  return 0;
}
export function reach(arena: usize, at: usize): u32 {
  setReachesAll(contextOf(at).slot);
  return 0;
}
/** The publication that was found, plus 1; 0: none; 99: fields of several. */
export function findEndpoint(arena: usize, at: usize): u32 {
  const target = contextOf(at).localTarget;
  enter(changetype<Arena>(arena), contextOf(at).slot);
  const isFound = findTarget(contextOf(at), queuePairOf(at));
  const publication = target.pd - 16;
  const isWhole =
    target.binding == 32 + publication && target.access == 48 + publication &&
    target.destRdAtomicMax == 64 + publication;
  memory.fill(changetype<usize>(target), 0, 28);
  return !isFound ? 0 : isWhole ? publication + 1 : 99;
}
export function leaveEndpoint(arena: usize, at: usize): u32 {
  leave(contextOf(at).slot);
  return 0;
}
`;

/** Without its number of looks the wait for other engines is endless: a number is a state each. */
const WAITS: readonly Edit[] = [
  {
    file: 'transport/shared/local-endpoint.ts',
    find: 'while (looks != 0 && !passed(one, epoch)) looks--;',
    replace: 'while (looks != 0 && !passed(one, epoch)) {}',
  },
  REAP_WAITS,
];

/** The protocol of endpoints. */
export function endpointVariant(base: Variant): Variant {
  const added: Record<string, string> = { ...STUBS };
  for (const file of REAL) {
    added[file] = readFileSync(new URL(`assembly/${file}`, root), 'utf8');
  }
  const entry = { file: 'entry.ts', find: FIND, replace: FIND + ENTRY + REAP };
  return {
    ...base,
    name: `endpoints-${base.name}`,
    added,
    edits: [...WAITS, entry, ...base.edits],
  };
}
