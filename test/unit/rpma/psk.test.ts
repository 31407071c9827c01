/** rpma with authenticated connections, over UDP sockets. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  RefusalError,
  WcStatus,
  rpma,
  type AuthOptions,
  type Context,
} from '../../../host/index.js';
import { checkDenied, checkNoTags, checkTags, openTapped } from '../../support/tags.js';

const [SERVER, CLIENT, PORT] = ['127.0.116.3', '127.0.116.4', 7000];
const PSK = new Uint8Array(32).fill(7);
const OTHER = new Uint8Array(32).fill(8);
const SECRET = 'a secret record for tests of encryption';
const { WRITE_DST, WRITE_SRC, FLUSH_TYPE_VISIBILITY } = rpma.MrUsage;

interface World {
  readonly there: Context;
  readonly ep: rpma.Ep;
  readonly sent: readonly (readonly Uint8Array[])[];
  /** Connects; rejects with why not. */
  connect(auth?: AuthOptions): Promise<rpma.Conn>;
  /** Memory of the server that clients may write to. */
  readonly memory: Uint8Array;
  /** Writes the secret there and flushes. */
  write(conn: rpma.Conn): Promise<void>;
}

async function inWorld(
  auth: AuthOptions | undefined,
  work: (world: World) => Promise<void>,
): Promise<void> {
  const { context: there, sent: thereSent } = await openTapped(SERVER);
  const { context: here, sent: hereSent } = await openTapped(CLIENT);
  try {
    const [server, peer] = [rpma.peerNew(there), rpma.peerNew(here)];
    const memory = there.alloc(4096);
    const mr = server.mrReg(memory, WRITE_DST | FLUSH_TYPE_VISIBILITY);
    const ep = await server.epListen(SERVER, PORT, auth && { auth });
    void (async () => {
      for await (const request of ep) void request.connect(mr.getDescriptor());
    })();
    const bytes = here.alloc(4096);
    bytes.set(new TextEncoder().encode(SECRET));
    const src = peer.mrReg(bytes, WRITE_SRC);
    await work({
      there,
      ep,
      memory,
      sent: [hereSent, thereSent],
      async connect(own) {
        const cfg = rpma.connCfgNew();
        cfg.setAuth(own);
        assert.equal(cfg.getAuth(), own);
        const conn = (await peer.connReqNew(SERVER, PORT, cfg, there.local.port)).connect();
        if ((await conn.nextEvent()) === rpma.ConnEvent.ESTABLISHED) return conn;
        throw conn.getRefusal()!;
      },
      async write(conn) {
        const remote = rpma.mrRemoteFromDescriptor(conn.getPrivateData());
        conn.write(remote, 0, src, 0, 4096, rpma.Flag.COMPLETION_ON_ERROR);
        const { VISIBILITY } = rpma.FlushType;
        conn.flush(remote, 0, 4096, VISIBILITY, rpma.Flag.COMPLETION_ALWAYS);
        assert.is((await conn.getCq().next()).status, WcStatus.SUCCESS);
      },
    });
  } finally {
    await here.close();
    await there.close();
  }
}

for (const encrypt of [false, true]) {
  test(`writes and flushes with the same key are ${encrypt ? 'encrypted' : 'tagged'}`, () =>
    inWorld({ psk: PSK }, async ({ connect, write, memory, sent }) => {
      const conn = await connect({ psk: PSK, encrypt });
      assert.is(conn.getRefusal(), undefined);
      await write(conn);
      assert.is(Buffer.from(memory.subarray(0, SECRET.length)).toString(), SECRET);
      checkTags(sent[1]!);
      const readable = sent.flat().filter((bytes) => Buffer.from(bytes).includes(SECRET));
      assert.is(readable.length > 0, !encrypt);
    }));
}

test('without the option no acknowledgement has a tag', () =>
  inWorld(undefined, async ({ connect, write, sent }) => {
    await write(await connect());
    checkNoTags(sent[1]!);
  }));

test('another key, or no key on one side, is refused with the remedy', async () => {
  await inWorld({ psk: PSK }, async ({ connect }) => {
    await checkDenied(connect(), /set auth: \{ psk \} to the key/);
    await checkDenied(connect({ psk: OTHER }), /use a key that the listener has/);
  });
  await inWorld(undefined, async ({ connect }) => {
    await checkDenied(connect({ psk: PSK }), /has no `auth`; give it the same/);
  });
});

test('keys are replaced without a pause', () =>
  inWorld({ psk: PSK }, async ({ ep, connect, write }) => {
    const old = await connect({ psk: PSK });
    ep.setAuth({ psk: [PSK, OTHER] });
    await write(await connect({ psk: OTHER }));
    await write(await connect({ psk: PSK }));
    ep.setAuth({ psk: OTHER });
    await checkDenied(connect({ psk: PSK }), /does not have the key/);
    await write(old);
  }));

test('an end point without a key takes no configuration with one', () =>
  inWorld(undefined, async ({ there, ep }) => {
    const cfg = rpma.connCfgNew();
    cfg.setAuth({ psk: PSK });
    const error = await ep.nextConnReq(cfg).catch((reason: unknown) => reason);
    assert.instance(error, MisuseError);
    assert.throws(
      () => ep.setAuth({ psk: PSK }),
      (reason: unknown) => reason instanceof MisuseError,
    );
    assert.throws(
      () => cfg.setAuth({ psk: new Uint8Array(15) }),
      (reason: unknown) => reason instanceof MisuseError,
    );
    const wrong = { auth: null } as unknown as rpma.EpOptions;
    const refused = await rpma
      .peerNew(there)
      .epListen(SERVER, PORT + 1, wrong)
      .catch((reason: unknown) => reason);
    assert.instance(refused, MisuseError);
  }));

test('a refusal for another reason than keys names that reason', () =>
  inWorld(undefined, async ({ ep, connect }) => {
    ep.shutdown();
    const error = await connect().catch((reason: unknown) => reason);
    assert.instance(error, RefusalError);
    assert.is((error as RefusalError).code, 'ECONNREFUSED');
  }));

test.run();
