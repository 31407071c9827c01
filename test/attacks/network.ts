/** Attacks by what networks do: ICMP, congestion marks. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import * as assert from 'uvu/assert';
import { Mtu } from '../../host/index.js';
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
  {
    name: 'a relay that drops long packets gets a smaller path MTU to one peer, by name',
    position: 'on path',
    async run() {
      const { outcomes, beside, dropped } = (await inNamespace('./long-packets.js')) as {
        outcomes: { mtu: number; status: string; why: string }[];
        beside: { mtu: number; status: string };
        dropped: number;
      };
      // A connection of a path MTU that is dropped ends, and the next one has a smaller one.
      const { MTU_4096, MTU_1024, MTU_512 } = Mtu;
      const found = outcomes.map(({ mtu, status }) => [mtu, status]);
      const ended = [MTU_4096, MTU_1024].map((mtu) => [mtu, 'RETRY_EXC_ERR']);
      const whole = [MTU_1024, MTU_512].map((mtu) => [mtu, 'SUCCESS']);
      assert.equal(found, [ended[0], whole[0], ended[1], whole[1]]);
      assert.match(outcomes[0]!.why, /path MTU 4096/);
      assert.match(outcomes[2]!.why, /path MTU 1024/);
      assert.equal([beside.mtu, beside.status], [MTU_4096, 'SUCCESS'], 'another peer');
      return dropped;
    },
  },
];
