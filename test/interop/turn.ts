/**
 * TURN: peers that reach each other by a relay alone (coturn), which refuses wrong credentials,
 * dies and returns. It is a process of this group, at an address of the loopback interface.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import type * as Library from '../../host/browser/mesh.js';
import {
  DataChannelLink,
  connect,
  openDevice,
  share,
  type IceServer,
  type LinkError,
} from '../../host/index.js';
import { createSignallingServer, joinMesh, type MeshError } from '../../host/mesh/index.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { Browser, Site, type Tab } from '../support/browser.js';
import { eventually } from '../support/receiver.js';
import type { Report, Group } from './group.js';
import type { Tool } from './tool.js';
import { run, withFolder } from './tools.js';

const ADDRESS = '127.0.4.91';
const PORT = 34_789;
const MESH_PAGE = '/test/browser/pages/tab.html?mesh';
const BYTES = 65_536;
const START_MILLIS = 10_000;
const LOGIN = { username: 'tab', credential: 'of the test' };

const turnserver: Tool = {
  name: 'turnserver',
  aptPackage: 'coturn',
  version: async () =>
    (await run('turnserver', ['--version'])).stdout.trim().split('\n').at(-1) ?? '',
};

const serverFor = (credential: string): readonly IceServer[] => [
  { urls: `turn:${ADDRESS}:${PORT}`, ...LOGIN, credential },
];
const relayed = (credential = LOGIN.credential) =>
  ({ iceServers: serverFor(credential), iceTransportPolicy: 'relay' }) as const;

/** A STUN binding request (RFC 8489 5): its answer says that the server is there. */
async function isThere(): Promise<boolean> {
  const request = Buffer.alloc(20);
  request.writeUInt16BE(1, 0);
  request.writeUInt32BE(0x2112a442, 4);
  const socket = createSocket('udp4');
  socket.on('error', () => undefined);
  try {
    socket.send(request, PORT, ADDRESS);
    await once(socket, 'message', { signal: AbortSignal.timeout(200) });
    return true;
  } catch {
    return false;
  } finally {
    socket.close();
  }
}

