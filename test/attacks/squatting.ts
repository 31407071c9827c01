/** Attacks of another user of the machine on names in /dev/shm. */
import { spawnSync } from 'node:child_process';
import { readdirSync, rmSync, rmdirSync } from 'node:fs';
import * as assert from 'uvu/assert';
import { freshName, Member } from '../support/member.js';
import type { Attack } from './attack.js';

const OTHER_UID = 65534;

/** Creates these files and directories as another user. */
function squat(files: readonly string[], directories: readonly string[]): void {
  if (process.geteuid!() !== 0) throw new Error('this attack needs another user: run it as root');
  const text = `
    const { mkdirSync, writeFileSync } = require('node:fs');
    for (const path of ${JSON.stringify(files)}) writeFileSync(path, '', { mode: 0o600 });
    for (const path of ${JSON.stringify(directories)}) {
      try { mkdirSync(path, { mode: 0o777 }); } catch {}
    }`;
  const user = { uid: OTHER_UID, gid: OTHER_UID, cwd: '/' };
  const { status, stderr } = spawnSync(process.execPath, ['-e', text], user);
  assert.is(status, 0, String(stderr));
}

/** Removes what is left of the attack: its directory, and ours if no other process is in it. */
function tidy(): void {
  const base = `verbena-${process.geteuid!()}`;
  for (const name of readdirSync('/dev/shm').filter((each) => each.startsWith(base))) {
    try {
      rmdirSync(`/dev/shm/${name}`);
    } catch {
      // It is in use.
    }
  }
}

export const SQUATTING_ATTACKS: readonly Attack[] = [
  {
    name: 'the name of a device that another user created first keeps no process from it',
    position: 'local user',
    unit: 'names',
    async run() {
      const [name, other] = [freshName(), freshName()];
      const files = [name, other].map((each) => `/dev/shm/verbena-${each}`);
      squat(files, [`/dev/shm/verbena-${process.geteuid!()}`]);
      const members: Member[] = [];
      try {
        for (const each of [name, name, other]) {
          const address = each === name ? '127.1.21.1' : '127.1.21.2';
          members.push(await Member.open({ name: each, address }));
        }
        // Processes of the same user find each other: one address, one arena.
        const slots = await Promise.all(
          members.map((member) => member.run(({ context }) => `${context.local}`)),
        );
        assert.is(slots[0], slots[1]);
      } finally {
        for (const member of members) {
          member.kill();
          await member.ended;
        }
        for (const path of files) rmSync(path, { force: true });
        tidy();
      }
      return files.length + 1;
    },
  },
];
