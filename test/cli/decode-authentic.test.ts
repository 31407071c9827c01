/** `verbena decode` of a capture of authenticated connections. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  SendFlag,
  UdpLink,
  WcStatus,
  WrOpcode,
  connect,
  listen,
  openDevice,
  pcapFile,
  pcapLink,
} from '../../host/index.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/decode-authentic');
const [HERE, THERE] = ['127.0.23.81', '127.0.23.82'];

/** A WRITE of 600 bytes, and one after the sender has gone on to its next key. */
async function capture(file: string, encrypt: boolean): Promise<void> {
  const auth = { psk: new Uint8Array(32).fill(9), encrypt };
  await using there = await openDevice({ address: THERE, memoryBytes: 16 * 2 ** 20 });
  const sink = pcapFile(file);
  const link = pcapLink(new UdpLink({ address: HERE }), sink);
  const here = await openDevice({ link, memoryBytes: 16 * 2 ** 20 });
  const listener = await listen(`${THERE}:0`, { context: there, auth });
  const accepted = listener.getRequest().then((request) => request!.accept());
  const ours = await connect({ address: THERE, port: listener.port }, { context: here, auth });
  const theirs = await accepted;
  const target = theirs.pd.regMr(
    there.alloc(600),
    AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE,
  );
  const source = ours.pd.regMr(here.alloc(600), AccessFlag.LOCAL_WRITE);
  for (const rotates of [false, true]) {
    if (rotates) ours.qp.rotateKey();
    ours.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: source.addr, length: 600, lkey: source.lkey }],
      rdma: { remoteAddr: target.addr, rkey: target.rkey },
    });
    const [completion] = await ours.sendCq.wait();
    assert.is(completion!.status, WcStatus.SUCCESS);
  }
  await here.close();
}

test('messages with a tag are read, packets without their trailers', () =>
  Workspace.use(async (space) => {
    const file = space.path('tagged.pcap');
    await capture(file, false);
    const { stdout, code } = await space.run('decode', file);
    assert.is(code, 0);
    assert.match(stdout, /authentication request: /);
    assert.match(stdout, /; connect request: .*, with a tag {2}\[ICRC ok\]/);
    assert.match(stdout, /; connect reply: .*, with a tag {2}\[ICRC ok\]/);
    const write = /RC RDMA WRITE Only, 600 bytes to .*; packet (\d+) of key (\d+), with a tag/g;
    // A busy machine may send a packet twice.
    const keys = new Set([...stdout.matchAll(write)].map(([, , generation]) => generation));
    assert.equal([...keys], ['0', '1']);
    assert.match(stdout, /RC Acknowledge, .*; packet \d+ of key 0, with a tag {2}\[ICRC ok\]/);
    assert.not.match(stdout, /no message|malformed|WRONG/i);
  }));

test('of encrypted packets the base transport header is read', () =>
  Workspace.use(async (space) => {
    const file = space.path('encrypted.pcap');
    await capture(file, true);
    const { stdout } = await space.run('decode', file);
    const line = /RC RDMA WRITE ONLY, 616 bytes encrypted; to queue pair 0x[0-9a-f]{6}, PSN \d+; /;
    assert.match(stdout, line);
    const packets = (await space.run('decode', '--json', file)).stdout
      .trimEnd()
      .split('\n')
      .map(
        (text) =>
          JSON.parse(text) as { trailer?: { generation: number }; packet: { name?: string } },
      );
    const found = packets.filter(({ packet }) => packet.name === 'RC_RDMA_WRITE_ONLY');
    // A busy machine may send a packet twice: it is encrypted anew, with the next number.
    for (const [number, { trailer }] of found.entries()) {
      assert.equal(trailer, { generation: trailer!.generation, number, encrypted: true });
    }
    assert.equal([...new Set(found.map(({ trailer }) => trailer!.generation))], [0, 1]);
  }));

test.run();
