/**
 * Job files of fio with the common options of its two librpma engines: INI with `[global]` and one
 * section per job. A job of another engine, or an option with another meaning here, is refused by
 * its name, so that the measurement is the requested one.
 */
import { MisuseError } from '../../errors/errors.js';

/** One line of a comparison. */
export interface BenchJob {
  readonly name: string;
  readonly isRandom: boolean;
  /** Bytes of one write. */
  readonly bytes: number;
  /** Writes under way. */
  readonly depth: number;
  /** The general-purpose method: messages ask the other side's program to flush. */
  readonly byMessages?: boolean;
  /** Seconds; undefined: until `total` bytes are written. */
  readonly seconds?: number;
  readonly total?: number;
}

const APPLIANCE = 'librpma_apm_client';
const GENERAL_PURPOSE = 'librpma_gpspm_client';
/** They say where and by what, which is the command's own business, or change nothing here. */
const IGNORED = new Set([
  'serverip',
  'port',
  'thread',
  'create_serialize',
  'direct',
  'filename',
  'group_reporting',
  'disable_clat',
  'lat_percentiles',
  'percentile_list',
  'cpus_allowed',
  'cpus_allowed_policy',
  'numa_mem_policy',
  'ramp_time',
  'rwmixread',
  'description',
]);

const ONE_OR_NONE = [
  'numjobs',
  'sync',
  'iodepth_batch_submit',
  'direct_write_to_pmem',
  'busy_wait_polling',
];

/** Throws MisuseError, which names the line. */
export function parseFioJobs(text: string): BenchJob[] {
  const sections = new Map<string, Map<string, string>>();
  let section: Map<string, string> | undefined;
  text.split('\n').forEach((raw, index) => {
    const line = raw.replace(/[;#].*$/, '').trim();
    if (line === '') return;
    const head = /^\[(.+)\]$/.exec(line);
    if (head) {
      section = sections.get(head[1]!) ?? new Map<string, string>();
      sections.set(head[1]!, section);
      return;
    }
    const [name, value = '1'] = line.split(/\s*=\s*/, 2);
    if (!section) throw new MisuseError('jobs', `line ${index + 1} precedes the first [section]`);
    section.set(name!, value);
  });
  const global = sections.get('global') ?? new Map<string, string>();
  sections.delete('global');
  if (sections.size === 0)
    throw new MisuseError('jobs', `must have at least one job section, got ${sections.size}`);
  return [...sections].map(([name, own]) => jobOf(name, new Map([...global, ...own])));
}

function jobOf(name: string, options: ReadonlyMap<string, string>): BenchJob {
  const rest = new Map(options);
  const take = (key: string, preset: string): string => {
    const value = rest.get(key) ?? preset;
    rest.delete(key);
    return value;
  };
  const engine = take('ioengine', APPLIANCE);
  const byMessages = engine === GENERAL_PURPOSE;
  if (engine !== APPLIANCE && !byMessages)
    throw new MisuseError(
      'ioengine',
      `[${name}] must have ${APPLIANCE} or ${GENERAL_PURPOSE}, got ${engine}`,
    );
  const rw = take('rw', take('readwrite', 'write'));
  if (rw !== 'write' && rw !== 'randwrite') {
    throw new MisuseError('rw', `[${name}] has ${rw}; write and randwrite are compared`);
  }
  for (const key of ONE_OR_NONE) {
    const value = take(key, '1');
    if (value !== '1' && value !== '0') {
      const rule = 'one connection, writes one by one, and every one flushed';
      throw new MisuseError(key, `[${name}] has ${value}: ${rule}`);
    }
  }
  const isTimed = take('time_based', '0') !== '0';
  const seconds = sizeOf(name, 'runtime', take('runtime', '2').replace(/s$/, ''));
  const bytes = sizeOf(name, 'bs', take('bs', take('blocksize', '4k')));
  const depth = sizeOf(name, 'iodepth', take('iodepth', '1'));
  const total = sizeOf(name, 'size', take('size', '16m'));
  const [unknown] = [...rest.keys()].filter((key) => !IGNORED.has(key));
  if (unknown !== undefined) throw new MisuseError(unknown, `[${name}]: no such option here`);
  const until = isTimed ? { seconds } : { total };
  const method = byMessages ? { byMessages } : {};
  return { name, isRandom: rw === 'randwrite', bytes, depth, ...method, ...until };
}

/** `4k`, `1m`, `2g`: powers of 1024. */
function sizeOf(job: string, key: string, text: string): number {
  const [, digits, unit = ''] = /^(\d+)([kmg]?)i?b?$/i.exec(text) ?? [];
  const value = Number(digits) * 1024 ** ['', 'k', 'm', 'g'].indexOf(unit.toLowerCase());
  if (!(value >= 1 && value <= 2 ** 40)) throw new MisuseError(key, `[${job}] has ${text}`);
  return value;
}
