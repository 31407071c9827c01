/** Attacks by what networks do: ICMP, congestion marks. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import * as assert from 'uvu/assert';
import type { Attack } from './attack.js';

const LIMIT_MILLIS = 60_000;

/** Runs a program of this folder in a new network namespace; what it prints as JSON. */
async function inNamespace(file: string): Promise<Record<string, unknown>> {
  const asRoot = process.getuid?.() === 0 ? [] : ['--map-root-user'];
  const program = fileURLToPath(new URL(file, import.meta.url));
  const child = spawn('unshare', ['--net', ...asRoot, process.execPath, program], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const timer = setTimeout(() => child.kill('SIGKILL'), LIMIT_MILLIS);
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(timer);
  assert.is(code, 0, stderr);
  return JSON.parse(stdout) as Record<string, unknown>;
}

export const NETWORK_ATTACKS: readonly Attack[] = [
  {
    name: 'forged ICMP messages that name a path MTU of 552 bytes end no connection',
    position: 'forged source',
    async run() {
      const { before, after, isBelieved, forged } = await inNamespace('./path-mtu.js');
      assert.is(before, 'SUCCESS');
      assert.is(isBelieved, true, 'the kernel has learned 552 bytes');
      assert.is(after, 'SUCCESS', 'a WRITE after the forged messages');
      return forged as number;
    },
  },
];
