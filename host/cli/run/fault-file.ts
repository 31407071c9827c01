/**
 * The file of `verbena run --fault`: which verbs fail, which completions become errors, which calls
 * take longer, and when the device is removed. Each rule is checked here and written as numbers
 * for faults.c.
 */
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { WcStatus } from '../../verbs/enums.js';
import { checkKeys } from '../../base/options.js';
import { checkWhole } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import {
  FAULT_CALLS,
  FAULT_CALLS_FIRST,
  FAULT_KINDS,
  OPERATIONS,
  type Operation,
} from '../../bridge/operations.js';

/** The file: `{ "seed": 7, "rules": [...] }`. */
interface FaultFile {
  readonly seed?: number;
  readonly rules: readonly FaultRule[];
}

/** A rule has `call` with `errno` or `delayMicros`, or `completion`, or `event`. */
interface FaultRule {
  /** Name of a verb, such as ibv_reg_mr. */
  readonly call?: string;
  readonly errno?: string;
  readonly delayMicros?: number;
  /** Name of the status that a successful completion gets, such as RETRY_EXC_ERR. */
  readonly completion?: string;
  /** DEVICE_FATAL, `afterMillis` after the device is opened. */
  readonly event?: string;
  readonly afterMillis?: number;
  /** The n-th call or completion only, each n-th, or with this probability; without: each. */
  readonly at?: number;
  readonly every?: number;
  readonly probability?: number;
  /** At most so often. Default: no limit. */
  readonly times?: number;
  /** The n-th queue pair that a process creates. Default: all. */
  readonly qp?: number;
}

export interface VerbFaults {
  readonly verbFaults: string;
  readonly removalMillis?: number;
}

const RULES_MAX = 64;
const MILLION = 1_000_000;
const DATA_CALLS: Readonly<Record<string, (typeof FAULT_CALLS)[number]>> = {
  ibv_post_send: 'POST_SEND',
  ibv_wr_complete: 'POST_SEND',
  ibv_post_recv: 'POST_RECV',
  ibv_post_srq_recv: 'POST_SRQ_RECV',
  ibv_poll_cq: 'POLL_CQ',
  ibv_start_poll: 'POLL_CQ',
  ibv_req_notify_cq: 'REQ_NOTIFY_CQ',
};
/** Calls whose queue pair a rule may select. */
const OF_QUEUE_PAIR = /^ibv_(post_send|wr_complete|post_recv)$/;
const CONTROL_CALLS: Readonly<Record<string, Operation>> = {
  ibv_open_device: 'OPEN_CONTEXT',
  ibv_alloc_pd: 'ALLOC_PD',
  ibv_dealloc_pd: 'DEALLOC_PD',
  ibv_reg_mr: 'REG_MR',
  ibv_rereg_mr: 'REREG_MR',
  ibv_dereg_mr: 'DEREG_MR',
  ibv_alloc_mw: 'ALLOC_MW',
  ibv_dealloc_mw: 'DEALLOC_MW',
  ibv_alloc_dm: 'ALLOC_DM',
  ibv_free_dm: 'FREE_DM',
  ibv_create_comp_channel: 'CREATE_CHANNEL',
  ibv_create_cq: 'CREATE_CQ',
  ibv_resize_cq: 'RESIZE_CQ',
  ibv_destroy_cq: 'DESTROY_CQ',
  ibv_create_qp: 'CREATE_QP',
  ibv_modify_qp: 'MODIFY_QP',
  ibv_query_qp: 'QUERY_QP',
  ibv_destroy_qp: 'DESTROY_QP',
  ibv_attach_mcast: 'ATTACH_MCAST',
  ibv_create_ah: 'CREATE_AH',
  ibv_destroy_ah: 'DESTROY_AH',
  ibv_create_srq: 'CREATE_SRQ',
  ibv_modify_srq: 'MODIFY_SRQ',
  ibv_destroy_srq: 'DESTROY_SRQ',
  rdma_create_event_channel: 'CM_CREATE_CHANNEL',
  rdma_create_id: 'CM_CREATE_ID',
  rdma_destroy_id: 'CM_DESTROY_ID',
  rdma_bind_addr: 'CM_BIND',
  rdma_resolve_addr: 'CM_RESOLVE_ADDR',
  rdma_resolve_route: 'CM_RESOLVE_ROUTE',
  rdma_connect: 'CM_CONNECT',
  rdma_listen: 'CM_LISTEN',
  rdma_accept: 'CM_ACCEPT',
  rdma_reject: 'CM_REJECT',
  rdma_disconnect: 'CM_DISCONNECT',
};

function callNumber(name: string, where: string): number {
  const data = DATA_CALLS[name];
  if (data) return FAULT_CALLS_FIRST + FAULT_CALLS.indexOf(data);
  const operation = CONTROL_CALLS[name];
  if (operation) return OPERATIONS.indexOf(operation) + 1;
  const known = [...Object.keys(DATA_CALLS), ...Object.keys(CONTROL_CALLS)].join(', ');
  throw new MisuseError(`${where}.call`, `must be one of ${known}; got ${name}`);
}

