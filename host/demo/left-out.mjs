/** Plugin of esbuild: replaces code that the page does not call by a function that throws. */
import { existsSync, readFileSync } from 'node:fs';

const FILES = [
  'cm/adoption',
  'verbs/domains/import',
  'verbs/domains/parent-domain',
  'verbs/domains/roots',
  'verbs/domains/thread-domain',
  'verbs/queries/query-device',
  'verbs/queries/query-tables',
  'verbs/queues/completion-channel',
  'verbs/queues/completion-counter',
  'verbs/queues/completion-queue-ex',
  'verbs/queues/packet-keys',
  'verbs/queues/path-state',
  'verbs/queues/queue-pair-ex',
  'verbs/queues/shared-receive-queue',
  'verbs/regions/advise',
  'verbs/regions/device-memory',
  'verbs/regions/dma-handle.browser',
  'verbs/regions/imported-memory-region',
  'verbs/regions/memory-window',
  'verbs/regions/null-memory-region',
  'verbs/regions/registrable-buffer',
];

/** Checks of arguments, by file: the page has no others than the compiler has checked. */
const CHECKS = {
  'base/timer': ['checkMillis'],
  'base/wait-limits': ['checkLimits', 'checkWait'],
  'cm/address-info.browser': ['checkAddress'],
  'cm/agreement': ['checkOptions', 'checkKeepAlive', 'checkConnParam'],
  'device/device': ['checkLimits'],
  'link/channel/data-channel': ['checkPolicy', 'checkRelay'],
  'mesh/frames/frame-channel': ['checkContext'],
  'pool/params': ['checkPositive'],
  'verbs/context': ['checkContext'],
  'verbs/queues/address-handle': ['checkIcrc'],
  'verbs/queues/queue-pair-attributes': ['checkInit', 'checkNumbers'],
  'verbs/refuse': ['checkMulticast'],
  'verbs/queues/work-request': ['refuseSges', 'checkWords', 'checkOperands', 'checkFlush'],
};

/** Is it a file of no bundle of the page? */
export const isLeftOut = (file) => FILES.some((name) => file === `host/${name}.ts`);

/**
 * The page makes the connections of the Worker, as Workers have no RTCPeerConnection. The part that
 * makes them stays in the page's file.
 */
export const lentConnections = {
  name: 'lent-connections',
  setup({ onLoad }) {
    onLoad({ filter: /\/link\/rtc\/default\.browser\.ts$/ }, () => ({
      contents: `import { WorkerConnector } from './worker.js';
        export const defaultConnector = (options) => new WorkerConnector(options);`,
      resolveDir: 'host/link/rtc',
    }));
  },
};

/** Their results are for texts of errors alone. */
const TEXTS = new Set(['shown', 'mustBe', 'authReason']);

export const leftOut = {
  name: 'left-out',
  setup({ onResolve, onLoad }) {
    const missing = FILES.filter((file) => !existsSync(`host/${file}.ts`));
    if (missing.length > 0) throw new Error(`left-out.mjs: no such file: ${missing.join(', ')}`);
    const filter = new RegExp(`/host/(${FILES.join('|')})\\.ts$`);
    // The compiler has checked all arguments of the page, whose listeners have no `auth`: esbuild
    // drops calls of empty functions.
    const emptied = /\/host\/(base\/options|cm\/auth-reasons(\.browser)?|errors\/check-\w+)\.ts$/;
    onLoad({ filter: emptied }, ({ path }) => {
      const heads = /^export function (\w+)[^]*?\): (.*) \{$/gm;
      const found = [...readFileSync(path, 'utf8').matchAll(heads)];
      const needed = found.find(([, name, type]) => type !== 'void' && !TEXTS.has(name));
      if (needed)
        throw new Error(`left-out.mjs: callers need what ${needed[1]} of ${path} returns`);
      const contents = found.map(([, name]) => `export function ${name}() {}`).join('\n');
      return { contents, loader: 'js' };
    });
    const checked = new RegExp(`/host/(${Object.keys(CHECKS).join('|')})\\.ts$`);
    onLoad({ filter: checked }, ({ path }) => {
      let contents = readFileSync(path, 'utf8');
      for (const name of CHECKS[checked.exec(path)[1]]) {
        const head = `^((?:export )?function ${name})`;
        const whole = new RegExp(`${head}\\([^]*?\\): void \\{\n[^]*?^\\}`, 'm');
        if (!whole.test(contents)) throw new Error(`left-out.mjs: no ${name} in ${path}`);
        contents = contents.replace(whole, '$1() {}');
      }
      return { contents, loader: 'ts' };
    });
    onResolve({ filter: /^absent$/ }, ({ path }) => ({ path, namespace: 'left-out' }));
    onLoad({ filter: /./, namespace: 'left-out' }, () => ({
      contents: `export function absent() { throw new Error('left out of this page') }`,
    }));
    onLoad({ filter }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const names = [...text.matchAll(/^export (?:class|(?:async )?function) (\w+)/gm)].map(
        ([, name]) => name,
      );
      // One function that throws stands for all, also for classes, which are called with `new`.
      const stubs = names.map((name) => `absent as ${name}`).join(', ');
      return { contents: `export { ${stubs} } from 'absent'`, loader: 'js' };
    });
  },
};
