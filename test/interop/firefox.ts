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

/** As a long run has them, without the cases that use DevTools of Chromium. */
const SUITES = [
  'tabs',
  'node',
  'hostile',
  'mesh',
  'transfer',
  'demo',
  'demo-acts',
  'demo-race',
  'demo-plug',
  'demo-loss',
  'demo-peers',
];
const SUITE_SECONDS_MAX = 300;

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
  return judge(name, await runToEnd([path], SUITE_SECONDS_MAX, { env }), SUITE_SECONDS_MAX);
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
