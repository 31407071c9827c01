/**
 * The browser tests in Firefox, beside Chromium in which `npm test` runs them, and a tab of each
 * browser together.
 */
import { fileURLToPath } from 'node:url';
import { missingFirefox } from '../support/firefox.js';
import { judge, type Result } from '../support/judge.js';
import { root } from '../support/paths.js';
import { runToEnd } from '../support/run-to-end.js';
import { LONG } from '../support/sample.js';
import { checkPair } from './firefox-pair.js';
import type { Group } from './group.js';
import type { Tool } from './tool.js';
import { run } from './tools.js';

/**
 * Those that use nothing of playwright alone, as a long run has them. Not the race and the loss:
 * Firefox finds no way through the demo's relays, and both go on without one.
 */
const SUITES = ['tabs', 'node', 'hostile', 'mesh', 'transfer', 'demo', 'demo-acts'];
const SUITE_SECONDS_MAX = 300;
/** It takes 30 s, and is repeated when it stands still: see `repeatIfHung` of firefox-pair.ts. */
const TRANSFER_SECONDS_MAX = 90;
const ATTEMPTS = 3;

const chromium: Tool = {
  name: 'chromium',
  aptPackage: 'chromium',
  version: async () =>
    (await run(process.env['CHROMIUM'] ?? 'chromium', ['--version'])).stdout.trim(),
};

const firefox: Tool = {
  name: 'firefox-esr',
  aptPackage: 'firefox-esr',
  version: async () => {
    const missing = missingFirefox();
    if (missing !== undefined) throw new Error(missing);
    return (await run(process.env['FIREFOX'] ?? 'firefox-esr', ['--version'])).stdout.trim();
  },
};

async function runSuite(name: string): Promise<Result> {
  const path = fileURLToPath(new URL(`build/test/browser/${name}.test.js`, root));
  const browser = { VERBENA_BROWSER: 'firefox', REQUIRE_BROWSER: '1', [LONG]: '1' };
  const env = { ...process.env, ...browser };
  const isTransfer = name === 'transfer';
  const seconds = isTransfer ? TRANSFER_SECONDS_MAX : SUITE_SECONDS_MAX;
  for (let attempt = 1; ; attempt++) {
    const ran = await runToEnd([path], seconds, { env });
    if (ran.hung && isTransfer && attempt < ATTEMPTS) continue;
    return judge(name, ran, seconds);
  }
}

export const firefoxGroup: Group = {
  name: 'firefox',
  tools: [firefox, chromium],
  async run(report) {
    await checkPair(report);
    for (const name of SUITES) {
      await report.check(`browser/${name} passes in Firefox`, async () => {
        const { failed, complaint, output } = await runSuite(name);
        if (failed > 0) throw new Error(`${complaint ?? `${failed} failed`}\n${output}`);
      });
    }
  },
};
