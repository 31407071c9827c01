/** The programs of others that the groups ask, and how they are run. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Tool } from './tool.js';

export interface Output {
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end. Throws when it cannot start, hangs, or ends with a code but 0. */
export function run(command: string, args: readonly string[], seconds = 120): Promise<Output> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const told = `${command} ${args.join(' ')}`;
    let [stdout, stderr, isLate] = ['', '', false];
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    const timer = setTimeout(() => {
      isLate = true;
      child.kill('SIGKILL');
    }, seconds * 1000);
    child.on('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      if (isLate) reject(new Error(`${told}: not done after ${seconds} s\n${stderr}`));
      else if (code === 0) resolve({ stdout, stderr });
      else reject(new Error(`${told}: ended with ${code ?? signal}\n${stderr.slice(-2000)}`));
    });
  });
}

/** A folder of its own, gone afterwards. */
export async function withFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-interop-'));
  try {
    return await use(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

export const tshark: Tool = {
  name: 'tshark',
  aptPackage: 'tshark',
  version: async () => (await run('tshark', ['--version'])).stdout.split('\n', 1)[0]!,
};

/** The system's Python: another one that comes first in PATH does not see what apt installs. */
export const PYTHON = '/usr/bin/python3';

export const scapy: Tool = {
  name: 'scapy',
  aptPackage: 'python3-scapy',
  version: async () => {
    const script = 'import scapy, scapy.contrib.roce; print(scapy.__version__)';
    return (await run(PYTHON, ['-c', script])).stdout.trim();
  },
};
