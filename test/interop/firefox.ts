/** The browser tests in Firefox, beside Chromium in which `npm test` runs them. */
import { fileURLToPath } from 'node:url';
import { missingFirefox } from '../support/firefox.js';
import { judge } from '../support/judge.js';
import { root } from '../support/paths.js';
import { runToEnd } from '../support/run-to-end.js';
import type { Group } from './group.js';
import type { Tool } from './tool.js';
import { run } from './tools.js';

/** Those that use nothing of playwright alone: data channels, Workers, shared memory, reloads. */
const SUITES = ['tabs', 'node', 'hostile'];
const SUITE_SECONDS_MAX = 300;

const firefox: Tool = {
  name: 'firefox-esr',
  aptPackage: 'firefox-esr',
  version: async () => {
    const missing = missingFirefox();
    if (missing !== undefined) throw new Error(missing);
    return (await run(process.env['FIREFOX'] ?? 'firefox-esr', ['--version'])).stdout.trim();
  },
};

export const firefoxGroup: Group = {
  name: 'firefox',
  tools: [firefox],
  async run(report) {
    for (const name of SUITES) {
      await report.check(`browser/${name} passes in Firefox`, async () => {
        const path = fileURLToPath(new URL(`build/test/browser/${name}.test.js`, root));
        const env = { ...process.env, VERBENA_BROWSER: 'firefox', REQUIRE_BROWSER: '1' };
        const ran = await runToEnd([path], SUITE_SECONDS_MAX, { env });
        const { failed, complaint, output } = judge(name, ran, SUITE_SECONDS_MAX);
        if (failed > 0) throw new Error(`${complaint ?? `${failed} failed`}\n${output}`);
      });
    }
  },
};
