/** File descriptors of completion channels and event channels, watched by ppoll(2) of a process. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import {
  CmEventType,
  createEventChannel,
  Endpoint,
  LoopbackNetwork,
  openDevice,
  rpma,
  WcStatus,
} from '../../../../host/index.js';
import { loadPosix } from '../../../../host/link/posix.js';
import { makePair } from '../../../support/pair.js';
import { root } from '../../../support/paths.js';
import { expectRejected } from '../../../support/refusal.js';
import { WITHOUT_KOFFI } from '../../../support/without-koffi.js';

const POLLER = fileURLToPath(new URL('build/test/support/fd-poller.js', root));
const test = suite('verbs/queues/event-descriptor');
const { posix } = await loadPosix();
const children: ChildProcess[] = [];

test.after.each(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

/** Another process watches the descriptor; each call resolves to the next change that it sees. */
function watch(fd: number): () => Promise<string> {
  const child = spawn(process.execPath, [POLLER], { stdio: ['ignore', 'pipe', 'inherit', fd] });
  children.push(child);
  const lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]();
  return async () => String((await lines.next()).value);
}

if (posix) {
  test('the descriptor of a completion channel is readable while an event is queued', async () => {
    const { a, b } = await makePair();
    const channel = a.context.createCompChannel();
    const cq = a.context.createCq(8, channel);
    const fd = await channel.getFd();
    assert.is(await channel.getFd(), fd, 'there is one descriptor');
    const next = watch(fd);
    assert.is(await next(), 'quiet');
    for (const _ of [1, 2]) {
      cq.reqNotify();
      cq.event();
      assert.is(await next(), 'readable');
      assert.is(await channel.getCqEvent(), cq);
      assert.is(await next(), 'quiet');
    }
    cq.destroy();
    channel.destroy();
    // The process that inherited it learns of the end.
    assert.is(await next(), 'readable');
    await assertRejects(channel.getFd(), /getFd: needs a channel that is open/);
    await b.context.close();
    await a.context.close();
  });

  test('the descriptor of an event channel is readable while an event is queued', async () => {
    const context = await openDevice({ address: '127.0.0.1', port: 0 });
    const channel = createEventChannel(context);
    const id = channel.createId();
    id.bindAddr({ port: 0 });
    const next = watch(await channel.getFd());
    assert.is(await next(), 'quiet');
    id.writeCmEvent(CmEventType.USER, 0, 7n);
    assert.is(await next(), 'readable');
    assert.is((await channel.getEvent())?.arg, 7n);
    assert.is(await next(), 'quiet');
    await context.close();
    assert.is(await next(), 'readable');
    await assertRejects(channel.getFd(), /getFd: needs a channel that is open/);
  });

  test('an event loop of librpma’s descriptors sees the request, the connection and a message', async () => {
    const network = new LoopbackNetwork();
    const open = (address: string) =>
      openDevice({ link: network.link(Endpoint.parse(address, 4791)) });
    const [here, there] = [await open('10.88.0.2'), await open('10.88.0.3')];
    const [server, client] = [rpma.peerNew(here), rpma.peerNew(there)];
    const ep = await server.epListen('10.88.0.2', 7471);
    const requests = watch(await ep.getFd());
    assert.is(await requests(), 'quiet');
    const conn = (await client.connReqNew('10.88.0.2', 7471)).connect();
    const events = watch(await conn.getEventFd());
    assert.is(await requests(), 'readable');
    const request = await ep.nextConnReq();
    assert.is(await requests(), 'quiet');
    const room = server.mrReg(here.alloc(64), rpma.MrUsage.RECV);
    request.recv(room, 0, 64);
    const accepted = request.connect();
    for (let seen = ''; seen !== 'readable';) seen = await events();
    assert.is(await conn.nextEvent(), rpma.ConnEvent.ESTABLISHED);
    const cq = accepted.getCq();
    const completions = watch(await cq.getFd());
    assert.is(await completions(), 'quiet');
    conn.send(null, 0, 0, rpma.Flag.COMPLETION_ON_ERROR);
    assert.is(await completions(), 'readable');
    await cq.wait();
    assert.is(await completions(), 'quiet');
    assert.is(cq.getWc()[0]!.status, WcStatus.SUCCESS);
    await assertRejects(accepted.getComplFd(), /getComplFd: each queue has its own/);
    await there.close();
    await here.close();
  });

  test('a channel that is closed while its descriptor opens leaves none open', async () => {
    const context = await openDevice({ address: '127.0.0.1', port: 0 });
    const channel = context.createCompChannel();
    const opening = [channel.getFd(), channel.getFd()];
    channel.destroy();
    for (const one of opening) await assertRejects(one, /needs a channel that is open/);
    await context.close();
  });
} else {
  test('without system calls the refusal names what is missing', async () => {
    const context = await openDevice({ address: '127.0.0.1', port: 0 });
    const channel = context.createCompChannel();
    await expectRejected(channel.getFd(), 'EOPNOTSUPP', /koffi or node:ffi/);
    await context.close();
  });
}

test('without koffi and node:ffi a descriptor is refused, and the remedy is named', async () => {
  const index = new URL('build/host/index.js', root).href;
  const program = `
    const { createLoopbackPair, openDevice } = await import('${index}');
    const context = await openDevice({ link: createLoopbackPair().a });
    const error = await context.createCompChannel().getFd().catch((reason) => reason);
    console.log(error.code, error.message);
    await context.close();`;
  const args = [...WITHOUT_KOFFI, '--input-type=module', '--eval', program];
  const { stdout } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  assert.match(stdout, /^EOPNOTSUPP getFd: .*koffi or node:ffi.*await the events instead/);
});

async function assertRejects(work: Promise<unknown>, text: RegExp): Promise<void> {
  const error = await work.then(
    () => new Error('it resolved'),
    (reason: unknown) => reason as Error,
  );
  assert.match(error.message, text);
}

test.run();