/** The relay: a process that `kill` ends at once, with all that it relays. */
class Relay {
  #child: ChildProcess | undefined;
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async start(): Promise<void> {
    const words = [
      `--listening-ip=${ADDRESS} --relay-ip=${ADDRESS} --listening-port=${PORT}`,
      '--min-port=49160 --max-port=49300 --lt-cred-mech --realm=verbena.test --fingerprint',
      '--allow-loopback-peers --no-cli --no-tls --no-dtls --no-tcp --log-file=stdout',
    ];
    const files = [`--pidfile=${join(this.#folder, 'pid')}`, `--db=${join(this.#folder, 'db')}`];
    const login = `--user=${LOGIN.username}:${LOGIN.credential}`;
    const args = [...words.join(' ').split(' '), ...files, login, '-n'];
    const child = spawn('turnserver', args, { stdio: 'ignore' });
    this.#child = child;
    const end = performance.now() + START_MILLIS;
    while (!(await isThere())) {
      if (child.exitCode !== null) throw new Error(`turnserver ended with ${child.exitCode}`);
      if (performance.now() > end) throw new Error(`turnserver: no answer at ${ADDRESS}:${PORT}`);
      await pause(50);
    }
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
}

function candidatesIn(sdp: string): string[] {
  return [...sdp.matchAll(/^a=candidate:.* typ (\w+)/gm)].map(([, type]) => type!);
}

async function rdmaOfNodes(): Promise<void> {
  const links = [new DataChannelLink(relayed()), new DataChannelLink(relayed())] as const;
  const contexts = [
    await openDevice({ link: links[0] }),
    await openDevice({ link: links[1] }),
  ] as const;
  try {
    const types: string[] = [];
    const peer = await links[0].connect({
      name: 'the other link',
      exchange: async (offer) => {
        const answer = await links[1].answer(offer);
        types.push(...candidatesIn(offer.sdp), ...candidatesIn(answer.sdp));
        return answer;
      },
    });
    assert.equal(types, ['relay', 'relay']);
    const shared = { context: contexts[1] };
    const server = await share(`rdma://[${peer.gid}]:7471`, { table: BYTES }, shared);
    const remote = await connect(server.url, { context: contexts[0] });
    const { table } = remote.memory as Record<string, (typeof remote.memory)[string]>;
    const bytes = Uint8Array.from({ length: BYTES }, (_, at) => at * 7 + (at >> 8));
    await table!.write(0, bytes);
    assert.equal(server.memory.table, bytes);
    assert.equal(await table!.read(0, BYTES), bytes);
    await remote.close();
    await server.close();
  } finally {
    for (const context of contexts) await context.close();
  }
}

async function refusedNodes(): Promise<void> {
  const [wrong, right] = [relayed('another one'), relayed()].map(
    (options) => new DataChannelLink(options),
  );
  const contexts = [await openDevice({ link: wrong! }), await openDevice({ link: right! })];
  const rule = /^iceServers: no TURN server relays; check its URL and credentials/;
  try {
    const to = (link: DataChannelLink) => ({ name: 'the other', exchange: link.answer });
    for (const [from, other] of [
      [wrong!, right!],
      [right!, wrong!],
    ] as const) {
      const error = await from.connect(to(other)).catch((reason: LinkError) => reason);
      assert.is((error as LinkError).code, 'ECONNREFUSED');
      assert.match((error as LinkError).message, rule);
    }
  } finally {
    for (const context of contexts) await context.close();
  }
}

interface MeshState {
  mesh: Library.Mesh<{ table: number }>;
  events: string[];
  connection: unknown;
}

async function joinTab(browser: Browser, site: Site, credential?: string): Promise<Tab> {
  const tab = await browser.open(site.url(MESH_PAGE));
  await tab.run(
    async (verbena, state: MeshState, [link, table]) => {
      const { joinMesh: join } = verbena as unknown as typeof Library;
      state.mesh = await join({ url: '/rooms', room: 'relayed', link, memory: { table } });
      state.events = [];
      void (async () => {
        for await (const { kind } of state.mesh.link.peerEvents()) state.events.push(kind);
      })();
    },
    [relayed(credential), BYTES] as const,
  );
  return tab;
}

/** WRITEs, READs back, and meets the others at a barrier. */
async function useTab(tab: Tab, salt: number): Promise<void> {
  const wrong = await tab.run(async (_verbena, { mesh }: MeshState, value: number) => {
    await mesh.waitForPeers(1, { timeout: 20_000 });
    const [peer] = mesh.peers.values();
    const { table } = peer!.memory;
    const bytes = Uint8Array.from({ length: 30_000 }, (_, at) => at * value);
    await table.write(value * 1000, bytes);
    const back = await table.read(value * 1000, bytes.length);
    await mesh.barrier();
    return bytes.filter((byte, at) => byte !== back[at]).length;
  }, salt);
  assert.is(wrong, 0);
}

const closeTab = async (tab: Tab): Promise<void> => {
  await tab.run((_verbena, { mesh }: MeshState) => mesh.close());
  await tab.page.close();
};

interface World {
  readonly relay: Relay;
  readonly site: Site;
  readonly browser: Browser;
}

async function tabAndNode({ site, browser }: World): Promise<void> {
  const url = site.url('/rooms').replace('http', 'ws');
  const tab = await joinTab(browser, site);
  const memory = { table: BYTES };
  const mesh = await joinMesh({ url, room: 'relayed', link: relayed(), memory });
  await mesh.waitForPeers(1, { timeout: 20_000 });
  await Promise.all([useTab(tab, 3), mesh.barrier()]);
  const [peer] = mesh.peers.values();
  await peer!.memory.table.write(0, Uint8Array.of(9, 8, 7));
  assert.equal([...(await peer!.memory.table.read(0, 3))], [9, 8, 7]);
  assert.is(mesh.self.memory.table[3001], 3);
  await mesh.close();
  assert.equal(tab.errors, []);
  await closeTab(tab);
}

async function refusedTab({ site, browser }: World): Promise<void> {
  const url = site.url('/rooms').replace('http', 'ws');
  const mesh = await joinMesh({ url, room: 'relayed', link: relayed() });
  const tab = await joinTab(browser, site, 'another one');
  const rule = /iceServers: no TURN server relays; check its URL and credentials/;
  const waiting = tab
    .run((_verbena, state: MeshState) => state.mesh.waitForPeers(1, { timeout: 6000 }))
    .then(
      () => 'joined',
      (error: Error) => error.message,
    );
  const error = await mesh.waitForPeers(1, { timeout: 6000 }).catch((e: MeshError) => e);
  assert.is((error as MeshError).code, 'ETIMEDOUT');
  assert.match((error as MeshError).message, rule);
  assert.match(await waiting, rule);
  await mesh.close();
  await closeTab(tab);
}

/** Queue pairs of tabs live on: the outage is shorter than `keepAliveMillis`. */
async function restartedTabs({ relay, site, browser }: World): Promise<void> {
  const tabs = [await joinTab(browser, site), await joinTab(browser, site)];
  await Promise.all(tabs.map((tab, index) => useTab(tab, index + 3)));
  const keep = (tab: Tab) =>
    tab.run((_verbena, state: MeshState) => {
      state.connection = [...state.mesh.peers.values()][0];
    });
  await Promise.all(tabs.map(keep));
  await relay.kill();
  await pause(1000);
  await relay.start();
  const eventsOf = (tab: Tab) => tab.run((_verbena, { events }: MeshState) => events);
  const isBack = async () => (await eventsOf(tabs[0]!)).includes('restored');
  for (let tries = 0; tries < 300 && !(await isBack()); tries++) await pause(100);
  for (const tab of tabs) {
    const events = await eventsOf(tab);
    assert.equal(events.slice(-2), ['interrupted', 'restored'], events.join());
  }
  await Promise.all(tabs.map((tab, index) => useTab(tab, index + 3)));
  const isSame = await tabs[0]!.run(
    (_verbena, { mesh, connection }: MeshState) => [...mesh.peers.values()][0] === connection,
  );
  assert.is(isSame, true, 'the same peer');
  for (const tab of tabs) await closeTab(tab);
}

/** Node has no ICE restart: the peer leaves after `keepAliveMillis`, and joins again. */
async function rejoinedNodes({ relay, site }: World): Promise<void> {
  const url = site.url('/rooms').replace('http', 'ws');
  const options = { url, room: 'nodes', link: relayed(), keepAliveMillis: 2000 };
  const a = await joinMesh({ ...options, memory: { table: BYTES } });
  const b = await joinMesh({ ...options, memory: { table: BYTES } });
  const events: string[] = [];
  void (async () => {
    for await (const { kind, reason } of a.events()) {
      events.push(reason ? `${kind} ${reason.code}` : kind);
    }
  })();
  await Promise.all([a, b].map((mesh) => mesh.waitForPeers(1, { timeout: 20_000 })));
  const killed = performance.now();
  await relay.kill();
  await eventually(() => a.peers.size === 0, 10_000);
  const millis = performance.now() - killed;
  assert.ok(millis < 4000, `noticed after ${millis} ms`);
  await relay.start();
  await Promise.all([a, b].map((mesh) => mesh.waitForPeers(1, { timeout: 90_000 })));
  const [peer] = a.peers.values();
  await peer!.memory.table!.write(0, Uint8Array.of(5));
  assert.is(b.self.memory.table[0], 5);
  assert.equal(events.slice(-2), ['leave ETIMEDOUT', 'join'], events.join());
  await a.close();
  await b.close();
}

async function runChecks(report: Report, world: World): Promise<void> {
  await report.check('two Node programs: WRITE and READ by relay candidates alone', rdmaOfNodes);
  await report.check('wrong credentials are refused at once, on either side', refusedNodes);
  await report.check('Chromium and Node: a mesh', () => tabAndNode(world));
  await report.check('wrong credentials in Chromium: the mesh names them', () => refusedTab(world));
  await report.check('the relay dies and comes back: two tabs restart ICE', () =>
    restartedTabs(world),
  );
  await report.check('the relay dies and comes back: two Node programs join again', () =>
    rejoinedNodes(world),
  );
}

export const turnGroup: Group = {
  name: 'turn',
  tools: [turnserver],
  async run(report) {
    await withFolder(async (folder) => {
      const relay = new Relay(folder);
      const site = await Site.open();
      const rooms = await createSignallingServer(site.server);
      const browser = await Browser.launch([], 'chromium');
      try {
        await relay.start();
        await runChecks(report, { relay, site, browser });
      } finally {
        await browser.close();
        await rooms.close();
        await site.close();
        await relay.kill();
        await releaseDataChannels();
      }
    });
  },
};
