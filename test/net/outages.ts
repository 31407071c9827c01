/** Services and a file while the network is down, and while a host changes its address. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Figures } from '../bench/harness.js';
import { cliPath, noise, type Program } from '../support/processes.js';
import { moduleOf } from './loads.js';
import { addressOf, type Link, type Network } from './network.js';
import type { Demand, Round, Scenario } from './scenario.js';
import { SERVICES, type ServiceResult } from './services.js';

const [CLIENT, SERVER] = [1, 2];
const BEFORE_SECONDS = 4;
/** Reconnects double their pauses. */
const AFTER_SECONDS = 16;
/** The rest of a file, at the slow rate. */
const PUT_SECONDS = 60;
/** Bytes that take longer than `BEFORE_SECONDS`. */
const FILE_SECONDS = 2 * BEFORE_SECONDS;
const PUT_UDP_PORT = 4794;

/** Starts the file's way; resolves to seconds, NaN when it does not arrive as it was. */
async function putDuring(
  network: Network,
  folder: string,
  link: Link,
): Promise<() => Promise<number>> {
  const received = join(folder, 'received');
  mkdirSync(received);
  const source = join(folder, 'file');
  const bytes = noise(Math.floor((link.rate * 1e6 * FILE_SECONDS) / 8));
  writeFileSync(source, bytes);
  const address = addressOf(SERVER);
  const place = ['--bind', address, '--port', `${PUT_UDP_PORT}`, '--no-token'];
  const server = network.start(SERVER, process.execPath, [
    ...[cliPath, 'serve', '--dir', received, ...place],
  ]);
  await server.printed('stdout', /\S/);
  const began = performance.now();
  const client = network.start(CLIENT, process.execPath, [
    ...[cliPath, 'put', source, `${address}:${PUT_UDP_PORT}`],
  ]);
  return async () => {
    await Promise.race([client.ended, sleep(PUT_SECONDS * 1000)]);
    const seconds = (performance.now() - began) / 1000;
    client.kill();
    const { code, stderr } = await client.ended;
    server.kill('SIGTERM');
    await server.ended;
    if (code !== 0) throw new Error(`put: ${stderr.trim().split('\n').at(-1)}`);
    const isSame = Buffer.compare(readFileSync(join(received, 'file')), bytes) === 0;
    if (!isSame) throw new Error('put: the file on the server differs');
    return seconds;
  };
}

/** All services at once, and a file, while `disturb` does something to the network. */
async function during(
  network: Network,
  link: Link,
  disturbSeconds: number,
  disturb: () => Promise<void>,
): Promise<Round> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-net-'));
  const figures: Figures = {};
  const errors: string[] = [];
  try {
    network.set(link);
    const program = moduleOf('services');
    const seconds = `${BEFORE_SECONDS + disturbSeconds + AFTER_SECONDS}`;
    const users: [string, Program][] = [];
    for (const kind of SERVICES) {
      const serve = [program, 'serve', kind, addressOf(SERVER)];
      const server = network.start(SERVER, process.execPath, serve);
      await server.printed('stdout', /listening/);
      const use = [program, 'use', kind, addressOf(SERVER), seconds];
      users.push([kind, network.start(CLIENT, process.execPath, use)]);
    }
    const putEnd = await putDuring(network, folder, link);
    await sleep(BEFORE_SECONDS * 1000);
    await disturb();
    for (const [kind, user] of users) {
      const { stdout, stderr } = await user.ended;
      if (!stdout.startsWith('{')) {
        errors.push(`${kind}: ${stderr.slice(-500)}`);
        continue;
      }
      const result = JSON.parse(stdout) as ServiceResult;
      figures[`${kind}_operations`] = result.operations;
      figures[`${kind}_last_operations`] = result.lastOperations;
      figures[`${kind}_wrong`] = result.wrong;
      figures[`${kind}_longest_gap_s`] = result.longestGapSeconds;
      errors.push(...result.errors.map((error) => `${kind}: ${error}`));
    }
    figures['put_arrived'] = 0;
    await putEnd().then(
      (time) => Object.assign(figures, { put_arrived: 1, put_s: time }),
      (error: Error) => errors.push(error.message),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
  return { figures, series: {}, errors };
}

const ARRIVES: Demand = { figure: 'put_arrived', atLeast: 1 };
const goesOn = (kind: string): readonly Demand[] => [
  { figure: `${kind}_last_operations`, atLeast: 1 },
  { figure: `${kind}_wrong`, atMost: 0 },
];

/** Nothing passes for a while; files and services go on afterwards. */
export function outage(name: string, link: Link, seconds: number): Scenario {
  return {
    name,
    link,
    hosts: 2,
    demands: [ARRIVES, ...SERVICES.flatMap(goesOn)],
    run: (network) =>
      during(network, link, seconds, async () => {
        network.cut(true);
        await sleep(seconds * 1000);
        network.cut(false);
      }),
  };
}

/** The client's interface gets another address, as a laptop does in another network. */
export function addressChange(name: string, link: Link): Scenario {
  return {
    name,
    link,
    hosts: 2,
    demands: [ARRIVES, ...SERVICES.flatMap(goesOn)],
    run: (network) => during(network, link, 0, async () => void network.changeAddress(CLIENT)),
  };
}
