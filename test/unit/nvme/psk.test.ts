/** Authenticated connections between our NVMe host and our target, over UDP sockets. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  NvmeRamStore,
  NvmeTarget,
  connectNvme,
  discoverNvme,
  makeDhchapSecret,
  type AuthOptions,
  type ConnectNvmeOptions,
  type NvmeTargetOptions,
} from '../../../host/index.js';
import { checkDenied, checkNoTags, checkTags, openTapped } from '../../support/tags.js';

const NQN = 'nqn.2026-01.test:psk';
const HOST_NQN = 'nqn.2026-01.dev.verbena:host';
const [TARGET, HOST] = ['127.0.116.1', '127.0.116.2'];
const PSK = new Uint8Array(32).fill(7);
const OTHER = new Uint8Array(32).fill(8);
const SECRET = 'a secret block for tests of encryption';

interface World {
  readonly target: NvmeTarget;
  readonly hostSent: readonly Uint8Array[];
  readonly targetSent: readonly Uint8Array[];
  readonly options: ConnectNvmeOptions;
}

async function inWorld(
  auth: AuthOptions | undefined,
  work: (world: World) => Promise<void>,
  more: Partial<NvmeTargetOptions> = {},
): Promise<void> {
  const there = await openTapped(TARGET);
  const here = await openTapped(HOST, { memoryBytes: 2 ** 28 });
  const udpPort = there.context.local.port;
  let target: NvmeTarget | undefined;
  try {
    target = await NvmeTarget.open(there.context, {
      store: new NvmeRamStore(there.context, 2 ** 20),
      nqn: NQN,
      ...(auth && { auth }),
      ...more,
    });
    const options = { nqn: NQN, context: here.context, udpPort };
    await work({ target, hostSent: here.sent, targetSent: there.sent, options });
  } finally {
    await target?.close();
    await here.context.close();
    await there.context.close();
  }
}

/** Writes a block and reads it. */
async function works(options: ConnectNvmeOptions): Promise<void> {
  const volume = await connectNvme(TARGET, options);
  const memory = options.context!.alloc(8192);
  const text = new TextEncoder().encode(SECRET);
  memory.set(text);
  await volume.write(0, memory);
  memory.fill(0);
  await volume.read(0, memory);
  assert.equal(memory.slice(0, text.length), text);
  await volume.close();
  options.context!.free(memory);
}

for (const encrypt of [false, true]) {
  const how = encrypt ? 'encrypted' : 'tagged';
  test(`commands, data and discovery with the same key are ${how}`, () =>
    inWorld({ psk: PSK, encrypt }, async ({ options, hostSent, targetSent }) => {
      const auth = { psk: PSK };
      await works({ ...options, auth });
      const { context, udpPort } = options;
      const found = await discoverNvme(TARGET, { context: context!, udpPort: udpPort!, auth });
      assert.equal(
        found.map(({ nqn }) => nqn),
        [NQN],
      );
      checkTags(hostSent, targetSent);
      const readable = [...hostSent, ...targetSent].filter((bytes) =>
        Buffer.from(bytes).includes(SECRET),
      );
      assert.is(readable.length > 0, !encrypt);
    }));
}

test('without the option no acknowledgement has a tag', () =>
  inWorld(undefined, async ({ options, hostSent, targetSent }) => {
    await works(options);
    checkNoTags(hostSent, targetSent);
  }));

test('another key, or no key on one side, is refused with the remedy', async () => {
  await inWorld({ psk: PSK }, async ({ target, options }) => {
    await checkDenied(connectNvme(TARGET, options), /set auth: \{ psk \} to the key/);
    await checkDenied(
      connectNvme(TARGET, { ...options, auth: { psk: OTHER } }),
      /use a key that the listener has/,
    );
    await checkDenied(
      discoverNvme(TARGET, { context: options.context!, udpPort: options.udpPort! }),
      /requires authentication/,
    );
    assert.is(target.stats.queues, 0);
  });
  await inWorld(undefined, async ({ target, options }) => {
    const denied = connectNvme(TARGET, { ...options, auth: { psk: PSK } });
    await checkDenied(denied, /has no `auth`; give it the same/);
    assert.is(target.stats.queues, 0);
  });
});

test('a key goes along with DH-HMAC-CHAP; a list of keys is a rotation', async () => {
  const secret = makeDhchapSecret();
  await inWorld(
    { psk: [OTHER, PSK] },
    async ({ target, options, hostSent, targetSent }) => {
      const dhchap = { secret };
      await works({ ...options, dhchap, auth: { psk: PSK } });
      await works({ ...options, dhchap, auth: { psk: [OTHER, PSK] } });
      assert.is(target.stats.authenticated, 4);
      checkTags(hostSent, targetSent);
    },
    { dhchap: { hosts: { [HOST_NQN]: { secret } } } },
  );
});

test('a volume that reconnects is authenticated again', () =>
  inWorld({ psk: PSK }, async ({ target, options, hostSent, targetSent }) => {
    const again = { ctrlLossMillis: 20_000, reconnectDelayMillis: 10 };
    const volume = await connectNvme(TARGET, { ...options, ...again, auth: { psk: PSK } });
    target.disconnectAll('for the test');
    const memory = options.context!.alloc(4096);
    await volume.read(0, memory);
    assert.is(volume.stats.reconnects, 1);
    await volume.close();
    checkTags(hostSent, targetSent);
  }));

test('an invalid key is misuse on both sides', async () => {
  for (const auth of [null, {}, { psk: new Uint8Array(15) }, { psk: [] }]) {
    const wrong = auth as unknown as AuthOptions;
    const isMisuse = (error: unknown): boolean => error instanceof MisuseError;
    const opened = inWorld(undefined, async () => {}, { auth: wrong });
    assert.ok(isMisuse(await opened.catch((error: unknown) => error)), String(auth));
    const connected = connectNvme(TARGET, { nqn: NQN, auth: wrong });
    assert.ok(isMisuse(await connected.catch((error: unknown) => error)), String(auth));
  }
});

test.run();
