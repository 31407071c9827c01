/** A minute of `npm run soak`: the books are right, and memory is flat, on this machine as well. */
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { Workspace } from '../support/processes.js';
import type { Group } from './group.js';

const WORDS = ['--minutes', '1', '--seed', '1'];

export const soakGroup: Group = {
  name: 'soak',
  tools: [],
  async run(report) {
    await report.check('a minute of kills, stops and losses: nothing lost, memory flat', () =>
      Workspace.use(async (workspace) => {
        const file = fileURLToPath(new URL('build/test/soak/main.js', root));
        const soak = workspace.startProcess(process.execPath, [file, ...WORDS]);
        const { code, stdout, stderr } = await soak.ended;
        if (code !== 0) throw new Error(`ended with ${code}\n${stderr}${stdout}`);
        for (const line of stdout.split('\n')) if (line.startsWith('ok')) report.note(line);
      }),
    );
  },
};