function numberIn(table: object, name: string, where: string): number {
  const value = Object.entries(table).find(([one]) => one === name)?.[1] as number | undefined;
  if (value !== undefined && value > 0) return value;
  const known = Object.keys(table).filter((one) => table[one as never] > 0);
  throw new MisuseError(where, `must be one of ${known.join(', ')}; got ${name}`);
}

/** Kind, target and value of a rule, in this order. */
function effectOf(rule: FaultRule, where: string): [(typeof FAULT_KINDS)[number], number, number] {
  const { call, errno, delayMicros, completion } = rule;
  if (completion !== undefined && call === undefined && errno === undefined && !delayMicros) {
    return ['STATUS', 0, numberIn(WcStatus, completion, `${where}.completion`)];
  }
  const isTwo = completion !== undefined || rule.afterMillis !== undefined;
  if (call === undefined || isTwo || (errno === undefined) === (delayMicros === undefined)) {
    const rest = 'completion, or event "DEVICE_FATAL" with afterMillis';
    const has = Object.keys(rule).join(', ');
    throw new MisuseError(
      where,
      `must have call with errno or delayMicros, or ${rest}, got ${has}`,
    );
  }
  const target = callNumber(call, where);
  if (errno !== undefined) {
    return ['FAIL', target, numberIn(constants.errno, errno, `${where}.errno`)];
  }
  checkWhole(`${where}.delayMicros`, delayMicros!, 1, 10 * MILLION);
  return ['DELAY', target, delayMicros!];
}

function encode(rule: FaultRule, where: string): string {
  const { at = 0, every = 0, probability, times = 0, qp = 0 } = rule;
  const [kind, target, value] = effectOf(rule, where);
  for (const name of ['at', 'every', 'times', 'qp'] as const) {
    if (rule[name] !== undefined) checkWhole(`${where}.${name}`, rule[name], 1, 2 ** 31);
  }
  const choices = [rule.at, rule.every, probability].filter((one) => one !== undefined);
  if (choices.length > 1) {
    throw new MisuseError(where, 'must have at, every or probability, not several of them');
  }
  if (qp !== 0 && rule.call !== undefined && !OF_QUEUE_PAIR.test(rule.call)) {
    throw new MisuseError(`${where}.qp`, `does not apply to ${rule.call}, which has no queue pair`);
  }
  if (probability !== undefined && !(probability > 0 && probability <= 1)) {
    throw new MisuseError(`${where}.probability`, `must be above 0 and at most 1: ${probability}`);
  }
  const chance = Math.round((probability ?? 0) * MILLION);
  const numbers = [FAULT_KINDS.indexOf(kind) + 1, target, value, at, every, chance, times, qp];
  return numbers.join(':');
}

/** Throws RefusalError (the file cannot be read), MisuseError (its contents). */
export function readFaults(file: string): VerbFaults {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw fileRefusal(`cannot read ${file}`, error);
  }
  return parseFaults(text);
}

/** The text of such a file. Throws MisuseError. */
export function parseFaults(text: string): VerbFaults {
  let read: FaultFile;
  try {
    read = JSON.parse(text) as FaultFile;
  } catch (error) {
    throw new MisuseError('--fault', `is not JSON: ${(error as Error).message}`);
  }
  checkKeys<FaultFile, 'seed rules'>('--fault', read, 'seed rules');
  const { seed = 1, rules } = read;
  checkWhole('--fault: seed', seed);
  if (!Array.isArray(rules) || rules.length < 1 || rules.length > RULES_MAX) {
    throw new MisuseError('--fault: rules', `must be a list of 1 to ${RULES_MAX} rules`);
  }
  const encoded: string[] = [];
  let removalMillis: number | undefined;
  (rules as readonly FaultRule[]).forEach((rule, index) => {
    const where = `--fault: rules[${index}]`;
    checkKeys(
      where,
      rule,
      'call errno delayMicros completion event afterMillis at every probability times qp',
    );
    if (rule.event === undefined) {
      encoded.push(encode(rule, where));
      return;
    }
    if (rule.event !== 'DEVICE_FATAL') {
      throw new MisuseError(`${where}.event`, `must be DEVICE_FATAL, got ${rule.event}`);
    }
    const { afterMillis } = rule;
    if (afterMillis === undefined || Object.keys(rule).length > 2) {
      throw new MisuseError(where, 'with event must have afterMillis, and nothing else');
    }
    checkWhole(`${where}.afterMillis`, afterMillis, 0, 2 ** 31 - 1);
    removalMillis = afterMillis;
  });
  return {
    verbFaults: [`${seed}`, ...encoded].join(';'),
    ...(removalMillis === undefined ? {} : { removalMillis }),
  };
}
